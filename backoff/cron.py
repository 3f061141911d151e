"""The times that a cron expression names, by the clocks of a time zone.

A time that clocks jump over counts as the first instant after the jump. In the hour that autumn repeats an expression whose
minute or hour begins with `*`, such as `*/15 * * * *` or `30 * * * *`, matches again, as often as clocks show the time; one
that names both, such as `30 2 * * *`, matches the first time only. Vixie cron does so too.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, date
from zoneinfo import ZoneInfo

from backoff.cron_fields import fields
from backoff.errors import PolicyInvalid
from backoff.time_zone import END_MS, first_s, offset_s, reached_s, repeat_s
from backoff.time_zone import zone as zone_named

_MINUTES = 1_440  # of a day
_EPOCH_DAY = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Cron:
    """The minutes that an expression names. Make it with `parse`.

    Attributes:
      written: the expression, as someone wrote it.
      zone: whose clocks count.
      minutes: of the day, from 0, ascending.
      days: of the month, from 1.
      months: from 1, ascending.
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
        """The cron of an expression, as `backoff.cron_fields` describes it, and the name of a time zone.

        >>> Cron.parse("*/15 9-17 * * MON-FRI", "Europe/Berlin").minutes[:5]
        (540, 555, 570, 585, 600)

        Raises:
          PolicyInvalid: at `cron`, it is no such expression or never matches; at `zone`, there is no such zone.
        """
        sets = fields(text)
        # Every date that there is, 29 February too, falls on every day of the week in 400 years.
        if not sets.either and all(min(sets.days) > monthrange(2000, month)[1] for month in sets.months):
            raise PolicyInvalid("cron", f"{text} never matches: there is no such date")
        return cls(
            written=" ".join(str(text).split()),
            zone=zone_named(zone, "zone"),
            minutes=tuple(60 * hour + minute for hour in sorted(sets.hours) for minute in sorted(sets.minutes)),
            days=sets.days,
            months=tuple(sorted(sets.months)),
            weekdays=frozenset((number - 1) % 7 for number in sets.weekdays),
            either=sets.either,
            repeats=sets.wildcard,
        )

    def next_at_or_after(self, moment_ms: int) -> int:
        """The first match that is not before a moment, both in ms since 1970; a moment on a match stays.

        It looks at the days of months that match, never at each minute. Before 1970, and where there is no match left
        before the year 10,000, the moment comes back as it is.

        >>> Cron.parse("0 6 * * *").next_at_or_after(1)
        21600000
        """
        if not 0 <= moment_ms < END_MS:
            return moment_ms
        # Not from the moment itself: it may be the end of a jump, where matches inside the jump count.
        minute = self._next_minute(reached_s((moment_ms - 1) // 1_000, self.zone) // 60 + 1)
        if minute is None:
            return moment_ms
        again_ms = self._next_repeated_ms(moment_ms) if self.repeats else END_MS
        return min(1_000 * first_s(60 * minute, self.zone), again_ms)

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
        repeat = repeat_s(moment_ms // 1_000, self.zone)
        if not repeat:
            return END_MS
        ahead_s = offset_s(repeat.start, self.zone)
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
