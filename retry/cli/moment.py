"""A moment as an option takes it."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class Moment(click.ParamType):
    """A moment, as operators write it; a duration is counted from now on, or `ago`."""

    name = "moment"

    def __init__(self, *, ago: bool = False) -> None:
        self._direction = -1 if ago else 1

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since 1970 from an ISO 8601 date and time, from milliseconds, or from a duration."""
        from backoff import duration_ms
        from retry.clock import wall_ms

        if value.isdigit():
            return int(value)
        try:
            return wall_ms() + self._direction * duration_ms(value)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return self.fail(f"{value!r} is no moment; give 2026-01-31T12:00:00+00:00, 1767225600000 or 10m", param, ctx)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
