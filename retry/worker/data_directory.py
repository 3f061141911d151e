"""A worker's data directory belongs to one process, and gives that process its name."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from pathlib import Path

from retry.errors import DataDirInUse, DataDirUnusable
from retry.settings import Settings

# Locks live as long as the process: a closed file would give its lock back.
_HELD: list[object] = []


def claim(data_dir: Path) -> None:
    """Lock the data directory for this process.

    Raises:
      DataDirInUse: another process has it.
      DataDirUnusable: it cannot be made, or not be written to.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (data_dir / "lock").open("a+")
    except OSError as error:
        raise DataDirUnusable(str(data_dir), error.strerror or str(error)) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        raise DataDirInUse(str(data_dir), file.read().strip() or "unknown") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _HELD.append(file)


def instance(settings: Settings) -> str:
    """The stable name of whoever runs on this data directory, even after the directory was lost."""
    place = f"{socket.gethostname()}:{settings.data_dir.absolute()}"
    return settings.instance or hashlib.sha256(place.encode()).hexdigest()[:16]
