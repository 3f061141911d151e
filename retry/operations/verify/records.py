"""Records → rows. What cannot be read is passed over, counted and named, and stops nothing."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from retry.delay_queue import blocks, entry_keys, envelopes, returned_offsets
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.entry_keys import END_KEY, HELD_LANES, Lane, Source
from retry.delay_queue.ramp_records import FAILED, SENDING
from retry.delay_queue.returned_offsets import RETURNED, ParkedPlace
from retry.delay_queue.table import changelog_records
from retry.delay_queue.table.interface import CONTROL
from retry.errors import EntryNewer, EntryUnreadable
from retry.operations.explain.search import parse_location
from retry.operations.verify import rows
from retry.operations.verify.context import Findings
from retry.operations.verify.rows import UNKNOWN, EntryRow, LetterRow, OutcomeRow, Returned, RowKind, TableRow
from retry.record import PartitionId
from retry.telemetry import offset_records, outcomes
from retry.telemetry.outcomes import Outcome
from retry.telemetry.unreadable_records import UNREADABLE

# Which records of parking topics were returned, and so are no place where their letter is any more: from the changelog.

class ReturnedLetters:
    """Takes in bitmaps; each holds all that those before it did."""

    def __init__(self) -> None:
        self._newest: dict[bytes, bytes] = {}
        self._in_scope: dict[bytes, bytes] = {}

    def add_bitmap(self, block: bytes, bitmap: bytes, in_scope: bool) -> None:
        """Take in one record of the changelog; raises `EntryUnreadable` where it is no bitmap."""
        returned_offsets.check(bitmap)
        self._newest[block] = bitmap
        if in_scope:
            self._in_scope[block] = bitmap

    def find_return_state(self, topic_id: str, partition: int, offset: int) -> int:
        """Whether what rests there was returned, as a number of `Returned`."""
        block = ParkedPlace(returned_offsets.hash_topic_id(topic_id), partition, offset).block()
        if not returned_offsets.is_offset_returned(self._newest.get(block), offset):
            return Returned.NO
        return Returned.YES if returned_offsets.is_offset_returned(self._in_scope.get(block), offset) else Returned.OUT_OF_SCOPE


_VERSION_MAX = (1 << 63) - 1

hash_of = xxh3_64_intdigest


class RecordPlace(NamedTuple):
    """The place of a changelog record, its topic by number, and when the broker got it."""

    topic: int
    partition: int
    offset: int
    appended_ms: int


class RecordReader:
    """A reader that turns records into rows, with a method for each kind of record.

    Attributes:
      scope_ends: by topic and partition, the offset before which records are in scope.
      outcome_first_ms: by partition of the outcomes topic, when its first letter was taken in.
      letter_stop: by dead-letter topic and partition, the offset behind the last that has an outcome.
      entry_sources: topics that entries with a name came from; what lies there is no letter.
      controls: pauses and the like that operators have set, by partition and key.
      committed: by topic and partition, how many records more a read_committed reader has seen than the other.
    """

    def __init__(self, names: rows.NameTable, spill: rows.Spill, findings: Findings) -> None:
        self.names, self.spill, self.findings = names, spill, findings
        self.scope_ends: dict[PartitionId, int] = {}
        self.targets: set[str] = set()
        self._lanes: set[tuple[str, str, str]] = set()
        self.outcome_first_ms: dict[int, int] = {}
        self.letter_stop: dict[PartitionId, int] = {}
        self.entry_sources: set[str] = set()
        self.controls: dict[tuple[int, bytes], bytes] = {}
        self.committed: dict[PartitionId, int] = defaultdict(int)
        self.returned = ReturnedLetters()

    def count_aborted(self) -> int:
        """Count the records that only a read_uncommitted reader sees."""
        return sum(max(0, -more) for more in self.committed.values())

    def in_scope(self, topic: str, partition: int, offset: int) -> bool:
        """Whether everything that was committed with a record can be seen."""
        return offset < self.scope_ends.get((topic, partition), 0)

    def report_phantom(self, in_scope: bool, sentence: str) -> None:
        """Report a record that goes back to no letter, if it is in scope."""
        if in_scope:
            self.findings.add_finding("phantom", sentence)

    def add_uncommitted(self, message: Any) -> None:
        """Count any record as a read_uncommitted reader sees it."""
        self.committed[message.topic(), message.partition()] -= 1

    def add_outcome(self, message: Any) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self.committed[topic, partition] += 1
        if message.key() == offset_records.KEY:
            return
        in_scope = self.in_scope(topic, partition, offset)
        record = self.names.topic(topic), partition, offset
        try:
            letters = outcomes.read(message.value() or b"")
        except ValueError as error:
            UNREADABLE.pass_over(topic, partition, offset, error)
            return
        for outcome in letters:
            self._outcome_of_letter(outcome, in_scope, record)

    def _outcome_of_letter(self, outcome: Outcome, in_scope: bool, record: tuple[int, int, int]) -> None:
        letter, parked = parse_location(outcome["source"]), outcome["decision"] == "park"
        self._note_lane(outcome)
        self.outcome_first_ms.setdefault(record[1], outcome["taken_ms"])
        if outcome["action"] is not None:
            # Of a letter that was taken in before; what was done with it is told by its entries.
            return
        self.spill.add_row(
            OutcomeRow(
                RowKind.OUTCOME, self.names.topic(letter.topic), letter.partition, letter.offset, in_scope, *record,
                due_ms=outcome["taken_ms"] if outcome["due_ms"] is None else outcome["due_ms"], taken_ms=outcome["taken_ms"],
                lineage_hash=hash_of(outcome["id"].encode()), attempt=max(0, outcome["attempt"] - parked),
                target=self.names.topic(outcome["target"]),
            )
        )  # fmt: skip
        source = letter.topic, letter.partition
        self.letter_stop[source] = max(self.letter_stop.get(source, 0), letter.offset + 1)

    def _note_lane(self, outcome: Outcome) -> None:
        parts = outcome["team"], outcome["topic"], outcome["target"]
        if parts not in self._lanes:
            self._lanes.add(parts)
            self.targets.add(outcome["target"])
            for ordered in (False, True):
                self.names.lane_parts[entry_keys.lane(*parts, ordered)] = Lane(*parts)

    def read_change(self, message: Any) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self.committed[topic, partition] += 1
        key, value = message.key() or b"", message.value()
        if key[:1] == CONTROL:
            self._control(message, key, value)
            return
        if key[:1] in (SLICE, SENDING, FAILED):
            # Letters that an action is about; what it did to them is told by their entries.
            return
        in_scope = self.in_scope(topic, partition, offset)
        record = RecordPlace(self.names.topic(topic), partition, offset, message.timestamp()[1])
        try:
            if key[:1] == RETURNED:
                self.returned.add_bitmap(key, value or b"", in_scope)
                return
            entries = [(*row, entry_keys.read_source(row[0])) for row in blocks.read_rows(key, value)] if key < END_KEY else []
        except EntryUnreadable:
            entries = []
        if not entries and value is not None:
            UNREADABLE.pass_over(topic, partition, offset, "neither entry nor control")
        for row in entries:
            self._change_of_entry(*row, in_scope=in_scope, at=record, in_block=blocks.is_block(key))

    def _change_of_entry(
        self, key: bytes, value: bytes | None, source: Source, *, in_scope: bool, at: RecordPlace, in_block: bool
    ) -> None:
        lane, ordering_key, version = key[: entry_keys.LANE_BYTES], UNKNOWN, UNKNOWN
        if value is not None and lane not in self.names.lane_parts:
            self._read_lane(lane, source.topic, value)
        letter = self.names.topic(source.topic), source.partition, source.offset
        if key[0] == entry_keys.ORDERED:
            ordering_key = int.from_bytes(entry_keys.order_of(key), "big", signed=True)
        elif key[0] == entry_keys.NAMED:
            self.entry_sources.add(source.topic)
            letter, version = self._name_as_letter(key), min(entry_keys.read_version(key), _VERSION_MAX)
        self.spill.add_row(
            EntryRow(
                RowKind.DELETE if value is None else RowKind.PUT, *letter, in_scope, *at[:3],
                due_ms=source.due_at_ms, ordering_key=ordering_key, version=version, key_hash=hash_of(key),
                envelope_hash=hash_of(value or b""), lane=self.names.lane(lane), in_block=in_block, appended_ms=at.appended_ms,
            )
        )  # fmt: skip

    def _control(self, message: Any, key: bytes, value: bytes | None) -> None:
        try:
            unreadable = [] if value is None else changelog_records.select_readable_rows([(key, value)]).unreadable
        except EntryNewer:
            unreadable = []
        for row in unreadable:
            UNREADABLE.pass_over(message.topic(), message.partition(), message.offset(), row.why)
        if not unreadable:
            self.controls[message.partition(), key] = value or b""

    def _name_as_letter(self, key: bytes) -> tuple[int, int, int]:
        return self.names.topic(rows.NAMES), 0, hash_of(entry_keys.name_of(key))

    def _read_lane(self, lane: bytes, topic: str, envelope: bytes) -> None:
        if lane in HELD_LANES:
            # Of several teams, topics and destinations.
            return
        try:
            entry = envelopes.decode_routing(envelope)
        except EntryUnreadable:
            return
        self.names.lane_parts[lane] = Lane(entry.team, topic, entry.destination)

    def dead_letter(self, message: Any, positions: dict[PartitionId, int]) -> None:
        """Take in a record of a dead-letter topic; `positions`: where intake goes on."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        in_scope = offset < positions.get((topic, partition), 0)
        self.spill.add_row(LetterRow(RowKind.LETTER, self.names.topic(topic), partition, offset, in_scope))

    def add_table_row(self, table: int, partition: int, key: bytes, envelope: bytes) -> None:
        """Take in a row of a table on disk; raises `EntryUnreadable` where its key is not that of an entry."""
        source = entry_keys.read_source(key)
        letter = self.names.topic(source.topic), source.partition, source.offset
        if key[0] == entry_keys.NAMED:
            letter = self._name_as_letter(key)
        self.spill.add_row(TableRow(RowKind.TABLE, *letter, partition, table, hash_of(key), hash_of(envelope)))
