"""Connections that only read the replica's file, shared by the threads that answer, while another process writes to it."""

from __future__ import annotations

import logging
import queue
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from retry.console.replica import sql_functions
from retry.console.replica.replica_file import LIVE
from retry.errors import RebuildInProgress

log = logging.getLogger(__name__)

_READERS_MAX, _CACHE_KB, _BUSY_S = 8, 2 << 10, 10.0


class ReplicaReaders:
    """A few of them; more threads than that wait for each other.

    Args:
      found_corrupt: is called with the id of the file where that is found.

    Attributes:
      file_id: of the file that is read; empty where there is none to be read.
    """

    def __init__(self, path: Path, found_corrupt: Callable[[str], None]) -> None:
        self._path, self._found_corrupt = path, found_corrupt
        # Each with the id of its file: who reads may give one back when another file is shown by then.
        self._idle: queue.LifoQueue[tuple[str, sqlite3.Connection]] = queue.LifoQueue()
        self._permits: queue.Queue[None] = queue.Queue()
        for _ in range(_READERS_MAX):
            self._permits.put(None)
        self.file_id = ""

    def switch_file(self, file_id: str) -> None:
        """From now on this file is read; an empty id is none. Who reads at the moment may finish."""
        if file_id == self.file_id:
            return
        self.file_id = file_id
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait()[1].close()

    @contextmanager
    def reading(self, progress: float) -> Iterator[sqlite3.Connection]:
        """A connection that only reads, and sees one state of the file.

        Args:
          progress: of the rebuild, for who asks meanwhile.

        Raises:
          RebuildInProgress: the file is being built, or has just been found to be corrupt.
        """
        if not self.file_id:
            raise RebuildInProgress(progress)
        self._permits.get()
        file_id, connection = self.file_id, None
        try:
            connection = self._reader(file_id, progress)
            connection.execute("BEGIN")
            yield connection
        except sqlite3.OperationalError as error:
            if self.file_id != file_id:
                raise RebuildInProgress(progress) from error
            raise
        except sqlite3.DatabaseError as error:
            log.error("%s is corrupt and is built anew: %s", self._path, error)
            self._found_corrupt(file_id)
            raise RebuildInProgress(0.0) from error
        finally:
            if connection is not None:
                self._give_back(connection, file_id)
            self._permits.put(None)

    def _reader(self, file_id: str, progress: float) -> sqlite3.Connection:
        with suppress(queue.Empty):
            while True:
                of, connection = self._idle.get_nowait()
                if of == file_id:
                    return connection
                connection.close()
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
            is_shown = _is_of(connection, file_id)
        except sqlite3.OperationalError as error:
            # It has just been thrown away, or begun again.
            raise RebuildInProgress(progress) from error
        if not is_shown:
            connection.close()
            raise RebuildInProgress(progress)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        sql_functions.register(connection)
        return connection

    def _give_back(self, connection: sqlite3.Connection, file_id: str) -> None:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        if self.file_id == file_id:
            self._idle.put((file_id, connection))
        else:
            connection.close()


def _is_of(connection: sqlite3.Connection, file_id: str) -> bool:
    """Whether this is the file that is shown: another one may have been begun in its place."""
    about = dict(connection.execute("SELECT name, value FROM about WHERE name IN ('id', ?)", (LIVE,)))
    return about == {"id": file_id, LIVE: "1"}
