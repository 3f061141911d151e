"""Waits a moment for the replica to show what was just done, so that the page that follows does not show what was before."""

from __future__ import annotations

from collections.abc import Callable

from retry import clock
from retry.errors import RebuildInProgress

WITHIN_S = 3.0
_POLL_S = 0.05


def until(holds: Callable[[], bool]) -> None:
    """Return once it holds, or after three seconds; what was done is done whether it is shown or not."""
    deadline = clock.Deadline(WITHIN_S)
    try:
        while not holds() and not deadline.has_passed():
            clock.pause(_POLL_S)
    except RebuildInProgress:
        return
