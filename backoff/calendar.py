"""The times at which retries may be made at all: quiet hours to wait out, and a cron expression to wait for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from backoff.cron import Cron
from backoff.errors import PolicyInvalid, quote_value
from backoff.time_zone import END_MS, find_change_s, find_offset_s, find_zone

# Quiet hours: periods of the week, by the clocks of a time zone, in which nothing is to happen.

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
      days: those on which the period begins; 0 is Monday.
    """

    from_minute: int
    to_minute: int
    zone: ZoneInfo
    days: frozenset[int]

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> QuietHours:
        """Parse quiet hours from a mapping like `{"from": "22:00", "to": "06:00", "zone": "Europe/Berlin", "days": ["fri"]}`.

        Without `days` it is every day. Raises PolicyInvalid where a key is missing, unknown, or cannot be used.
        """
        for key in mapping:
            if key not in _KEYS:
                raise PolicyInvalid(str(key), f"no such key; quiet hours have {', '.join(_KEYS)}")
        if missing := [key for key in _KEYS[:3] if key not in mapping]:
            raise PolicyInvalid(missing[0], "is missing; quiet hours need from, to and zone")
        begin, end, zone = _minute(mapping["from"], "from"), _minute(mapping["to"], "to"), find_zone(mapping["zone"], "zone")
        return cls(begin, end, zone, _weekdays(mapping.get("days", list(_DAYS)), "days"))

    def next_at_or_after(self, moment_ms: int) -> int:
        """Return the end of the period that a moment lies in, both in ms since 1970; the moment itself where it lies in none.

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
        shift_s = find_offset_s(at_s, self.zone)
        end_minute = self._end_minute((at_s + shift_s) // 60)
        if end_minute is None:
            return moment_ms
        end_s = 60 * end_minute - shift_s
        # After a change of the clocks the period ends at another instant, or this is no part of it any more.
        return 1_000 * (end_s if find_offset_s(end_s, self.zone) == shift_s else find_change_s(at_s, end_s, self.zone))

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


KEYS = ("quiet_hours", "align")
_NONE = "none"
_MINUTE_MS = 60_000
# A match a day that is open on one day of the year is found.
_ROUNDS_MAX = 500
_PERIODS_MAX = 50
# Any time would do at which the zones have settled to the rules that they have for the future.
_TRIAL_MS = 1_893_456_000_000
# Letters of one batch fall into few minutes; when the cache is full it is emptied.
_CACHE_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Calendar:
    """A function from a due time to the first allowed one that is not before it, both in ms since 1970.

    A time is allowed if it is a match of `align`, where there is one, and in none of the quiet hours. The result is
    never before the input, allowed again gives itself, and a later input never gives an earlier result. Where nothing
    allowed comes within 500 rounds of waiting, which `parse_calendar` refuses for calendars that never have any, it is the time
    that was reached. Before 1970 and at the end of the year 9999 every time is allowed.

    Results are remembered by the minute. Since 1972 zones are whole minutes off UTC, so either all of a minute is open or
    none of it; and to wait for `align` from within a minute is to wait from the next whole one.

    >>> from datetime import datetime, timezone
    >>> keys = {"quiet_hours": {"from": "22:00", "to": "06:00", "zone": "UTC"}, "align": {"cron": "30 * * * *"}}
    >>> calendar = parse_calendar(keys)
    >>> due_at_ms = int(datetime(2026, 5, 1, 21, 45, tzinfo=timezone.utc).timestamp() * 1_000)
    >>> datetime.fromtimestamp(calendar(due_at_ms) / 1_000, timezone.utc).isoformat()
    '2026-05-02T06:30:00+00:00'
    >>> calendar.describe_rules()
    'aligned to 30 * * * * UTC, quiet 22:00–06:00 UTC'
    """

    quiet_hours: tuple[QuietHours, ...] = ()
    align: Cron | None = None
    _moved: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, due_at_ms: int) -> int:
        if not 0 <= due_at_ms < END_MS:
            return due_at_ms
        minute = due_at_ms // _MINUTE_MS if self.align is None else -(-due_at_ms // _MINUTE_MS)
        moved_ms = self._moved.get(minute)
        if moved_ms is None:
            moved_ms = self._settle_moment(minute * _MINUTE_MS)[0]
            if len(self._moved) >= _CACHE_MAX:
                self._moved.clear()
            self._moved[minute] = moved_ms
        return max(due_at_ms, moved_ms)

    def describe_rules(self) -> str:
        """Describe the rules in words, such as `quiet 22:00–06:00 UTC`."""
        return ", ".join(rule.describe_rule() for rule in self._rules())

    def ever(self) -> bool:
        return self._settle_moment(_TRIAL_MS)[1]

    def _rules(self) -> tuple[Cron | QuietHours, ...]:
        return self.quiet_hours if self.align is None else (self.align, *self.quiet_hours)

    def _settle_moment(self, moment_ms: int) -> tuple[int, bool]:
        """Move a moment until no rule moves it further; return the time, in ms since 1970, and whether every rule holds then."""
        rules = self._rules()
        for _ in range(_ROUNDS_MAX):
            before_ms = moment_ms
            for rule in rules:
                moment_ms = rule.next_at_or_after(moment_ms)
            if moment_ms == before_ms:
                return moment_ms, True
        return moment_ms, False


def parse_calendar(mapping: Mapping[str, object], base: Calendar | None = None) -> Calendar | None:
    """Parse `quiet_hours` and `align` of a mapping, over those of the base calendar; None where neither is left.

    The text `none` takes away what the base has. Raises PolicyInvalid: a value cannot be used, or no time would ever be allowed.
    """
    if not any(key in mapping for key in KEYS):
        return base
    quiet_hours, align = (base.quiet_hours, base.align) if base else ((), None)
    if "quiet_hours" in mapping:
        quiet_hours = _quiet_hours(mapping["quiet_hours"])
        if not Calendar(quiet_hours).ever():
            raise PolicyInvalid("quiet_hours", "all of the week is quiet: nothing would ever be retried")
    if "align" in mapping:
        align = _align(mapping["align"])
    calendar = Calendar(quiet_hours, align)
    if not calendar.ever():
        key = "align" if "align" in mapping else "quiet_hours"
        raise PolicyInvalid(key, "nothing would ever be retried: align has no match outside of the quiet hours")
    return calendar if quiet_hours or align else None


def _quiet_hours(value: object) -> tuple[QuietHours, ...]:
    if value == _NONE:
        return ()
    if not isinstance(value, list | tuple):
        return (_period(value, "quiet_hours"),)
    if not 1 <= len(value) <= _PERIODS_MAX:
        raise PolicyInvalid("quiet_hours", f"not a list of 1 to {_PERIODS_MAX} periods; {_NONE} is for no quiet hours")
    return tuple(_period(each, f"quiet_hours[{n}]") for n, each in enumerate(value))


def _period(value: object, path: str) -> QuietHours:
    if not isinstance(value, Mapping):
        like = "{from: '22:00', to: '06:00', zone: Europe/Berlin}"
        raise PolicyInvalid(path, f"{quote_value(value)} is not a mapping like {like}; {_NONE} is for no quiet hours")
    try:
        return QuietHours.parse(value)
    except PolicyInvalid as invalid:
        raise invalid.with_prefix(path) from None


def _align(value: object) -> Cron | None:
    if value == _NONE:
        return None
    if not isinstance(value, Mapping):
        like = "{cron: '*/15 * * * *', zone: Europe/Berlin}"
        raise PolicyInvalid("align", f"{quote_value(value)} is not a mapping like {like}; {_NONE} is for no alignment")
    for key in value:
        if key not in ("cron", "zone"):
            raise PolicyInvalid(f"align.{key}", "no such key; align has cron and zone")
    if "cron" not in value:
        raise PolicyInvalid("align.cron", "is missing")
    try:
        return Cron.parse(value["cron"], value.get("zone", "UTC"))
    except PolicyInvalid as invalid:
        raise invalid.with_prefix("align") from None
