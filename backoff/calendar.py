"""The times at which retries may be made at all: quiet hours to wait out, and a cron expression to wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backoff.cron import Cron
from backoff.errors import PolicyInvalid, quote_value
from backoff.quiet_hours import QuietHours
from backoff.time_zone import END_MS

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
        """The first allowed time that is not before `due_at_ms`."""
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
        """Whether any time is allowed."""
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
    """The base calendar with what the keys `quiet_hours` and `align` say instead; None where neither is left.

    The text `none` takes away what the base has.

    Raises:
      PolicyInvalid: a value cannot be used, or no time would ever be allowed.
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
