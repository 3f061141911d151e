"""What the demo shows, in at most a hundred columns: a line that moves on a terminal, one every two seconds elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.status import Status

from retry.clock import monotonic_s

_EVERY_S = 2.0
_COLUMNS = 100
_INDENT = 17


class Screen:
    """Prints messages, and shows changing numbers during a `with` block."""

    def __init__(self) -> None:
        # Plain text as it is: no wrapping at eighty columns, no colours for what only looks like a number.
        self._console = Console(highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._begun_s = self._shown_s = monotonic_s()
        self._of = self._line = ""

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it."""
        return self._console.is_terminal

    def say(self, text: str) -> None:
        """Print one message, wrapped at a hundred columns."""
        for line in text.rstrip("\n").split("\n"):
            wide = textwrap.wrap(line, _COLUMNS, subsequent_indent=" " * _INDENT, drop_whitespace=False) or [""]
            self._console.print("\n".join(wide), markup=False)

    def part(self, name: str) -> Callable[[str], None]:
        """A function that prints messages of one part of the demo, with the time since its start; threads may share it."""
        return lambda text: self.say(f"{monotonic_s() - self._begun_s:4.0f} s  {name:10}{text}")

    def _say_line(self) -> None:
        self._shown_s = monotonic_s()
        self.part(self._of)(self._line)

    def show_letters(self, produced: int, counts: Mapping[str, int]) -> None:
        """Show how many letters are in which state."""
        waiting = max(0, counts["DLT"] - counts["retry"] - counts["parked"])
        self.show(
            "letters",
            f"{produced:,} orders, {counts['DLT']} letters: {waiting} waiting, {counts['retry']} came back, "
            f"{counts['recovered']} recovered, {counts['parked']} parked",
        )

    def show(self, part: str, line: str) -> None:
        """Show a line that changes while the user waits."""
        self._of, self._line = part, line
        if self._status is not None:
            self._status.update(self._line)
        elif monotonic_s() - self._shown_s >= _EVERY_S:
            self._say_line()

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._say_line()
