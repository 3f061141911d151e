"""What the demo shows: one line that moves on a terminal, a plain line every two seconds elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.status import Status

from retry.clock import monotonic_s

_EVERY_S = 2.0


class Screen:
    """Says things, and shows the numbers of a `with` block while they change."""

    def __init__(self) -> None:
        # Plain text as it is: no wrapping at eighty columns, no colours for what only looks like a number.
        self._console = Console(highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._begun_s = self._shown_s = monotonic_s()
        self._line = ""

    def say(self, text: str) -> None:
        """One message."""
        self._console.print(text.rstrip("\n") + "\n" * text.endswith("\n\n"), markup=False)

    def show(self, produced: int, counts: Mapping[str, int]) -> None:
        """The numbers of the moment."""
        waiting = max(0, counts["DLT"] - counts["retry"] - counts["parked"])
        self._line = (
            f"{produced:5,} produced | {counts['DLT']:4,} letters arrived, {waiting:3,} waiting, "
            f"{counts['retry']:4,} came back | {counts['recovered']:4,} recovered, {counts['parked']:4,} parked"
        )
        if self._status is not None:
            self._status.update(self._line)
        elif monotonic_s() - self._shown_s >= _EVERY_S:
            self._shown_s = monotonic_s()
            self.say(f"{self._shown_s - self._begun_s:4.0f} s  {self._line}")

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        self.say(f"{monotonic_s() - self._begun_s:4.0f} s  {self._line}")
