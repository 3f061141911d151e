"""The SQLite file, as the process has it that writes to it: made, opened, and thrown away where it is of no use."""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from retry.console.replica import schema, sql_functions
from retry.errors import DataDirUnusable

log = logging.getLogger(__name__)

_CACHE_KB = 16 << 10
_BUSY_S = 10.0
LIVE = "live"
# What the id of a topic is called in what a file is a fold of.
TOPIC = "topic "


class ReplicaFile:
    """One connection that writes; see `replica_readers` for those that read.

    Args:
      path: its folder is made where it is missing.
      corrupt: id of a file that is not to be gone on with.

    Attributes:
      id: of the file that is open; empty before the first one is.
      is_live: whether all was there once, so that it can be shown.
    """

    def __init__(self, path: Path, corrupt: str = "") -> None:
        self.path, self.corrupt = path, corrupt
        self._writer: sqlite3.Connection | None = None
        self.id = ""
        self.is_live = False

    @property
    def is_corrupt(self) -> bool:
        """Whether the file that is open is of no use."""
        return bool(self.id) and self.id == self.corrupt

    def open(self, identity: Mapping[str, str]) -> sqlite3.Connection:
        """The connection that writes: to the file that is there, or to a new one where that is of something else.

        Raises:
          DataDirUnusable: the disk does not take it.
        """
        self.close()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (found := self._open_trusted(identity)) is None:
                self._delete_files()
                found = self._create_file(identity)
        except (OSError, sqlite3.Error) as error:
            raise DataDirUnusable(str(self.path), str(error)) from error
        self._writer = found
        self.id, live = (_read_note(found, name) or "" for name in ("id", LIVE))
        self.is_live = live == "1"
        return found

    def discard(self) -> None:
        """The file is of no use any more."""
        self.close()
        self._delete_files()
        self.id = ""

    def finish_rebuild(self, indexed: Callable[[], None]) -> None:
        """All that was there at the start of a rebuild is in: build the indexes, and let readers in.

        Args:
          indexed: is called in between.

        Raises:
          DataDirUnusable: the disk does not take it.
        """
        writer = self._writer
        if writer is None:
            return
        try:
            writer.executescript(schema.INDEXES)
            indexed()
            _flush(writer)
            writer.execute("INSERT OR REPLACE INTO about VALUES (?, '1')", (LIVE,))
            _live_pragmas(writer)
        except sqlite3.Error as error:
            raise DataDirUnusable(str(self.path), str(error)) from error
        self.is_live = True

    def close(self) -> None:
        """Let go of the file."""
        self.is_live = False
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open_trusted(self, identity: Mapping[str, str]) -> sqlite3.Connection | None:
        """The file that is there; None where it is foreign, of another version or other topics, not finished, or corrupt."""
        if not self.path.exists():
            return None
        connection = None
        try:
            connection = self._connect()
            wanted = {**identity, "version": schema.VERSION, LIVE: "1"}
            is_ours = connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
            if is_ours and all(_matches_note(connection, name, value) for name, value in wanted.items()):
                _live_pragmas(connection)
                connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", wanted.items())
                return connection
        except sqlite3.DatabaseError as error:
            log.warning("%s cannot be used: %s", self.path, error)
        if connection is not None:
            connection.close()
        log.info("%s is of something else, or was not finished, and is built anew", self.path)
        return None

    def _create_file(self, identity: Mapping[str, str]) -> sqlite3.Connection:
        connection = self._connect()
        # Whoever is killed while it builds leaves a file behind that is not finished, and thrown away.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.executescript(schema.TABLES)
        about = {**identity, "version": schema.VERSION, "id": secrets.token_hex(8), LIVE: "0"}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        sql_functions.register(connection)
        return connection

    def _delete_files(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _flush(connection: sqlite3.Connection) -> None:
    """Have the disk take all that was written without waiting for it: gigabytes that the first letters would wait for, and of
    which the power may take any part from under a file that says that it is whole."""
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("INSERT OR REPLACE INTO about VALUES (?, '0')", (LIVE,))


def _live_pragmas(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # A copy may lose its last moments with the power; it folds them again.
    connection.execute("PRAGMA synchronous = NORMAL")


def _matches_note(connection: sqlite3.Connection, name: str, value: str) -> bool:
    """Whether the file says the same; it may say nothing of a topic that was not there before."""
    found = _read_note(connection, name)
    return found == value or (found is None and name.startswith(TOPIC))


def _read_note(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])
