"""Numbers and names as people read them. None is a dash."""

from __future__ import annotations

import math

from markupsafe import Markup

from retry.clock import iso
from retry.printable import escape_unprintable

_NONE = "–"
_NAME_CHARS_MAX, _TIMES = 160, 10
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def format_name(text: str | None, most: int = _NAME_CHARS_MAX) -> str:
    """Format a name from outside so that it is safe to show: one line, nothing that turns or hides what stands beside it.

    >>> format_name("a.B"), format_name(""), format_name(None)
    ('a.B', '(no name)', '(no name)')
    """
    return escape_unprintable(text, most) if text else "(no name)"


def break_after_dots(text: str | None) -> Markup:
    """Write a name as HTML that may break after its dots, where the column is narrow.

    >>> break_after_dots("a.b<c>")
    Markup('a.<wbr>b&lt;c&gt;')
    """
    return Markup(".<wbr>").join(format_name(text).split("."))


def count(number: float | None) -> str:
    """Format a number of things; a dash where it is not known.

    >>> count(1234567), count(12.34), count(None)
    ('1,234,567', '12', '–')
    """
    return _NONE if number is None else f"{number:,.0f}"


def noun(number: float | None, one: str, many: str | None = None) -> str:
    """Choose the noun that goes with a number of things, as `count` shows it: `one` for 1, else the plural.

    >>> noun(1, "letter"), noun(0, "letter"), noun(1.2, "retry", "retries"), noun(None, "minute")
    ('letter', 'letters', 'retry', 'minutes')
    """
    return one if count(number) == "1" else many or f"{one}s"


def at_most(number: float) -> str:
    """Format an upper bound of a number of things, rounded up to whole ones; a bound above none is never shown as 0.

    >>> at_most(0.2), at_most(14.0000000001), at_most(0)
    ('1', '14', '0')
    """
    return count(math.ceil(round(number, 6)))


def share(part: float | None) -> str:
    """Format a part of one in percent; what is not all is never shown as 100 %, and what is something never as 0 %.

    >>> share(0.5), share(0.9999), share(1), share(0.0001), share(0)
    ('50 %', '99.9 %', '100 %', '0.1 %', '0 %')
    """
    if part is None:
        return _NONE
    if part in (0, 1):
        return f"{part * 100:.0f} %"
    shown = min(max(part * 100, 0.1), 99.9)
    return f"{math.floor(shown * 10 + 0.5) / 10:g} %"


def duration(ms: float | None) -> str:
    """Format a time span in the largest unit of which it has at least one; a dash where it is not known.

    >>> duration(1500), duration(90), duration(5_400_000), duration(-1000), duration(0)
    ('1.5 s', '90 ms', '1.5 h', '-1 s', '0 ms')
    """
    if ms is None:
        return _NONE
    unit, unit_ms = next((each for each in _UNITS_MS if abs(ms) >= each[1]), _UNITS_MS[-1])
    return f"{_short(ms / unit_ms)} {unit}"


def change(now: float | None, before: float | None) -> str:
    """Say how much more or less a number is than before; empty where one of them is not known, or there was none before.

    >>> change(120, 100), change(99, 100), change(100, 100), change(3, 0), change(5_000, 100)
    ('+20 %', '-1 %', 'the same', '', '50 times as much')
    """
    if now is None or not before:
        return ""
    ratio = now / before
    if ratio >= _TIMES:
        return f"{_short(ratio)} times as much"
    return f"{(ratio - 1) * 100:+.0f} %" if abs(ratio - 1) >= 0.005 else "the same"


def points(now: float | None, before: float | None) -> str:
    """Say how many points of a hundred one part is more or less than another; empty where one is not known.

    >>> points(0.7, 0.65), points(0.5, 0.5), points(None, 0.5)
    ('+5 points', 'the same', '')
    """
    if now is None or before is None:
        return ""
    return f"{(now - before) * 100:+.2g} points" if abs(now - before) >= 0.0005 else "the same"


def money(amount: float | None) -> str:
    """Format an amount of money, in whatever currency the cost of a retry was given; a dash where it is not known.

    >>> money(1234.5), money(0.004), money(0)
    ('1,234.50', '0.004', '0.00')
    """
    if amount is None:
        return _NONE
    return f"{amount:,.2f}" if abs(amount) >= 0.01 or not amount else f"{amount:.2g}"


def moment(ms: float | None) -> str:
    """Format a time in UTC to the minute; a dash where it is not known.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13'
    """
    return _NONE if ms is None else iso(int(ms))[:16].replace("T", " ")


def trend(earlier: int, recent: int, is_new: bool) -> str:
    """Compare failures of the second half of a period with the first: a trend, or `steady` where chance explains it.

    >>> trend(100, 300, False), trend(300, 100, False), trend(450, 1, False), trend(450, 0, False)
    ('↑ 3.0×', '↓ to 33.3 %', '↓ to 0.2 %', 'gone')
    >>> trend(0, 9, True), trend(0, 9, False), trend(2, 1, False)
    ('new', 'back', 'steady')
    """
    # Two standard deviations of the difference of two counts.
    if abs(recent - earlier) <= 2 * math.sqrt(recent + earlier):
        return "new" if is_new else "steady"
    if not earlier:
        return "new" if is_new else "back"
    if recent > 1.2 * earlier:
        return f"↑ {recent / earlier:.1f}×"
    if earlier > 1.2 * recent:
        return f"↓ to {share(recent / earlier)}" if recent else "gone"
    return "steady"


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 100 else f"{round(number, 1):g}"
