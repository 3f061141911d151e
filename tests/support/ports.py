"""Ports for brokers and proxies: no two processes of test runs on this machine are given the same one.

The numbers lie below those that systems choose by themselves, for port 0 and for the near end of every connection. So nobody
comes by one between its being found free and its being listened on, nor while the broker that had it is down.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

from retry.kafka import local_broker

_PORTS = range(10_000, 16_000)
# Each lock ends with this process, however that ends.
_held: list[IO[bytes]] = []


def free_port() -> int:
    """A port on loopback that nobody listens on just now, and that is this process's for as long as it lives."""
    folder = Path(tempfile.gettempdir()) / f"retry-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    # Of its own: Hypothesis begins the common one anew, and all processes would try the same numbers.
    draw = random.SystemRandom()
    while True:
        port = draw.choice(_PORTS)
        file = (folder / str(port)).open("ab")
        if is_locked(file) and is_unused(port):
            _held.append(file)
            return port
        file.close()


def use_everywhere() -> None:
    """Have brokers take theirs from here, too; before other modules import the function by its name."""
    local_broker.free_port = free_port


def is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_unused(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((local_broker.HOST, port))
        except OSError:
            return False
    return True
