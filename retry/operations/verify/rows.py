"""What one record says of one letter, in 64 bytes, so that a million letters fit a temporary directory and no memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from retry.delay_queue.lane import Lane

_ROW = struct.Struct("<HIQBBHIQqqQQH")
ROW_BYTES = _ROW.size
pack = _ROW.pack
JUDGED, PARKED, ORDERED = 1, 2, 4
UNKNOWN = -1
# In place of a topic, in rows of entries with a name: no topic is called so.
NAMES = ""
_NAMES_MAX = 1 << 16


class Kind(IntEnum):
    """What a row was made from."""

    LETTER = 0
    OUTCOME = 1
    PUT = 2
    DELETE = 3
    SENT = 4
    SEEN = 5
    STORED = 6


class Row(NamedTuple):
    """What one record says of one letter.

    Attributes:
      topic, partition, offset: the letter; topics are numbers of `Words`. Of an entry with a name: NAMES, 0, hash of the name.
      kind: a `Kind`; SEEN is a delivery as a read_uncommitted reader sees it, STORED a row of a table on disk.
      flags: JUDGED, where everything that was committed with it can be seen; PARKED; ORDERED.
      at_topic, at_partition, at_offset: the record itself.
      number: OUTCOME, PUT, DELETE, SENT: due time in ms, or UNKNOWN. STORED: number of the table.
      stamp: OUTCOME: when it was taken in. SENT: when the broker appended it, or UNKNOWN. ORDERED: hash of the record key. With
        a name: its version.
      name: PUT, DELETE, STORED: hash of the entry's key. OUTCOME, SENT: hash of the lineage.
      value: PUT, STORED: hash of the envelope. OUTCOME, SENT: number of the attempt that the record has as a header.
      extra: OUTCOME: number of the target. PUT, DELETE: number of the lane.
    """

    topic: int
    partition: int
    offset: int
    kind: int
    flags: int
    at_topic: int
    at_partition: int
    at_offset: int
    number: int
    stamp: int
    name: int
    value: int
    extra: int

    @property
    def judged(self) -> bool:
        """Whether everything that was committed with it can be seen."""
        return bool(self.flags & JUDGED)


def unpacked(data: bytes) -> Iterator[Row]:
    """The rows that were packed one behind the other."""
    return map(Row._make, _ROW.iter_unpack(data))


class Words:
    """Names of topics and lanes by number. Beyond 65,535 of them, which only a stranger would write, all have the last."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.lanes: list[bytes] = []
        self.known: dict[bytes, Lane] = {}
        self._topics: dict[str, int] = {}
        self._lanes: dict[bytes, int] = {}

    def topic(self, name: str) -> int:
        """The number of a topic."""
        found = self._topics.get(name)
        return _numbered(self.topics, self._topics, name) if found is None else found

    def lane(self, lane: bytes) -> int:
        """The number of a lane."""
        found = self._lanes.get(lane)
        return _numbered(self.lanes, self._lanes, lane) if found is None else found

    def whose(self, row: Row) -> Lane | None:
        """Whose lane an entry of the changelog is in; None where nothing tells."""
        return self.known.get(self.lanes[row.extra])

    def letter(self, row: Row) -> str:
        """The letter, as `retry-source` names it."""
        return f"{self.topics[row.topic]}/{row.partition}/{row.offset}"

    def place(self, row: Row) -> str:
        """The record that a row was made from."""
        return f"{self.topics[row.at_topic]}/{row.at_partition}/{row.at_offset}"


def _numbered(names: list[Any], numbers: dict[Any, int], name: Any) -> int:
    """The number of a new name; of those that come when no number is left, the last one."""
    found = numbers[name] = min(len(names), _NAMES_MAX - 1)
    if len(names) < _NAMES_MAX:
        names.append(name)
    return found
