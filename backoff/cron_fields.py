"""The five fields of a cron expression, as Vixie cron reads them: text in, sets of numbers out.

| field | values |
| --- | --- |
| minute, hour | 0-59, 0-23 |
| day of month, month | 1-31, 1-12 or JAN-DEC |
| day of week | 0-7 or SUN-SAT; 0 and 7 are Sunday |

Each is `*`, a value, a range `a-b`, either of `*` and a range with a step `/n`, or a list of these with commas. Instead
of five fields: @hourly, @daily, @weekly, @monthly, @yearly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from backoff.errors import PolicyInvalid, quote_value

_CHARS_MAX = 500
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
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


def fields(expression: object) -> Fields:
    """The fields of an expression; capital letters and small ones are the same.

    >>> fields("0,30 9-17/4 1 */6 FRI-SUN")[1:4] == ({9, 13, 17}, {1}, {1, 7})
    True

    Raises:
      PolicyInvalid: at `cron`, it is no such expression.
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
