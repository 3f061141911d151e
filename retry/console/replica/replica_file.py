"""The SQLite file: made, opened, thrown away where it is of no use, and read by several threads at once."""

from __future__ import annotations

import logging
import queue
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from retry.console.replica import schema, sql_functions
from retry.errors import DataDirUnusable, RebuildInProgress

log = logging.getLogger(__name__)

_READERS_MAX = 8
_WRITER_CACHE_KB, _READER_CACHE_KB = 48 << 10, 2 << 10
_BUSY_S = 10.0
_LIVE = "live"
# What the id of a topic is called in what a file is a fold of.
TOPIC = "topic "


class ReplicaFile:
    """One writer, which the folding thread has, and a few readers that threads share.

    Args:
      path: its folder is made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: sqlite3.Connection | None = None
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._permits: queue.Queue[None] = queue.Queue()
        for _ in range(_READERS_MAX):
            self._permits.put(None)
        self.id = ""
        self.is_live = False
        self.is_corrupt = False

    def open(self, identity: Mapping[str, str]) -> sqlite3.Connection:
        """The connection that writes: to the file that is there, or to a new one where that is of something else.

        Raises:
          DataDirUnusable: the disk does not take it.
        """
        self.close()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (found := self._trusted(identity)) is None:
                self._wipe()
                found = self._made(identity)
        except (OSError, sqlite3.Error) as error:
            raise DataDirUnusable(str(self.path), str(error)) from error
        self._writer, self.is_corrupt = found, False
        self.id, live = (_about(found, name) or "" for name in ("id", _LIVE))
        self.is_live = live == "1"
        return found

    def discard(self) -> None:
        """The file is of no use any more."""
        self.close()
        self._wipe()
        self.is_corrupt = False

    def finish(self) -> None:
        """All that was there at the start of a rebuild is in: build the indexes, and let readers in.

        Raises:
          DataDirUnusable: the disk does not take it.
        """
        writer = self._writer
        if writer is None:
            return
        try:
            writer.executescript(schema.INDEXES)
            writer.execute("INSERT OR REPLACE INTO about VALUES (?, '1')", (_LIVE,))
            _live_pragmas(writer)
        except sqlite3.Error as error:
            raise DataDirUnusable(str(self.path), str(error)) from error
        self.is_live = True

    @contextmanager
    def reading(self, progress: float) -> Iterator[sqlite3.Connection]:
        """A connection that only reads, and sees one state of the file.

        Args:
          progress: of the rebuild, for who asks meanwhile.

        Raises:
          RebuildInProgress: the file is being built, or has just been found to be corrupt.
        """
        if not self.is_live or self.is_corrupt:
            raise RebuildInProgress(progress)
        self._permits.get()
        try:
            connection, file_id = self._reader(), self.id
            try:
                connection.execute("BEGIN")
                yield connection
            except sqlite3.OperationalError as error:
                if self.id != file_id or not self.is_live:
                    raise RebuildInProgress(progress) from error
                raise
            except sqlite3.DatabaseError as error:
                log.error("%s is corrupt and is built anew: %s", self.path, error)
                self.is_corrupt = True
                raise RebuildInProgress(0.0) from error
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                if self.id == file_id and self.is_live:
                    self._idle.put(connection)
                else:
                    connection.close()
        finally:
            self._permits.put(None)

    def close(self) -> None:
        """Let go of the file; who reads at the moment may finish."""
        self.is_live = False
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _reader(self) -> sqlite3.Connection:
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_S
        )
        connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KB}")
        sql_functions.register(connection)
        return connection

    def _trusted(self, identity: Mapping[str, str]) -> sqlite3.Connection | None:
        """The file that is there; None where it is foreign, of another version or other topics, not finished, or corrupt."""
        if not self.path.exists():
            return None
        connection = None
        try:
            connection = self._connected()
            wanted = {**identity, "version": schema.VERSION, _LIVE: "1"}
            is_ours = connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
            if is_ours and all(_fits(connection, name, value) for name, value in wanted.items()):
                _live_pragmas(connection)
                connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", wanted.items())
                return connection
        except sqlite3.DatabaseError as error:
            log.warning("%s cannot be used: %s", self.path, error)
        if connection is not None:
            connection.close()
        log.info("%s is of something else, or was not finished, and is built anew", self.path)
        return None

    def _made(self, identity: Mapping[str, str]) -> sqlite3.Connection:
        connection = self._connected()
        # Whoever is killed while it builds leaves a file behind that is not finished, and thrown away.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.executescript(schema.TABLES)
        about = {**identity, "version": schema.VERSION, "id": secrets.token_hex(8), _LIVE: "0"}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        return connection

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KB}")
        sql_functions.register(connection)
        return connection

    def _wipe(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _live_pragmas(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # A copy may lose its last moments with the power; it folds them again.
    connection.execute("PRAGMA synchronous = NORMAL")


def _fits(connection: sqlite3.Connection, name: str, value: str) -> bool:
    """Whether the file says the same; it may say nothing of a topic that was not there before."""
    found = _about(connection, name)
    return found == value or (found is None and name.startswith(TOPIC))


def _about(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])
