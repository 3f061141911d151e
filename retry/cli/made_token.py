"""What the commands that make tokens have in common: until when one is valid, and how it is said."""

from __future__ import annotations

import re

import click

from retry.cli.moment import Moment
from retry.cli.output import say

UNTIL = click.option(
    "--until", type=Moment(), help="Until when it is valid: a time, or so long from now, as 90d; else for ever."
)


def check_name_and_end(pattern: re.Pattern[str], name: str, hint: str, until: int | None) -> None:
    """Go on only with a name that is one, and an end that is not past.

    Raises:
      BadParameter: it is not.
    """
    from retry.clock import wall_ms

    if not pattern.fullmatch(name):
        others = "@ " if "@" in pattern.pattern else ""
        raise click.BadParameter(f"{name!r} is no name; use letters, digits, . _ {others}-", param_hint=hint)
    if until is not None and until <= wall_ms():
        raise click.BadParameter("it is past", param_hint="--until")


def say_token(made: tuple[str, str]) -> None:
    """The token to standard error, its line to standard output."""
    secret, line = made
    say(secret, err=True)
    say(line)
