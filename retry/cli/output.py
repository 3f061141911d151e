"""What commands print: the only way to a terminal, since any text may hold what a record said."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from retry.printable import escape_unprintable, visible_json


def say(line: str, *, err: bool = False) -> None:
    """Print a line for people, to standard output or to standard error."""
    click.echo(escape_unprintable(line), err=err)


def discard_output() -> None:
    """Throw away what standard output and standard error have not taken and may still get: what is left in their buffers would
    make the interpreter complain when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say_json(encoded: str | bytes) -> None:
    """Print JSON. It reads the same wherever it goes, and has no character that a terminal would obey."""
    click.echo(visible_json(encoded if isinstance(encoded, str) else encoded.decode()))
