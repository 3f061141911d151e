"""Ends this process in its orderly way and begins the same command anew, under the same process id.

Supervisor, systemd and Kubernetes see no end. The last thing that the interpreter does is to become the same command again; an
end that is a failure stays one. Whoever sends SIGTERM or SIGINT meanwhile ends the process for good.
"""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from retry import clock

log = logging.getLogger(__name__)

# What was agreed to once is not agreed to for every start that follows.
ONCE = "--adopt-empty-changelog"
_OPEN_FILES = Path("/dev/fd")


class SelfRestart:
    """The orderly end and new beginning of one process, for any thread; `become` is given files to be left open."""

    def __init__(self, become: Callable[[frozenset[int]], NoReturn]) -> None:
        self._become = become
        self._given: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._asked = self._told = False
        self._stop: Callable[[], object] | None = None

    def request_restart(self) -> None:
        """End, and begin anew; nothing more than that end where somebody else has told this process to end."""
        with self._lock:
            self._asked, stop = True, self._stop
        if stop is not None and not self._told:
            # The loop is closed where it ends already.
            with suppress(RuntimeError):
                stop()

    def set_stop(self, stop: Callable[[], object]) -> None:
        with self._lock:
            self._stop, asked = stop, self._asked
        if asked:
            stop()

    def note_end_asked(self) -> None:
        """Note that somebody else has told this process to end: it does not begin anew."""
        self._told = True

    def watch_end_signals(self) -> asyncio.Event:
        """Return an event set on SIGTERM, on SIGINT, and when this process is to begin anew; call on the event's own loop."""
        told, loop = asyncio.Event(), asyncio.get_running_loop()

        def end() -> None:
            self.note_end_asked()
            told.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        self.set_stop(lambda: loop.call_soon_threadsafe(told.set))
        return told

    @contextmanager
    def restart_at_end(self) -> Iterator[None]:
        """Begin the process anew after the `with` block, where that was asked for and nothing has failed."""
        self._given = frozenset(_list_inherited_files())
        # What registers first is called last.
        atexit.register(self._restart_if_asked)
        try:
            yield
        except SystemExit as end:
            self._told = self._told or bool(end.code)
            raise
        except BaseException:
            self._told = True
            raise

    def _restart_if_asked(self) -> None:
        if self._asked and not self._told:
            self._become(self._given)

    def end_at_once(self) -> NoReturn:
        self._restart_if_asked()
        os._exit(0)


def _list_inherited_files() -> Iterator[int]:
    for fd in [int(file.name) for file in _OPEN_FILES.iterdir()]:
        with suppress(OSError):  # of the listing itself
            if os.get_inheritable(fd):
                yield fd


def _become(given: frozenset[int]) -> NoReturn:
    # Clients of Kafka have pipes that would be left open, more each time.
    for fd in set(_list_inherited_files()) - given:
        os.set_inheritable(fd, False)
    command = [sys.executable, *(argument for argument in sys.orig_argv[1:] if argument != ONCE)]
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execv(sys.executable, command)  # noqa: S606 - the command that this process is
    except OSError as error:
        log.critical("cannot begin anew: %s", error)
    os._exit(1)


THIS_PROCESS = SelfRestart(_become)


# Ends a process that was told to stop, where that does not come to an end by itself.
#
# A worker leaves in steps: it ends the transaction in flight (up to 15 s), asks for the ids of topics (5 s), leaves two groups
# (6 s). With brokers these take a second together; without any, each waits as long as it may, one after another. A process that
# ends before has lost nothing: as after kill -9, brokers undo what was in flight, and the next worker reads it again.

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
