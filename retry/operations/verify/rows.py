"""What one record says about one letter, in 81 bytes at most: a million letters fit a temporary directory and no memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from retry.delay_queue.entry_keys import HELD_LANES, Lane

UNKNOWN = -1
# In place of a topic, in rows of entries with a name: no topic is called so.
NAMES = ""
_NAMES_MAX = 1 << 16
_Name = TypeVar("_Name", str, bytes)


class RowKind:
    """The kind of a row, which is its first byte. Plain numbers, since there are millions of rows."""

    LETTER = 0
    OUTCOME = 1
    PUT = 2
    DELETE = 3
    DELIVERY = 4
    # A delivery as a read_uncommitted reader sees it.
    UNCOMMITTED = 5
    TABLE = 6


# All rows begin with their kind and the coordinates of their letter, in which topics are numbers of `NameTable`. An entry with
# a name has NAMES, 0 and the hash of its name there. `at_topic`, `at_partition`, `at_offset` are the record itself. `in_scope`:
# everything that was committed with the record can be seen; other records are evidence only.


class LetterRow(NamedTuple):
    """A record of a dead-letter topic."""

    kind: int
    topic: int
    partition: int
    offset: int
    in_scope: bool


class OutcomeRow(NamedTuple):
    """One decision of intake. `attempt`: as the delivered record has it as a header; `target`: number of the topic."""

    kind: int
    topic: int
    partition: int
    offset: int
    in_scope: bool
    at_topic: int
    at_partition: int
    at_offset: int
    due_ms: int
    taken_ms: int
    lineage_hash: int
    attempt: int
    target: int


class EntryRow(NamedTuple):
    """An entry written to the changelog, or deleted from it.

    Attributes:
      ordering_key: hash of the record key whose order is kept; UNKNOWN of entries without an order.
      version: of an entry with a name; UNKNOWN of others.
      in_block: whether it was written, or deleted, with its block.
      appended_ms: by the broker's clock.
    """

    kind: int
    topic: int
    partition: int
    offset: int
    in_scope: bool
    at_topic: int
    at_partition: int
    at_offset: int
    due_ms: int
    ordering_key: int
    version: int
    key_hash: int
    envelope_hash: int
    lane: int
    in_block: bool
    appended_ms: int = 0


class Returned:
    """Whether a letter that rested on a parking topic was returned from there. Plain numbers, as kinds are."""

    NO = 0
    YES = 1
    # What was committed with its mark may not be seen.
    OUT_OF_SCOPE = 2


class DeliveryRow(NamedTuple):
    """A record of a retry or parking topic. `appended_ms`: by the broker's clock; both times may be UNKNOWN."""

    kind: int
    topic: int
    partition: int
    offset: int
    in_scope: bool
    at_topic: int
    at_partition: int
    at_offset: int
    due_ms: int
    appended_ms: int
    returned: int = Returned.NO


class TableRow(NamedTuple):
    """An entry in a table on disk. `at_partition`: of the changelog; `table`: number of the table."""

    kind: int
    topic: int
    partition: int
    offset: int
    at_partition: int
    table: int
    key_hash: int
    envelope_hash: int


Row = LetterRow | OutcomeRow | EntryRow | DeliveryRow | TableRow

_ENTRY = EntryRow, struct.Struct("<BHIQ?HIQqqqQQH?q")
_DELIVERY = DeliveryRow, struct.Struct("<BHIQ?HIQqqB")
_FORMATS: tuple[tuple[Any, struct.Struct], ...] = (
    (LetterRow, struct.Struct("<BHIQ?")), (OutcomeRow, struct.Struct("<BHIQ?HIQqqQQH")), _ENTRY, _ENTRY, _DELIVERY, _DELIVERY,
    (TableRow, struct.Struct("<BHIQIIQQ")),
)  # fmt: skip
# By kind, what turns the fields of a row into bytes.
PACK = tuple(form.pack for _, form in _FORMATS)
_UNPACK = tuple((row_type._make, form.unpack_from, form.size) for row_type, form in _FORMATS)


def unpack_rows(data: bytes) -> Iterator[Row]:
    at, end = 0, len(data)
    while at < end:
        make, unpack_from, size = _UNPACK[data[at]]
        yield make(unpack_from(data, at))
        at += size


class _Numbers(dict[_Name, int]):
    """Numbers by name; a new name gets the next, or the last one where none is left."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[_Name] = []

    def __missing__(self, name: _Name) -> int:
        number = self[name] = min(len(self.names), _NAMES_MAX - 1)
        if len(self.names) < _NAMES_MAX:
            self.names.append(name)
        return number


class NameTable:
    """Names of topics and lanes by number. Beyond 65,535 of them, which only a stranger would write, all have the last.

    Attributes:
      topics, lanes: the names, by number.
      topic, lane: give the number of a name.
      lane_parts: by a lane's key, what it was made from, as far as outcomes or entries say.
    """

    def __init__(self) -> None:
        topics: _Numbers[str] = _Numbers()
        lanes: _Numbers[bytes] = _Numbers()
        self.topics, self.topic = topics.names, topics.__getitem__
        self.lanes, self.lane = lanes.names, lanes.__getitem__
        self.lane_parts: dict[bytes, Lane] = {}

    def lane_of(self, row: EntryRow) -> Lane | None:
        """Look up team, topic and destination of an entry; None where no record says."""
        return self.lane_parts.get(self.lanes[row.lane])

    def is_held(self, row: EntryRow) -> bool:
        """Whether an entry lies where those do that workers could not open."""
        return self.lanes[row.lane] in HELD_LANES

    def format_letter(self, row: Row) -> str:
        """Name the letter of a row as `retry-source` does."""
        return f"{self.topics[row.topic]}/{row.partition}/{row.offset}"

    def record(self, row: OutcomeRow | EntryRow | DeliveryRow) -> str:
        """Return the place of the record that a row was made from, as `topic/partition/offset`."""
        return f"{self.topics[row.at_topic]}/{row.at_partition}/{row.at_offset}"


# Rows in files, by a hash of their letter: what was written about one letter is read together, a file at a time.

_BUFFER_BYTES = 16 << 20
_ROWS_A_FILE = 40_000
_FILES_MIN, _FILES_MAX = 16, 8_192


class Spill:
    """Rows, of which only the newest few megabytes are in memory.

    Args:
      folder: an empty directory.
      rows: about how many there will be; with it the number of files grows, and not the size of each.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder, self._buffered_bytes, self.rows = folder, 0, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._buffers = [bytearray() for _ in range(max(_FILES_MIN, min(_FILES_MAX, rows // _ROWS_A_FILE)))]

    def add_row(self, row: Row, group: int | None = None) -> None:
        """Keep a row with all others of its group, or of its letter where no group is given."""
        kind, topic, partition, offset = row[:4]
        if group is None:
            # The constant spreads neighbouring offsets over all files.
            group = offset * 0x9E3779B97F4A7C15 + partition * 31 + topic * 1_000_003 >> 8
        data = PACK[kind](*row)
        self._buffers[group % len(self._buffers)] += data
        self._buffered_bytes += len(data)
        self.rows += 1
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        for n, buffer in enumerate(self._buffers):
            if buffer:
                with self._file(n).open("ab") as file:
                    file.write(buffer)
                buffer.clear()
        self._buffered_bytes = 0

    def files(self) -> Iterator[Iterator[Row]]:
        """Read the rows file by file; each may be gone through once."""
        self._flush()
        for n in range(len(self._buffers)):
            file = self._file(n)
            yield unpack_rows(file.read_bytes() if file.exists() else b"")

    def _file(self, n: int) -> Path:
        return self._folder / f"{n:04d}"
