"""Records → rows. Total: what cannot be read is a finding, and stops nothing."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from retry.delay_queue import entry as entries
from retry.operations.explain.search import place
from retry.delay_queue.entry import END_KEY
from retry.errors import EntryUnreadable
from retry.delay_queue.lane import Lane
from retry.delay_queue.table.interface import CONTROL
from retry.telemetry import offset_records
from retry.operations.verify.findings import Findings
from retry.operations.verify.rows import JUDGED, NAMES, ORDERED, PARKED, UNKNOWN, Kind, Words
from retry.operations.verify.spill_files import Spill

_VERSION_MAX = (1 << 63) - 1


class Told(msgspec.Struct, frozen=True, gc=False):
    """The part of an outcome that is looked at."""

    id: str
    source: str
    team: str
    topic: str
    attempt: int
    taken_ms: int
    decision: str
    due_ms: int | None
    target: str


_outcome = msgspec.json.Decoder(Told).decode


class Reading:
    """Takes in records, of each kind by a method of its own.

    Attributes:
      judged: by topic and partition, the offset before which records are judged.
      targets: topics that outcomes name.
      outcome_first_ms: by partition of the outcomes topic, when its first letter was taken in.
      letter_stop: by dead-letter topic and partition, the offset behind the last that has an outcome.
      by_doors: topics that entries with a name came from; what lies there is no letter.
      controls: what an operator asked for, by partition and key.
      committed: by topic and partition, how many records more a read_committed reader has seen than the other.
    """

    def __init__(self, words: Words, spill: Spill, found: Findings) -> None:
        self.words, self.spill, self.found = words, spill, found
        self.judged: dict[tuple[str, int], int] = {}
        self.targets: set[str] = set()
        self.outcome_first_ms: dict[int, int] = {}
        self.letter_stop: dict[tuple[str, int], int] = {}
        self.by_doors: set[str] = set()
        self.controls: dict[tuple[int, bytes], bytes] = {}
        self.committed: dict[tuple[str, int], int] = defaultdict(int)

    def undone(self) -> int:
        """How many records only a read_uncommitted reader sees."""
        return sum(max(0, -more) for more in self.committed.values())

    def count(self, message: Any) -> None:
        """Any record as a read_uncommitted reader sees it."""
        self.committed[message.topic(), message.partition()] -= 1

    def outcome(self, message: Any) -> None:
        """A record of the outcomes topic."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self.committed[topic, partition] += 1
        if message.key() == offset_records.KEY:
            return
        flags = self.flags(topic, partition, offset)
        try:
            told = _outcome(message.value() or b"")
            letter = place(told.source)
            due_ms = told.taken_ms if told.due_ms is None else told.due_ms
            self._tell(told, letter, flags | (PARKED if told.decision == "park" else 0), (topic, partition, offset), due_ms)
        except (ValueError, struct.error, msgspec.MsgspecError) as error:
            self.strange(flags, f"{topic}/{partition}/{offset}: no outcome: {error}")

    def _tell(self, told: Told, letter: Any, flags: int, at: tuple[str, int, int], due_ms: int) -> None:
        words, source = self.words, (letter.topic, letter.partition)
        lane = Lane(told.team, told.topic, told.target)
        if told.target not in self.targets or entries.lane(*lane) not in words.known:
            self.targets.add(told.target)
            words.known[entries.lane(*lane)] = words.known[entries.lane(*lane, ordered=True)] = lane
        self.outcome_first_ms.setdefault(at[1], told.taken_ms)
        self.letter_stop[source] = max(self.letter_stop.get(source, 0), letter.offset + 1)
        attempt = told.attempt - 1 if flags & PARKED else told.attempt
        self.spill.add((
            words.topic(letter.topic), letter.partition, letter.offset, Kind.OUTCOME, flags, words.topic(at[0]), at[1], at[2],
            due_ms, told.taken_ms, hash_of(told.id.encode()), attempt, words.topic(told.target),
        ))  # fmt: skip

    def change(self, message: Any) -> None:
        """A record of the changelog."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self.committed[topic, partition] += 1
        key, value = message.key() or b"", message.value()
        flags = self.flags(topic, partition, offset)
        if key[:1] == CONTROL:
            self.controls[partition, key] = value or b""
            return
        try:
            source = entries.source(key) if key < END_KEY else None
        except EntryUnreadable:
            source = None
        if source is None:
            if value is not None:
                self.strange(flags, f"{topic}/{partition}/{offset}: neither entry nor control")
            return
        lane, order, number = key[: entries.LANE_BYTES], UNKNOWN, source.due_at_ms
        if key[0] == entries.ORDERED:
            flags, order = flags | ORDERED, int.from_bytes(entries.order_of(key), "big", signed=True)
        if value is not None and lane not in self.words.known:
            self._learn(lane, source.topic, value)
        whose = self.words.topic(source.topic), source.partition, source.offset
        if key[0] == entries.NAMED:
            self.by_doors.add(source.topic)
            whose, order = self._of_name(key), _version(key)
        self.spill.add((
            *whose, Kind.DELETE if value is None else Kind.PUT, flags,
            self.words.topic(topic), partition, offset, number, order, hash_of(key), hash_of(value or b""), self.words.lane(lane),
        ))  # fmt: skip

    def _of_name(self, key: bytes) -> tuple[int, int, int]:
        return self.words.topic(NAMES), 0, hash_of(entries.name_of(key))

    def _learn(self, lane: bytes, topic: str, envelope: bytes) -> None:
        try:
            entry = entries.decode(envelope)
        except EntryUnreadable:
            return
        self.words.known[lane] = Lane(entry.team, topic, entry.destination)

    def letter(self, message: Any, positions: dict[tuple[str, int], int]) -> None:
        """A record of a dead-letter topic; `positions` are where its group goes on."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        flags = JUDGED if offset < positions.get((topic, partition), 0) else 0
        at = self.words.topic(topic), partition, offset
        self.spill.add((*at, Kind.LETTER, flags, *at, 0, 0, 0, 0, 0))

    def stored(self, table: int, partition: int, key: bytes, envelope: bytes) -> None:
        """A row of a table on disk."""
        source = entries.source(key)
        whose = self.words.topic(source.topic), source.partition, source.offset
        self.spill.add((
            *(self._of_name(key) if key[0] == entries.NAMED else whose), Kind.STORED, 0, 0, partition, 0,
            table, UNKNOWN, hash_of(key), hash_of(envelope), 0,
        ))  # fmt: skip

    def flags(self, topic: str, partition: int, offset: int) -> int:
        """JUDGED, where it is."""
        return JUDGED if offset < self.judged.get((topic, partition), 0) else 0

    def strange(self, flags: int, says: str) -> None:
        """A record that goes back to no letter, whatever the others say."""
        if flags & JUDGED:
            self.found.add("phantom", says)


def _version(key: bytes) -> int:
    return min(entries.version_of(key), _VERSION_MAX)


def hash_of(data: bytes) -> int:
    """64 bits of it."""
    return xxh3_64_intdigest(data)
