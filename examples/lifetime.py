"""How each demo begins and ends: in a folder of its own that goes with it, and soon after Ctrl-C, whatever it is doing."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import NoReturn

from confluent_kafka import KafkaException

from examples.stage import DemoFailed
from retry.errors import RetryError
from retry.kafka.local_broker import LocalBroker

Say = Callable[[str], None]


def run_demo(play: Callable[[Path], None], say: Say) -> NoReturn:
    """Play a demo in a new folder, delete that, and end this process: with 0 if all checks passed.

    Args:
      play: shows everything. Raises DemoFailed where something is not as it must be.
      say: prints a message.
    """
    interrupted = Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    # So that ending this process ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # All that its processes put into a temporary folder lies in this one.
    folder = Path(tempfile.mkdtemp(prefix="retry-demo-"))
    try:
        code = _code_of(play, folder, say, interrupted.is_set)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _delete(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads may still ask brokers that are gone, or be inside librdkafka, which the interpreter's own end would not survive.
    os._exit(code)


@contextmanager
def killed_on_failure(broker: LocalBroker) -> Iterator[LocalBroker]:
    """A broker for the time of the block; it ends in order only after one that did not fail."""
    try:
        yield broker.start()
    except BaseException:
        broker.kill()
        raise
    broker.stop()


def _code_of(play: Callable[[Path], None], folder: Path, say: Say, is_interrupted: Callable[[], bool]) -> int:
    try:
        play(folder)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException as failed:
        # Clients make other errors of an interrupt, and brokers that end with it are one more.
        if is_interrupted():
            say("stopped; nothing is left running")
            return 130
        if not isinstance(failed, (DemoFailed, RetryError, KafkaException)):
            traceback.print_exc()
        say(f"FAILED: {failed}")
        return 1
    return 0


def _delete(folder: Path) -> None:
    # A process that was just killed, or a thread, may have made another file in the meantime.
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
