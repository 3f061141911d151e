"""Ends a process that was told to stop while no broker answers, instead of waiting for brokers again and again.

A worker leaves in steps: it ends the transaction in flight (up to 15 s), asks for the ids of topics (5 s), leaves two groups
(6 s). With brokers these take a second together; without any, each waits as long as it may, one after another. A process that
ends before has lost nothing: as after kill -9, brokers undo what was in flight, and the next worker reads it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from retry import clock
from retry.worker.self_restart import THIS_PROCESS

log = logging.getLogger(__name__)

# Asked only then, so that what is done in a moment is done. "No" takes less than 8 s: together less than 10 s.
_FIRST_S, _EVERY_S = 2.0, 1.0


def end_without_brokers(brokers_answer: Callable[[], bool]) -> None:
    """Return never: the process ends by itself while brokers answer, else here; the body of a daemon thread."""
    clock.pause(_FIRST_S)
    while brokers_answer():
        clock.pause(_EVERY_S)
    log.warning("no broker answers: it ends without leaving its groups; webhooks whose answers were not written are called again")
    THIS_PROCESS.end_at_once()
