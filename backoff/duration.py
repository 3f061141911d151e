"""Durations as people write them, and back."""

from __future__ import annotations

import re

from backoff.errors import PolicyInvalid

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_WRITTEN = re.compile("".join(f"(?:([0-9]+){unit})?" for unit in _UNITS_MS))
# Longer than any duration that is allowed; keeps a megabyte of digits away from int().
_CHARS_MAX = 40
# Ten years with their leap days: anything longer is a slip of the unit.
DURATION_MS_MAX = 3_653 * _UNITS_MS["d"]


def duration_ms(text: object, path: str = "") -> int:
    """Parse a duration into ms, from 0 to ten years. Larger units come first, each at most once, no fractions.

    >>> [duration_ms(text) for text in ("250ms", "30s", "5m", "2h", "3d", "1h30m", "0s")]
    [250, 30000, 300000, 7200000, 259200000, 5400000, 0]

    Raises PolicyInvalid where it is not such a text; `path` says where it stands.
    """
    found = _WRITTEN.fullmatch(text) if isinstance(text, str) and 0 < len(text) <= _CHARS_MAX else None
    if found is None:
        shown = repr(text)[:_CHARS_MAX]
        raise PolicyInvalid(path, f"{shown} is not a duration; write it like 250ms, 30s, 5m, 2h, 3d or 1h30m")
    sum_ms = sum(int(count or 0) * unit_ms for count, unit_ms in zip(found.groups(), _UNITS_MS.values(), strict=True))
    if sum_ms > DURATION_MS_MAX:
        raise PolicyInvalid(path, f"{text} is longer than ten years; the longest is {duration_text(DURATION_MS_MAX)}")
    return sum_ms


def duration_text(duration_ms: int) -> str:
    """Write a duration of 0 ms or more in the shortest way; `duration_ms` reads it back.

    >>> [duration_text(ms) for ms in (0, 250, 90_000, 5_400_000, 259_200_000)]
    ['0s', '250ms', '1m30s', '1h30m', '3d']
    """
    parts = []
    for unit, unit_ms in _UNITS_MS.items():
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
