"""What commands print: the only way to a terminal, since any text may hold what a record said."""

from __future__ import annotations

import click

from retry.printable import visible, visible_json


def say(line: str, *, err: bool = False) -> None:
    """Print a line for people, to standard output or to standard error."""
    click.echo(visible(line), err=err)


def say_json(encoded: str | bytes) -> None:
    """Print JSON. It reads the same wherever it goes, and has no character that a terminal would obey."""
    click.echo(visible_json(encoded if isinstance(encoded, str) else encoded.decode()))
