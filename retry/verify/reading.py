"""Records → rows. Total: what cannot be read is a finding, and stops nothing."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from retry import entry as entries
from retry.control.search import place
from retry.entry import END_KEY
from retry.errors import EntryUnreadable
from retry.gather import Lane
from retry.sources import headers as names
from retry.sources.dead_letter import integer
from retry.table.base import CONTROL
from retry.verify.findings import Findings
from retry.verify.rows import JUDGED, ORDERED, PARKED, UNKNOWN, Kind, Row, Words
from retry.verify.spill import Spill

_DIGITS_MAX = 10
_TIME_DIGITS_MAX = 18
_NAMELESS_MAX = 100_000
_WANTED = {names.ID: 0, names.ATTEMPT: 1, names.SOURCE: 2, names.DUE_MS: 3, names.PARKED_REASON: 4}
_APPEND = 2


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


class Nameless(NamedTuple):
    """A delivery that is so large that it has no `retry-source`: the lineage and the attempt have to say whose it is."""

    lineage: int
    attempt: int


_outcome = msgspec.json.Decoder(Told).decode


class Reading:
    """Takes in records, of each kind by a method of its own.

    Args:
      judged: by topic and partition, offsets before which a record is judged.

    Attributes:
      targets: topics that outcomes name.
      outcome_first_ms: by partition of the outcomes topic, when its first letter was taken in.
      sent_first_ms: by topic and partition, when the first record was appended.
      letter_stop: by dead-letter topic and partition, the offset behind the last that has an outcome.
      controls: what an operator asked for, by partition and key.
      nameless: deliveries without `retry-source`.
    """

    def __init__(self, words: Words, spill: Spill, found: Findings, judged: dict[tuple[str, int], int]) -> None:
        self.words, self._spill, self._found, self._judged = words, spill, found, judged
        self.targets: set[str] = set()
        self.outcome_first_ms: dict[int, int] = {}
        self.sent_first_ms: dict[tuple[str, int], int] = {}
        self.letter_stop: dict[tuple[str, int], int] = {}
        self.controls: dict[tuple[int, bytes], bytes] = {}
        self.nameless: dict[Nameless, list[tuple[int, ...]]] = defaultdict(list)
        self.committed: dict[tuple[str, int], int] = defaultdict(int)

    def judge(self, before: dict[tuple[str, int], int]) -> None:
        """Say which records are judged: by topic and partition, those before an offset."""
        self._judged = before

    def undone(self) -> int:
        """How many records only a read_uncommitted reader sees."""
        return sum(max(0, -more) for more in self.committed.values())

    def outcome(self, message: Any) -> None:
        """A record of the outcomes topic."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self.committed[topic, partition] += 1
        flags = self._flags(topic, partition, offset)
        try:
            told = _outcome(message.value() or b"")
            letter = place(told.source)
            due_ms = told.taken_ms if told.due_ms is None else told.due_ms
            self._tell(told, letter, flags | (PARKED if told.decision == "park" else 0), (topic, partition, offset), due_ms)
        except (ValueError, struct.error, msgspec.MsgspecError) as error:
            self._strange(flags, f"{topic}/{partition}/{offset}: no outcome: {error}")

    def _tell(self, told: Told, letter: Any, flags: int, at: tuple[str, int, int], due_ms: int) -> None:
        words, source = self.words, (letter.topic, letter.partition)
        lane = Lane(told.team, told.topic, told.target)
        if told.target not in self.targets or entries.lane(*lane) not in words.known:
            self.targets.add(told.target)
            words.known[entries.lane(*lane)] = words.known[entries.lane(*lane, ordered=True)] = lane
        self.outcome_first_ms.setdefault(at[1], told.taken_ms)
        self.letter_stop[source] = max(self.letter_stop.get(source, 0), letter.offset + 1)
        attempt = told.attempt - 1 if flags & PARKED else told.attempt
        self._spill.add((
            words.topic(letter.topic), letter.partition, letter.offset, Kind.OUTCOME, flags, words.topic(at[0]), at[1], at[2],
            due_ms, told.taken_ms, _hash(told.id.encode()), attempt, words.topic(told.target),
        ))  # fmt: skip

    def change(self, message: Any) -> None:
        """A record of the changelog."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key, value = message.key() or b"", message.value()
        flags = self._flags(topic, partition, offset)
        if key[:1] == CONTROL:
            self.controls[partition, key] = value or b""
            return
        try:
            source = entries.source(key) if key < END_KEY else None
        except EntryUnreadable:
            source = None
        if source is None:
            if value is not None:
                self._strange(flags, f"{topic}/{partition}/{offset}: neither entry nor control")
            return
        lane, order, number = key[: entries.LANE_BYTES], UNKNOWN, source.due_at_ms
        if key[0] == entries.ORDERED:
            flags, order = flags | ORDERED, int.from_bytes(entries.order_of(key), "big", signed=True)
        if value is not None and lane not in self.words.known:
            self._learn(lane, source.topic, value)
        self._spill.add((
            self.words.topic(source.topic), source.partition, source.offset, Kind.DELETE if value is None else Kind.PUT, flags,
            self.words.topic(topic), partition, offset, number, order, _hash(key), _hash(value or b""), self.words.lane(lane),
        ))  # fmt: skip

    def _learn(self, lane: bytes, topic: str, envelope: bytes) -> None:
        try:
            entry = entries.decode(envelope)
        except EntryUnreadable:
            return
        self.words.known[lane] = Lane(entry.team, topic, entry.destination)

    def delivery(self, message: Any) -> None:
        """A committed record of a retry or parking topic."""
        self.committed[message.topic(), message.partition()] += 1
        row = self._delivery(message, Kind.SENT)
        if row is not None:
            self._spill.add(row)

    def count(self, message: Any) -> None:
        """Any record as a read_uncommitted reader sees it."""
        self.committed[message.topic(), message.partition()] -= 1

    def seen(self, message: Any) -> None:
        """A record of a retry or parking topic as a read_uncommitted reader sees it."""
        self.count(message)
        row = self._delivery(message, Kind.SEEN)
        if row is not None:
            self._spill.add(row)

    def _delivery(self, message: Any, kind: Kind) -> tuple[int, ...] | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        stamped, stamp = message.timestamp()
        stamp = stamp if stamped == _APPEND else UNKNOWN
        self.sent_first_ms.setdefault((topic, partition), stamp)
        try:
            headers = message.headers()
        except SystemError:
            return None  # A name that is no UTF-8: the service cannot have written it.
        ours: list[bytes | None] = [None] * len(_WANTED)
        for name, value in headers or ():
            if name in _WANTED:
                ours[_WANTED[name]] = value
        id_, attempt, source, due_ms, parked = ours
        if id_ is None or attempt is None:
            return None
        flags = self._flags(topic, partition, offset) | (PARKED if parked else 0)
        count, due = integer(attempt, _DIGITS_MAX), integer(due_ms, _TIME_DIGITS_MAX)
        at = (self.words.topic(topic), partition, offset, UNKNOWN if due is None else due, stamp, _hash(id_), count or 0, 0)
        if source is None:
            if kind is Kind.SENT:
                self._keep_nameless(Nameless(_hash(id_), count or 0), (kind, flags, *at))
            return None
        try:
            letter = place(source.decode())
        except ValueError:
            self._strange(flags, f"{topic}/{partition}/{offset}: no letter can be {source[:100]!r}")
            return None
        return (self.words.topic(letter.topic), letter.partition, letter.offset, kind, flags, *at)

    def _keep_nameless(self, whose: Nameless, row: tuple[int, ...]) -> None:
        if len(self.nameless) < _NAMELESS_MAX:
            self.nameless[whose].append(row)
        else:
            self._found.unjudged["deliveries without retry-source: too many"] += 1

    def name(self, outcome: Row) -> None:
        """Give a nameless delivery to the letter that an outcome tells of, if it is that one's."""
        if not self.nameless:
            return
        found = self.nameless.get(Nameless(outcome.name, outcome.value))
        if found:
            self._spill.add((outcome.topic, outcome.partition, outcome.offset, *found.pop()))

    def end_nameless(self, whole: bool) -> None:
        """What is left goes back to no letter that an outcome tells of; `whole`: no outcome was ever deleted."""
        left_over = sum(map(len, self.nameless.values()))
        if left_over and not whole:
            self._found.unjudged["origin of deliveries without retry-source: outcomes of that time are not kept"] += left_over
            return
        for left in self.nameless.values():
            for _kind, flags, *at in left:
                self._strange(flags, f"{self.words.topics[at[0]]}/{at[1]}/{at[2]}: no outcome has its retry-id and retry-attempt")

    def letter(self, message: Any, positions: dict[tuple[str, int], int]) -> None:
        """A record of a dead-letter topic; `positions` are where its group goes on."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        flags = JUDGED if offset < positions.get((topic, partition), 0) else 0
        at = self.words.topic(topic), partition, offset
        self._spill.add((*at, Kind.LETTER, flags, *at, 0, 0, 0, 0, 0))

    def stored(self, table: int, partition: int, key: bytes, envelope: bytes) -> None:
        """A row of a table on disk."""
        source = entries.source(key)
        self._spill.add((
            self.words.topic(source.topic), source.partition, source.offset, Kind.STORED, 0, 0, partition, 0,
            table, UNKNOWN, _hash(key), _hash(envelope), 0,
        ))  # fmt: skip

    def _flags(self, topic: str, partition: int, offset: int) -> int:
        return JUDGED if offset < self._judged.get((topic, partition), 0) else 0

    def _strange(self, flags: int, says: str) -> None:
        if flags & JUDGED:
            self._found.add("phantom", says)


def _hash(data: bytes) -> int:
    return xxh3_64_intdigest(data)
