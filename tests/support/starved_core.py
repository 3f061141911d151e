"""A core that a process shares with busy ones, as on a machine that is far too small; needs no rights and no quota."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from retry.kafka.child_process import Tethered

_BUSY = [sys.executable, "-c", "while True: pass"]


@contextmanager
def starved_core(busy: int) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Keep one core busy with so many processes.

    Returns:
      in the context that it makes, whatever this thread starts runs on that core, and gets its share of it.
    """
    core = max(os.sched_getaffinity(0))

    @contextmanager
    def pin_to_core() -> Iterator[None]:
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)

    with ExitStack() as ends:
        with pin_to_core():
            for _ in range(busy):
                process = Tethered(_BUSY, None)
                ends.callback(process.wait)
                ends.callback(process.kill)
        yield pin_to_core
