"""When letters of one kind failed, drawn as bars that are links: each leads to the letters of its time that still wait or rest.

It is SVG without style or script, with its places in parts of its width, so that it fits any screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile

from markupsafe import Markup

from retry.console.reading.group_details import FailureBar
from retry.console.web.formats import format_minute

_HIGH, _BASE = 96, 112
_LABELS_MAX = 7
_DRAWN = Markup(
    '<div class="drawn"><svg role="group" aria-label="{}" width="100%" height="{}">{}</svg><div class="ticks">{}</div></div>'
)
_LINE = Markup('<line x1="0" x2="100%" y1="{0}" y2="{0}"/>')
_TICK = Markup("<span>{}</span>")
_BAR = Markup(
    '<a href="{href}" aria-label="{label}"><title>{label}</title>'
    '<rect class="hit" x="{x:.2f}%" y="0" width="{wide:.2f}%" height="{base}"/>'
    '<rect x="{inner_x:.2f}%" y="{y}" width="{inner:.2f}%" height="{high}"/></a>'
)


def draw_chart(bars: Sequence[FailureBar], link: Callable[[FailureBar], str], what: str) -> Markup:
    """Draw the bars over a line of times; `link` gives the address that a bar leads to."""
    most, wide = nice_most(max(bar.failed for bar in bars)), 100 / len(bars)
    top = _BASE - _HIGH
    parts = [_LINE.format(y) for y in (top, _BASE - _HIGH // 2, _BASE)]
    for n, bar in enumerate(bars):
        if bar.failed:
            high = max(2, round(_HIGH * bar.failed / most))
            x = n * wide
            parts.append(_BAR.format(
                href=link(bar), label=f"{describe_time(bar)}: {bar.failed:,} failed", x=x, wide=wide, base=_BASE,
                inner_x=x + wide * 0.1, y=_BASE - high, inner=wide * 0.8, high=high,
            ))  # fmt: skip
    step = next(each for each in range(1, len(bars) + 1) if len(bars) % each == 0 and len(bars) // each <= _LABELS_MAX)
    ticks = [_TICK.format(format_minute(bars[n].from_ms)) for n in range(0, len(bars), step)]
    return _DRAWN.format(what, _BASE, Markup("").join(parts), Markup("").join(ticks))


def nice_most(most: int) -> int:
    """Return the end of a scale that a person can read: 2, 4, 10, 20 or 50 times a power of ten, so that its half is whole.

    >>> [nice_most(each) for each in (0, 1, 3, 7, 11, 45, 51, 1814)]
    [2, 2, 4, 10, 20, 50, 100, 2000]
    """
    powers = takewhile(lambda power: power <= 10 * max(1, most), (10**n for n in range(30)))
    ends = (step * power for power in powers for step in (2, 4, 5, 10))
    return next(end for end in ends if end >= most and end % 2 == 0)


def format_filter(bar: FailureBar) -> str:
    """Write the term that asks for letters of the time of a bar; both its ends are included.

    >>> format_filter(FailureBar(1_790_000_000_000, 1_790_000_120_000, 1))
    'failed:2026-09-21T14:13:20..2026-09-21T14:15:19.999'
    """
    first, last = _in_utc(bar.from_ms), _in_utc(bar.to_ms - 1)
    return f"failed:{first:%Y-%m-%dT%H:%M:%S}..{last:%Y-%m-%dT%H:%M:%S}.{(bar.to_ms - 1) % 1_000:03}"


def describe_time(bar: FailureBar) -> str:
    """Say from when to when a bar counts.

    >>> describe_time(FailureBar(1_790_000_000_000, 1_790_003_600_000, 1))
    '21 Sep 14:13 to 15:13 UTC'
    """
    first, end = _in_utc(bar.from_ms), _in_utc(bar.to_ms)
    return f"{first:%-d %b %H:%M} to {end:%H:%M} UTC"


def _in_utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)
