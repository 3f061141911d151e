"""The SQLite file, as the process has it that writes to it: made, opened, and thrown away where it is of no use."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

from retry import clock
from retry.console.folding import sql
from retry.errors import DataDirUnusable

# Tables and indexes of the replica.
#
# | table | a row is |
# | --- | --- |
# | `about` | what the file is a fold of; see `replica_file` |
# | `positions` | a partition, and the offset that is folded next |
# | `topics` | a topic that letters or their records lie in, under a number |
# | `cells` | what letters have in common, with how many have it, and the group that they count in |
# | `letters` | a letter that waits or rests, with what is its own |
# | `cell_partitions` | how many letters of a cell came from a partition of its topic |
# | `cell_actions` | that letters of a cell came to where they are, or left, by an action |
# | `due_minutes` | how many letters of a team are due in a minute |
# | `message_text` | trigrams of messages in lower case, by the letter's id |
# | `controls`, `returned` | pauses and actions, by shard; bitmaps of parked letters that were returned |
# | `ramp_failed` | the key of a mark that a letter of an action's step failed again |
# | `outcome_cells` | what outcomes have in common, and the lane that their retries wait in |
# | `outcome_hours` | how many failed in an hour; of retries sent in it, and known, how many there are and came back |
# | `outcome_minutes` | how many failed in a minute of the last hour |
# | `outcome_slots` | the same of ten seconds, of retries of which it is not known yet, and when the last of them left |
# | `attempts` | a dead letter of the last days: what was decided, when it left and by which action, whether it came back, as what
#   it was counted |
# | `passed` | up to when a consumer group has passed all that was sent to a topic, and when that was seen |
# | `audit` | what one transaction of an action did for one team |
# | `notes` | the newest record of each key of the notes |
#
# No number of a cell is used again: whoever asks what is new remembers the last one.
#
# A filter asks mostly for what cells have: then letters need not be counted, and those of each cell lie in order.

# Another one is rebuilt. Texts are folded by the rules of one version of Unicode, and only then found again.
VERSION = f"4, Unicode {unicodedata.unidata_version}"
APPLICATION_ID = 0x72747279

TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
    topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE topics (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE cells (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, state TEXT NOT NULL, kind TEXT NOT NULL, team TEXT,
    topic TEXT, target TEXT NOT NULL, attempt INTEGER, exception TEXT, thrown TEXT, cause TEXT, common TEXT, fingerprint TEXT,
    consumer_group TEXT, frames TEXT, policy TEXT, reason TEXT, version TEXT,
    group_id TEXT, letters INTEGER NOT NULL DEFAULT 0, first_ms INTEGER, last_ms INTEGER);
CREATE INDEX cells_by_group ON cells (group_id, state);
CREATE TABLE letters (
    id INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE, cell INTEGER NOT NULL, sort INTEGER NOT NULL,
    log INTEGER NOT NULL, log_partition INTEGER NOT NULL, log_offset INTEGER NOT NULL,
    partition INTEGER, "offset" INTEGER, due_ms INTEGER, failed_ms INTEGER, first_failed_ms INTEGER,
    key TEXT, key_bytes BLOB, message TEXT, folded TEXT, lineage TEXT, size INTEGER NOT NULL, action TEXT, step INTEGER,
    label TEXT, headers TEXT, ordered TEXT, named TEXT, version TEXT, entry_key BLOB);
CREATE INDEX letters_by_name ON letters (named, version) WHERE named IS NOT NULL;
CREATE INDEX letters_in_order ON letters (ordered) WHERE ordered IS NOT NULL;
CREATE TABLE due_minutes (
    minute INTEGER, team TEXT, letters INTEGER NOT NULL, PRIMARY KEY (minute, team)) WITHOUT ROWID;
CREATE TABLE cell_partitions (
    cell INTEGER, partition INTEGER, letters INTEGER NOT NULL, PRIMARY KEY (cell, partition)) WITHOUT ROWID;
CREATE TABLE cell_actions (cell INTEGER, action TEXT, PRIMARY KEY (cell, action)) WITHOUT ROWID;
CREATE TABLE long_headers (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE controls (shard INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (shard, key)) WITHOUT ROWID;
CREATE TABLE ramp_failed (mark BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE returned (block BLOB PRIMARY KEY, bitmap BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE outcome_cells (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, team TEXT, topic TEXT, attempt INTEGER, cause TEXT,
    fingerprint TEXT, consumer_group TEXT, target TEXT, lane TEXT NOT NULL, group_id TEXT, first_ms INTEGER, last_ms INTEGER);
CREATE INDEX outcome_cells_by_group ON outcome_cells (group_id);
CREATE TABLE outcome_hours (
    cell INTEGER, hour INTEGER, failed INTEGER NOT NULL, sent INTEGER NOT NULL, came_back INTEGER NOT NULL,
    PRIMARY KEY (cell, hour)) WITHOUT ROWID;
CREATE INDEX outcome_hours_by_time ON outcome_hours (hour);
CREATE TABLE outcome_minutes (
    cell INTEGER, minute INTEGER, failed INTEGER NOT NULL, PRIMARY KEY (cell, minute)) WITHOUT ROWID;
CREATE TABLE outcome_slots (
    cell INTEGER, slot INTEGER, sent INTEGER NOT NULL, came_back INTEGER NOT NULL, left_ms INTEGER NOT NULL,
    PRIMARY KEY (cell, slot)) WITHOUT ROWID;
CREATE INDEX outcome_slots_by_time ON outcome_slots (slot);
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, lineage TEXT,
    attempt INTEGER, cell INTEGER, team TEXT, failed_ms INTEGER, taken_ms INTEGER, due_ms INTEGER, decision TEXT, reason TEXT,
    left_ms INTEGER, left_for TEXT, lane TEXT, action TEXT, step INTEGER, slot INTEGER, came_back INTEGER NOT NULL DEFAULT 0,
    counted_back INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, partition, "offset"));
CREATE TABLE passed (
    consumer_group TEXT, topic TEXT, until_ms INTEGER, at_ms INTEGER NOT NULL, PRIMARY KEY (consumer_group, topic, until_ms)
    ) WITHOUT ROWID;
CREATE INDEX passed_by_time ON passed (at_ms);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, action TEXT NOT NULL, kind TEXT NOT NULL, by TEXT NOT NULL,
    reason TEXT NOT NULL, shard INTEGER NOT NULL, team TEXT, letters INTEGER NOT NULL, done INTEGER NOT NULL,
    results TEXT NOT NULL, examples TEXT NOT NULL, place TEXT NOT NULL);
CREATE INDEX audit_by_time ON audit (at_ms);
CREATE INDEX audit_by_action ON audit (action, at_ms);
CREATE TABLE audit_letters (letter TEXT, audit INTEGER, result TEXT, PRIMARY KEY (letter, audit)) WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

# Built when a rebuild has put all rows: to keep them up to date row by row takes several times as long.
INDEXES = """
CREATE INDEX letters_by_sort ON letters (sort, cell);
CREATE INDEX letters_by_cell ON letters (cell, sort);
CREATE INDEX letters_by_failure ON letters (failed_ms) WHERE failed_ms IS NOT NULL;
CREATE INDEX letters_by_key ON letters (key) WHERE key IS NOT NULL;
CREATE INDEX letters_by_lineage ON letters (lineage) WHERE lineage IS NOT NULL;
CREATE INDEX attempts_by_action ON attempts (action, left_for, left_ms) WHERE action IS NOT NULL;
CREATE INDEX attempts_by_lineage ON attempts (lineage, attempt) WHERE lineage IS NOT NULL;
CREATE VIRTUAL TABLE message_text USING fts5(text, content='', detail='none', tokenize='trigram case_sensitive 1');
INSERT INTO message_text (rowid, text) SELECT id, coalesce(folded, lower(message)) FROM letters WHERE message IS NOT NULL;
"""


log = logging.getLogger(__name__)

_CACHE_KB = 16 << 10
_BUSY_S = 10.0
LIVE, _CURRENT = "live", "current_at_ms"
# What the id of a topic is called in what a file is a fold of.
TOPIC = "topic "


class ReplicaFile:
    """One connection that writes; see `ReplicaReaders` for those that read.

    Attributes:
      corrupt: id of a file that is not to be gone on with.
      current_at_ms: when it was last known to be all that could be read; of a new one, when it was begun.
      is_live: whether all was there once, so that it can be shown.
    """

    def __init__(self, path: Path, corrupt: str = "") -> None:
        self.path, self.corrupt = path, corrupt
        self._writer: sqlite3.Connection | None = None
        self.id, self.current_at_ms = "", 0
        self.is_live = False

    @property
    def is_corrupt(self) -> bool:
        return bool(self.id) and self.id == self.corrupt

    def open(self, identity: Mapping[str, str], age_ms_max: int) -> sqlite3.Connection:
        """Open the replica file that is there, or a new one, and return a connection that writes; raises DataDirUnusable.

        A file that was not current for `age_ms_max` may have missed deletes, and is built anew.
        """
        self.close()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (found := self._open_trusted(identity, age_ms_max)) is None:
                self._delete_files()
                found = self._create_file(identity)
        except (OSError, sqlite3.Error) as error:
            raise DataDirUnusable(str(self.path), str(error)) from error
        self._writer = found
        self.id, live, current_at_ms = (_read_note(found, name) or "" for name in ("id", LIVE, _CURRENT))
        self.is_live, self.current_at_ms = live == "1", int(current_at_ms)
        return found

    def discard(self) -> None:
        self.close()
        self._delete_files()
        self.id = ""

    def finish_rebuild(self, indexed: Callable[[], None]) -> None:
        """Build the indexes once all is in that was there at the start, call `indexed`, let readers in; raises DataDirUnusable.
        """
        writer = self._writer
        if writer is None:
            return
        try:
            writer.executescript(INDEXES)
            indexed()
            _flush(writer)
            writer.execute("INSERT OR REPLACE INTO about VALUES (?, '1')", (LIVE,))
            _live_pragmas(writer)
        except sqlite3.Error as error:
            raise DataDirUnusable(str(self.path), str(error)) from error
        self.is_live = True

    def note_current(self, at_ms: int) -> None:
        """Note that at that time the file was all that could be read; raises sqlite3.Error where the disk does not take it."""
        if self._writer is not None and at_ms > self.current_at_ms:
            self._writer.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (_CURRENT, str(at_ms)))
            self.current_at_ms = at_ms

    def close(self) -> None:
        self.is_live = False
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open_trusted(self, identity: Mapping[str, str], age_ms_max: int) -> sqlite3.Connection | None:
        """The file that is there; None where it is foreign, too old, of another version or topics, not finished, or corrupt."""
        if not self.path.exists():
            return None
        connection = None
        try:
            connection = self._connect()
            wanted = {**identity, "version": VERSION, LIVE: "1"}
            is_ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
            is_same = is_ours and all(_matches_note(connection, name, value) for name, value in wanted.items())
            if is_same and abs(clock.wall_ms() - int(_read_note(connection, _CURRENT) or 0)) <= age_ms_max:
                _live_pragmas(connection)
                connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", wanted.items())
                return connection
        except sqlite3.DatabaseError as error:
            log.warning("%s cannot be used: %s", self.path, error)
        if connection is not None:
            connection.close()
        log.info("%s is of something else, was not finished, or was not current for too long, and is built anew", self.path)
        return None

    def _create_file(self, identity: Mapping[str, str]) -> sqlite3.Connection:
        connection = self._connect()
        # Whoever is killed while it builds leaves a file behind that is not finished, and thrown away.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.executescript(TABLES)
        about = {**identity, "version": VERSION, "id": secrets.token_hex(8), LIVE: "0", _CURRENT: str(clock.wall_ms())}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        sql.register_functions(connection)
        return connection

    def _delete_files(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _flush(connection: sqlite3.Connection) -> None:
    """Have the disk take all that was written: before the file says that it is whole, and not while the first letters wait."""
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
