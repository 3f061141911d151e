"""Quiet hours: periods of the week, by the clocks of a time zone, in which nothing is to happen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from backoff.errors import PolicyInvalid, quote_value
from backoff.time_zone import END_MS, change_s, offset_s
from backoff.time_zone import zone as zone_named

_MINUTES = 1_440  # of a day
_FIRST_WEEKDAY = 3  # 1 January 1970 was a Thursday; 0 is Monday
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_KEYS = ("from", "to", "zone", "days")
_TIME = re.compile("([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """One period a day.

    Attributes:
      from_minute: of the day, from 0; the first that is quiet.
      to_minute: of the day, from 0; the first that is open again. On the next day, if it is not after `from_minute`:
        where the two are the same, the period lasts a whole day.
      zone: whose clocks count.
      days: those on which the period begins; 0 is Monday.
    """

    from_minute: int
    to_minute: int
    zone: ZoneInfo
    days: frozenset[int]

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> QuietHours:
        """The period of a mapping like `{"from": "22:00", "to": "06:00", "zone": "Europe/Berlin", "days": ["fri"]}`.

        `days` may be left out: every day.

        Raises:
          PolicyInvalid: a key is missing, unknown, or cannot be used.
        """
        for key in mapping:
            if key not in _KEYS:
                raise PolicyInvalid(str(key), f"no such key; quiet hours have {', '.join(_KEYS)}")
        if missing := [key for key in _KEYS[:3] if key not in mapping]:
            raise PolicyInvalid(missing[0], "is missing; quiet hours need from, to and zone")
        return cls(
            _minute(mapping["from"], "from"),
            _minute(mapping["to"], "to"),
            zone_named(mapping["zone"], "zone"),
            _weekdays(mapping.get("days", list(_DAYS)), "days"),
        )

    def next_at_or_after(self, moment_ms: int) -> int:
        """The end of the period that a moment lies in, both in ms since 1970; the moment itself where it lies in none.

        What comes back may lie in the period of the next day, or be an instant at which clocks are changed inside the
        period: whoever wants an open moment asks until nothing moves. Before 1970, and at the end of the year 9999,
        every moment is open.

        >>> night = QuietHours.parse({"from": "22:00", "to": "06:00", "zone": "UTC"})
        >>> [night.next_at_or_after(hour * 3_600_000) // 3_600_000 for hour in (5, 6, 21, 22, 25)]
        [6, 6, 21, 30, 30]
        """
        if not 0 <= moment_ms < END_MS:
            return moment_ms
        at_s = moment_ms // 1_000
        shift_s = offset_s(at_s, self.zone)
        end_minute = self._end_minute((at_s + shift_s) // 60)
        if end_minute is None:
            return moment_ms
        end_s = 60 * end_minute - shift_s
        # After a change of the clocks the period ends at another instant, or this is no part of it any more.
        return 1_000 * (end_s if offset_s(end_s, self.zone) == shift_s else change_s(at_s, end_s, self.zone))

    def describe_rule(self) -> str:
        """Describe the period in words: its times, its time zone, and its days where it does not begin on all.

        >>> QuietHours.parse({"from": "22:00", "to": "06:00", "zone": "Europe/Berlin", "days": ["sat", "fri"]}).describe_rule()
        'quiet 22:00–06:00 Europe/Berlin on fri, sat'
        """
        days = "" if len(self.days) == len(_DAYS) else f" on {', '.join(_DAYS[day] for day in sorted(self.days))}"
        return f"quiet {_clock(self.from_minute)}–{_clock(self.to_minute)} {self.zone.key}{days}"

    def _end_minute(self, minute: int) -> int | None:
        """Find the end of the period around a wall time, both in minutes since 1970. Periods of two days never overlap."""
        today = minute // _MINUTES
        length = (self.to_minute - self.from_minute) % _MINUTES or _MINUTES
        for day in (today, today - 1):
            start = _MINUTES * day + self.from_minute
            if (day + _FIRST_WEEKDAY) % 7 in self.days and start <= minute < start + length:
                return start + length
        return None


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _minute(value: object, path: str) -> int:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        # YAML takes a bare 22:00 for a number of base 60.
        raise PolicyInvalid(path, f"{quote_value(value)} is not a time of day; write it in quotes, like '22:00' or '06:30'")
    return 60 * int(match[1]) + int(match[2])


def _weekdays(value: object, path: str) -> frozenset[int]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= len(_DAYS):
        raise PolicyInvalid(path, f"{quote_value(value)} is not a list of days, like [sat, sun]")
    for n, day in enumerate(value):
        if not isinstance(day, str) or day.lower() not in _DAYS:
            raise PolicyInvalid(f"{path}[{n}]", f"{quote_value(day)} is not one of {', '.join(_DAYS)}")
    return frozenset(_DAYS.index(day.lower()) for day in value)
