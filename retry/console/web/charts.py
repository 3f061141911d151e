"""Small pictures of numbers, made here as SVG without style or script; the numbers stand beside them as text."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_BAR, _GAP, _HIGH = 4, 1, 24


def trend(counts: Sequence[int], what: str) -> Markup:
    """Bars for the hours of a day, the oldest first; what they are is read aloud with their sum and the highest."""
    most = max(counts, default=0)
    told = f"{what}: {sum(counts):,} in {len(counts)} hours, at most {most:,} in one"
    bars = [
        Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(n * (_BAR + _GAP), _HIGH - high, _BAR, high)
        for n, high in enumerate(_height(count, most) for count in counts)
        if high
    ]
    wide = max(1, len(counts) * (_BAR + _GAP) - _GAP)
    picture = Markup('<svg class="trend" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">{}</svg>')
    return picture.format(told, wide, _HIGH, wide, _HIGH, Markup("").join(bars))


def _height(count: int, most: int) -> int:
    # What happened at all is seen.
    return max(2, round(_HIGH * count / most)) if count else 0
