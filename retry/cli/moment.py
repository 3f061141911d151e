"""A moment as an option takes it."""

from __future__ import annotations

import click


class Moment(click.ParamType):
    """A moment, as operators write it; a duration is counted from now on, or `ago`."""

    name = "moment"

    def __init__(self, *, ago: bool = False) -> None:
        self._direction = -1 if ago else 1

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since 1970; see `retry.operations.moments`."""
        from retry.operations.moments import moment_ms

        try:
            return moment_ms(value, self._direction)
        except ValueError as wrong:
            return self.fail(str(wrong), param, ctx)
