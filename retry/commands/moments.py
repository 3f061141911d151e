"""Moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(moment_ms: int) -> str:
    """ISO 8601 in UTC; milliseconds since 1970 where a calendar has no such day.

    >>> iso(1_767_225_600_000)
    '2026-01-01T00:00:00.000+00:00'
    """
    try:
        return datetime.fromtimestamp(moment_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"
