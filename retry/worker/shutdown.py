"""Ends a process that was told to stop, where that does not come to an end by itself.

A worker leaves in steps: it ends the transaction in flight (up to 15 s), asks for the ids of topics (5 s), leaves two groups
(6 s). With brokers these take a second together; without any, each waits as long as it may, one after another. A process that
ends before has lost nothing: as after kill -9, brokers undo what was in flight, and the next worker reads it again.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from collections.abc import Callable

from retry import clock
from retry.worker.self_restart import THIS_PROCESS

log = logging.getLogger(__name__)

# Asked only then, so that what is done in a moment is done. "No" takes less than 8 s: together less than 10 s.
_FIRST_S, _EVERY_S = 2.0, 1.0
# Longer than all steps take with slow brokers, on a tenth of a core.
_PATIENCE_S = 180.0


def end_in_time(brokers_answer: Callable[[], bool]) -> None:
    """Return never: the process ends by itself meanwhile, else here; the body of a daemon thread."""
    deadline = clock.Deadline(_PATIENCE_S)
    clock.pause(_FIRST_S)
    while brokers_answer():
        if deadline.has_passed():
            _end_stuck()
        clock.pause(_EVERY_S)
    log.warning("no broker answers: it ends without leaving its groups; webhooks whose answers were not written are called again")
    THIS_PROCESS.end_at_once()


def _end_stuck() -> None:
    log.critical("not done %.0f s after it was told to stop: it ends now, and nothing is lost. It waited for this:", _PATIENCE_S)
    faulthandler.dump_traceback(sys.stderr, all_threads=True)
    os._exit(1)
