"""A moment, as people write it."""

from __future__ import annotations

from datetime import UTC, datetime

from backoff import duration_ms
from retry import clock


def parse_moment_ms(text: str, direction: int = 1) -> int:
    """Parse an ISO 8601 date and time (UTC where no zone is given), milliseconds or a duration; return milliseconds since 1970.

    Args:
      direction: 1 where a duration is counted from now on, -1 where it is so long ago.

    Raises:
      ValueError: it is none of these; the message says how they are written.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return clock.wall_ms() + direction * duration_ms(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no moment; give 2026-01-31T12:00:00+00:00, 1767225600000 or 10m") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
