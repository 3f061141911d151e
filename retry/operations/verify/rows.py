"""What one record says about one letter, in 81 bytes at most: a million letters fit a temporary directory and no memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from retry.delay_queue.entry_keys import HELD_LANES
from retry.delay_queue.lane import Lane

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
      lane: number of the lane.
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
    (LetterRow, struct.Struct("<BHIQ?")),
    (OutcomeRow, struct.Struct("<BHIQ?HIQqqQQH")),
    _ENTRY,
    _ENTRY,
    _DELIVERY,
    _DELIVERY,
    (TableRow, struct.Struct("<BHIQIIQQ")),
)
# By kind, what turns the fields of a row into bytes.
PACK = tuple(form.pack for _, form in _FORMATS)
_UNPACK = tuple((row_type._make, form.unpack_from, form.size) for row_type, form in _FORMATS)


def unpack_rows(data: bytes) -> Iterator[Row]:
    """The rows that were packed one behind the other."""
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
        """Team, topic and destination of an entry; None where no record says."""
        return self.lane_parts.get(self.lanes[row.lane])

    def is_held(self, row: EntryRow) -> bool:
        """Whether it lies where entries do that workers could not open."""
        return self.lanes[row.lane] in HELD_LANES

    def format_letter(self, row: Row) -> str:
        """The letter, as `retry-source` names it."""
        return f"{self.topics[row.topic]}/{row.partition}/{row.offset}"

    def record(self, row: OutcomeRow | EntryRow | DeliveryRow) -> str:
        """Return the place of the record that a row was made from, as `topic/partition/offset`."""
        return f"{self.topics[row.at_topic]}/{row.at_partition}/{row.at_offset}"
