"""Small pictures of numbers, made here as SVG without style or script; `charts.html` has the table of each."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_BAR, _GAP, _HIGH = 4, 1, 24
_HOUR_MS = 3_600_000


def bars(counts: Sequence[int], what: str) -> Markup:
    """Bars for the hours of a day, the oldest first; what they are is read aloud with their sum and the highest."""
    most = max(counts, default=0)
    told = f"{what}: {sum(counts):,} in {len(counts)} hours, at most {most:,} in one"
    drawn = [
        Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(n * (_BAR + _GAP), _HIGH - high, _BAR, high)
        for n, high in enumerate(_height(count, most) for count in counts)
        if high
    ]
    wide = max(1, len(counts) * (_BAR + _GAP) - _GAP)
    picture = Markup('<svg class="trend" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}</svg>')
    return picture.format(told, wide, _HIGH, wide, _HIGH, Markup("").join(drawn))


def _height(count: int, most: int) -> int:
    # What happened at all is seen.
    return max(2, round(_HIGH * count / most)) if count else 0


def hours(counts: Sequence[int], now_ms: int) -> list[tuple[int, int]]:
    """When each hour began of which these are the counts, the last being the one that is not over.

    >>> hours([3, 5], 7_200_001)
    [(3600000, 3), (7200000, 5)]
    """
    first = now_ms // _HOUR_MS - len(counts) + 1
    return [((first + n) * _HOUR_MS, count) for n, count in enumerate(counts)]
