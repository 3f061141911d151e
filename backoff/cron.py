"""The times that a cron expression names, by the clocks of a time zone.

A time that clocks jump over counts as the first instant after the jump. In the hour that autumn repeats an expression whose
minute or hour begins with `*`, such as `*/15 * * * *` or `30 * * * *`, matches again, as often as clocks show the time; one
that names both, such as `30 2 * * *`, matches the first time only. Vixie cron does so too.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, date
from typing import NamedTuple
from zoneinfo import ZoneInfo

from backoff.errors import PolicyInvalid, quote_value
from backoff.time_zone import END_MS, find_first_s, find_offset_s, find_reached_s, find_repeats_s, find_zone

# The five fields of a cron expression, as Vixie cron reads them: text in, sets of numbers out.
#
# | field | values |
# | --- | --- |
# | minute, hour | 0-59, 0-23 |
# | day of month, month | 1-31, 1-12 or JAN-DEC |
# | day of week | 0-7 or SUN-SAT; 0 and 7 are Sunday |
#
# Each is `*`, a value, a range `a-b`, either of `*` and a range with a step `/n`, or a list of these with commas. Instead of
# five fields: @hourly, @daily, @weekly, @monthly, @yearly.

_CHARS_MAX = 500
_MACROS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *"}
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_VALUE = "[0-9]{1,2}|[a-z]{3}"
_ITEM = re.compile(rf"(?:\*|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]{{1,2}}))?")


class Fields(NamedTuple):
    """The values that each field of a cron expression allows, numbered as in the module's table.

    Attributes:
      either: both kinds of day are restricted, and one of them is enough. One that begins with `*`, such as `*/2`, does
        not count as restricted.
      wildcard: the minute or the hour begins with `*`, so it is no fixed time of a day.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    wildcard: bool


class _Kind(NamedTuple):
    name: str
    low: int
    high: int
    names: Mapping[str, int] = {}

    def __str__(self) -> str:
        names = f" or one of {', '.join(self.names).upper()}" if self.names else ""
        return f"{self.name}: {self.low}-{self.high}{names}"


_WEEKDAY = _Kind("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)})
_KINDS = (
    _Kind("minute", 0, 59),
    _Kind("hour", 0, 23),
    _Kind("day of month", 1, 31),
    _Kind("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _WEEKDAY,
)


def parse_fields(expression: object) -> Fields:
    """Parse a cron expression into its fields; capital letters and small ones are the same.

    >>> parse_fields("0,30 9-17/4 1 */6 FRI-SUN")[1:4] == ({9, 13, 17}, {1}, {1, 7})
    True

    Raises PolicyInvalid, at `cron`, where it is no such expression.
    """
    if not isinstance(expression, str) or len(expression) > _CHARS_MAX:
        raise PolicyInvalid("cron", f"{quote_value(expression)} is not a cron expression, like '*/15 * * * *'")
    lower = expression.strip().lower()
    texts = _MACROS.get(lower, lower).split()
    if len(texts) != len(_KINDS):
        allowed = f"{', '.join(kind.name for kind in _KINDS)}; nor one of {', '.join(_MACROS)}"
        raise PolicyInvalid("cron", f"{quote_value(expression)} is not of five fields: {allowed}")
    minutes, hours, days, months, weekdays = (_values(text, kind) for text, kind in zip(texts, _KINDS, strict=True))
    either = not texts[2].startswith("*") and not texts[4].startswith("*")
    wildcard = texts[0].startswith("*") or texts[1].startswith("*")
    return Fields(minutes, hours, days, months, weekdays, either, wildcard)


def _values(text: str, kind: _Kind) -> frozenset[int]:
    return frozenset(value for item in text.split(",") for value in _range(item, kind))


def _range(item: str, kind: _Kind) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        wrong = f"{quote_value(item)} is not a {kind.name}"
        raise PolicyInvalid("cron", f"{wrong}: *, a value or a range, or * or a range with /step")
    low_text, high_text, step_text = match.groups()
    if low_text and step_text and not high_text:
        raise PolicyInvalid("cron", f"{item} has a step and no range; write {low_text}-{kind.high}/{step_text}")
    low = _parse_number(low_text, kind) if low_text else kind.low
    high = _parse_number(high_text or low_text, kind) if low_text else kind.high
    if kind is _WEEKDAY and high == 0 < low:
        high = 7  # FRI-SUN
    if low > high:
        raise PolicyInvalid("cron", f"{item} goes backwards; write two ranges with a comma between")
    step, step_max = int(step_text or 1), max(high - low, 1)
    if not 1 <= step <= step_max:
        raise PolicyInvalid("cron", f"{item} needs a step from 1 to {step_max}")
    return range(low, high + 1, step)


def _parse_number(text: str, kind: _Kind) -> int:
    value = int(text) if text.isdigit() else kind.names.get(text, -1)
    if not kind.low <= value <= kind.high:
        raise PolicyInvalid("cron", f"{text} is not a {kind}")
    return value


_MINUTES = 1_440  # of a day
_EPOCH_DAY = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Cron:
    """The minutes that an expression names. Make it with `parse`.

    Attributes:
      minutes: of the day, from 0, ascending.
      days, months: from 1; months ascending.
      weekdays: 0 is Monday.
      either: a day matches by `days` or by `weekdays`; otherwise it must match by both.
      repeats: a time that clocks show twice matches both times.
    """

    written: str
    zone: ZoneInfo
    minutes: tuple[int, ...]
    days: frozenset[int]
    months: tuple[int, ...]
    weekdays: frozenset[int]
    either: bool
    repeats: bool

    @classmethod
    def parse(cls, text: object, zone: object = "UTC") -> Cron:
        """Parse a cron expression, as `backoff.cron` describes it, and the name of a time zone, into a Cron.

        >>> Cron.parse("*/15 9-17 * * MON-FRI", "Europe/Berlin").minutes[:5]
        (540, 555, 570, 585, 600)

        Raises PolicyInvalid: at `cron`, it is no such expression or never matches; at `zone`, there is no such zone.
        """
        sets = parse_fields(text)
        # Every date that there is, 29 February too, falls on every day of the week in 400 years.
        if not sets.either and all(min(sets.days) > monthrange(2000, month)[1] for month in sets.months):
            raise PolicyInvalid("cron", f"{text} never matches: there is no such date")
        return cls(
            written=" ".join(str(text).split()),
            zone=find_zone(zone, "zone"),
            minutes=tuple(60 * hour + minute for hour in sorted(sets.hours) for minute in sorted(sets.minutes)),
            days=sets.days,
            months=tuple(sorted(sets.months)),
            weekdays=frozenset((number - 1) % 7 for number in sets.weekdays),
            either=sets.either,
            repeats=sets.wildcard,
        )

    def next_at_or_after(self, moment_ms: int) -> int:
        """Return the first match that is not before a moment, both in ms since 1970; a moment on a match stays.

        It looks at the days of months that match, never at each minute. Before 1970, and where there is no match left
        before the year 10,000, the moment comes back as it is.

        >>> Cron.parse("0 6 * * *").next_at_or_after(1)
        21600000
        """
        if not 0 <= moment_ms < END_MS:
            return moment_ms
        # Not from the moment itself: it may be the end of a jump, where matches inside the jump count.
        minute = self._next_minute(find_reached_s((moment_ms - 1) // 1_000, self.zone) // 60 + 1)
        if minute is None:
            return moment_ms
        again_ms = self._next_repeated_ms(moment_ms) if self.repeats else END_MS
        return min(1_000 * find_first_s(60 * minute, self.zone), again_ms)

    def describe_rule(self) -> str:
        """Describe the alignment in words, with the expression and its time zone.

        >>> Cron.parse("*/15 * * * *").describe_rule()
        'aligned to */15 * * * * UTC'
        """
        return f"aligned to {self.written} {self.zone.key}"

    def _next_repeated_ms(self, moment_ms: int) -> int:
        """The first match, not before a moment, that clocks show for the second time; END_MS if those around it have none."""
        # Matches in a repeat that is yet to begin come later than the same wall times' first, unless these are over: then
        # the moment is among the wall times that come twice.
        repeat = find_repeats_s(moment_ms // 1_000, self.zone)
        if not repeat:
            return END_MS
        ahead_s = find_offset_s(repeat.start, self.zone)
        minute = self._next_minute(-(-(max(-(-moment_ms // 1_000), repeat.start) + ahead_s) // 60))
        at_s = END_MS if minute is None else 60 * minute - ahead_s
        return 1_000 * at_s if at_s in repeat else END_MS

    def _next_minute(self, minute: int) -> int | None:
        """The first match from a wall time on, both in minutes since 1970."""
        for day in self._days(date.fromordinal(_EPOCH_DAY + minute // _MINUTES)):
            midnight = _MINUTES * (day.toordinal() - _EPOCH_DAY)
            place = bisect_left(self.minutes, minute - midnight)
            if place < len(self.minutes):
                return midnight + self.minutes[place]
        return None

    def _days(self, first: date) -> Iterator[date]:
        for year in range(first.year, MAXYEAR + 1):
            for month in self.months:
                if (year, month) < (first.year, first.month):
                    continue
                weekday, length = monthrange(year, month)
                start = first.day if (year, month) == (first.year, first.month) else 1
                for day in range(start, length + 1):
                    if self._matches_day(day, (weekday + day - 1) % 7):
                        yield date(year, month, day)

    def _matches_day(self, day: int, weekday: int) -> bool:
        in_month, in_week = day in self.days, weekday in self.weekdays
        return in_month or in_week if self.either else in_month and in_week
