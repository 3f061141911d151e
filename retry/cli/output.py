"""What commands print: the only way to a terminal, since any text may hold what a record said."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import msgspec

from retry.clock import monotonic_s
from retry.errors import ActionRefused
from retry.printable import escape_json, escape_unprintable

REFUSED = 3
_PATIENCE_S, _AGAIN_S = 2.0, 1.0


class Waiting:
    """Says on a terminal for how long a command has worked, from two seconds on until its first line; nothing elsewhere."""

    def __init__(self) -> None:
        self._ended, self._shown = threading.Event(), ""
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def tell_progress(self) -> None:
        if sys.stderr.isatty() and not self._ended.is_set():
            self._thread.start()

    def _tell(self) -> None:
        begun_s, wait_s = monotonic_s(), _PATIENCE_S
        while not self._ended.wait(wait_s):
            wait_s, self._shown = _AGAIN_S, f"working, {monotonic_s() - begun_s:.0f} s …"
            click.echo(f"\r{self._shown}", nl=False, err=True)

    def end(self) -> None:
        """Take the line away, for good; whoever prints calls it first."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._shown:
            click.echo(f"\r{' ' * len(self._shown)}\r", nl=False, err=True)
            self._shown = ""


WAITING = Waiting()


def _print(text: str, *, err: bool = False) -> None:
    WAITING.end()
    click.echo(text, err=err)


def say(line: str, *, err: bool = False) -> None:
    """Print a line for people, to standard output or to standard error."""
    _print(escape_unprintable(line), err=err)


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


@contextmanager
def exit_where_refused() -> Iterator[None]:
    """End the process with exit code 3, and the reason on standard error, where an action is refused in between."""
    try:
        yield
    except ActionRefused as refused:
        say(str(refused), err=True)
        sys.exit(REFUSED)


def discard_output() -> None:
    """Throw away what standard output and standard error have not taken and may still get: what is left in their buffers would
    make the interpreter complain when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say_json(value: object, *, indented: bool = False) -> None:
    """Print a value as `format_json` writes it."""
    _print(format_json(value, indented=indented))


def format_json(value: object, *, indented: bool = False) -> str:
    """Format a value as all commands print JSON: on one line, or `indented` for people.

    It reads the same wherever it goes, and has no character that a terminal would obey.
    """
    encoded = msgspec.json.encode(value)
    return escape_json((msgspec.json.format(encoded, indent=2) if indented else encoded).decode())


def write_file(file: Path, text: str) -> None:
    """Write a file, or say in a line why not."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}; name another file") from None
