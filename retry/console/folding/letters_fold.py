"""Records of the changelog, parking topics and discarded letters → letters that wait or rest, pauses, actions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from retry import clock
from retry.console.folding.attempts import KEPT_MS, Attempts, LeftLetter
from retry.console.folding.letter_record import (
    LetterRecord,
    LogPlace,
    build_resting_place,
    build_resting_row,
    build_waiting_place,
    build_waiting_row,
)
from retry.console.folding.letter_table import Cells, LetterTable, StoredLetter
from retry.delay_queue import blocks, entry_keys, returned_offsets
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.envelopes import Unopened
from retry.delay_queue.ramp_records import FAILED
from retry.delay_queue.returned_offsets import BLOCK_BYTES, OFFSETS_A_BLOCK, RETURNED, ParkedPlace
from retry.delay_queue.table import changelog_records
from retry.delay_queue.table.interface import CONTROL
from retry.errors import EntryUnreadable
from retry.kafka.interface import Message
from retry.operations.found_letter import make_parked_letter, make_waiting_letter
from retry.policies.registry import Registry
from retry.telemetry.unreadable_records import UNREADABLE

# Records of parking topics, and of discarded letters → letters that rest; less those that were returned, or deleted by Kafka.

_FIRST_DELETED = "log = ? AND log_partition = ? AND log_offset < ?"


class ReturnedLetters:
    """Which records rest no more; all bitmaps are in memory, at a kilobyte for 8,192 letters."""

    def __init__(self, connection: sqlite3.Connection, numbers: dict[bytes, int]) -> None:
        self._connection, self._numbers = connection, numbers
        self._bitmaps: dict[bytes, bytes] = dict(connection.execute("SELECT block, bitmap FROM returned"))

    def is_letter_returned(self, topic_hash: bytes, partition: int, offset: int) -> bool:
        return returned_offsets.is_offset_returned(self._bitmaps.get(ParkedPlace(topic_hash, partition, offset).block()), offset)

    def mark(self, block: bytes, bitmap: bytes | None) -> Iterator[str]:
        """Take in a bitmap; gives the places of the letters that are returned since."""
        before = self._bitmaps.pop(block, None)
        if bitmap is None:
            self._connection.execute("DELETE FROM returned WHERE block = ?", (block,))
            return
        returned_offsets.check(bitmap)
        self._bitmaps[block] = bitmap
        self._connection.execute("INSERT OR REPLACE INTO returned VALUES (?, ?)", (block, bitmap))
        number = self._numbers.get(block[1:17])
        if number is not None:
            partition, first = int.from_bytes(block[17:21], "big"), int.from_bytes(block[21:BLOCK_BYTES], "big") * OFFSETS_A_BLOCK
            is_returned = returned_offsets.is_offset_returned
            for offset in range(first, first + OFFSETS_A_BLOCK):
                if is_returned(bitmap, offset) and not is_returned(before, offset):
                    yield build_resting_place(LogPlace(number, partition, offset))


class RestingFold:
    """The fold of one topic where parked or discarded letters rest; `topic_hash` is the hash of its id."""

    def __init__(
        self, letters: LetterTable, returned: ReturnedLetters, number: int, topic_hash: bytes, registry: Callable[[], Registry],
        *, is_discarded: bool,
    ) -> None:
        self._letters, self._returned = letters, returned
        self._number, self._hash, self._registry, self._is_discarded = number, topic_hash, registry, is_discarded

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        changes = {}
        for message in messages:
            offset = message.offset() or 0
            if not self._returned.is_letter_returned(self._hash, partition, offset):
                log = LogPlace(self._number, partition, offset)
                found = make_parked_letter(message, self._registry(), discarded=self._is_discarded)
                self._letters.note_long_headers(found.headers)
                changes[build_resting_place(log)] = build_resting_row(found, log)
        self._letters.apply_changes(changes)

    def drop_before(self, partition: int, first: int) -> None:
        """Drop the letters before an offset of a partition, whose records Kafka has deleted."""
        self._letters.drop_where(_FIRST_DELETED, (self._number, partition, first))


# Records of the changelog → letters that wait, pauses and actions, and which parked letters were returned.

class _Ended(NamedTuple):
    """A null on the changelog: the entry of this key waits no more. `record` is its letter, if that came earlier in the batch."""

    key: bytes
    at_ms: int
    record: LetterRecord | None


class ChangelogFold:
    """The fold of the changelog: waiting letters, controls, returned letters and marks; what goes to `resting` is not sent."""

    def __init__(
        self, connection: sqlite3.Connection, cells: Cells, letters: LetterTable, returned: ReturnedLetters,
        attempts: Attempts, log: int, resting: Collection[str], registry: Callable[[], Registry],
    ) -> None:
        self._connection, self._cells, self._letters, self._returned = connection, cells, letters, returned
        self._attempts, self._resting = attempts, resting
        self._log, self._registry = log, registry

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        changes: dict[str, LetterRecord | None] = {}
        ended: dict[str, _Ended] = {}
        for message in messages:
            key, value = message.key() or b"", message.value()
            try:
                rows, unreadable = changelog_records.select_readable_rows([(key, value)])
                if unreadable:
                    UNREADABLE.pass_over(message.topic(), partition, message.offset(), unreadable[0].why)
                    continue
                ((key, value),) = rows or ((b"", None),)
                if key[:1] == CONTROL:
                    self._control(partition, key, value)
                elif key[:1] == RETURNED:
                    changes.update(dict.fromkeys(self._returned.mark(key, value)))
                elif key[:1] == FAILED:
                    self._note_failed(key, value)
                elif key[:1] not in changelog_records.OF_ACTIONS and key:
                    log, block = LogPlace(self._log, partition, message.offset() or 0), key if blocks.is_block(key) else b""
                    for entry, envelope in blocks.list_rows(key, value):
                        place = build_waiting_place(partition, entry, block)
                        if envelope is None:
                            ended[place] = _Ended(entry, message.timestamp()[1], changes.get(place))
                        changes[place] = None if envelope is None else self._decode_letter(place, log, entry, envelope)
            except EntryUnreadable as error:
                UNREADABLE.pass_over(message.topic(), partition, message.offset(), error)
        gone = {each.place: each for each in self._letters.apply_changes(changes)}
        left = ((each, gone.get(place)) for place, each in ended.items() if changes[place] is None)
        self._attempts.put_left([found for each in left if (found := self._find_left(*each)) is not None])

    def _decode_letter(self, place: str, log: LogPlace, key: bytes, envelope: bytes) -> LetterRecord:
        entry = PLAIN.decode_to_show(key, envelope)
        if isinstance(entry, Unopened) and entry.is_foreign:
            raise EntryUnreadable(entry.why)
        found = make_waiting_letter(entry_keys.read_source(key), entry, self._registry(), "")
        self._letters.note_long_headers(found.headers)
        return build_waiting_row(found, key, place, log)

    def _control(self, partition: int, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._connection.execute("DELETE FROM controls WHERE shard = ? AND key = ?", (partition, key))
        else:
            self._connection.execute("INSERT OR REPLACE INTO controls VALUES (?, ?, ?)", (partition, key, value))

    def _note_failed(self, mark: bytes, value: bytes | None) -> None:
        statement = "DELETE FROM ramp_failed WHERE mark = ?" if value is None else "INSERT OR IGNORE INTO ramp_failed VALUES (?)"
        self._connection.execute(statement, (mark,))

    def _find_left(self, ended: _Ended, gone: StoredLetter | None) -> LeftLetter | None:
        """Return what is known of a letter that left; None for named, undelivered, and old unknown entries."""
        if ended.key[0] == entry_keys.NAMED or entry_keys.lane_of(ended.key) in entry_keys.UNDELIVERED:
            return None
        _, topic, partition, offset = entry_keys.read_source(ended.key)
        lane = ended.key[1:entry_keys.LANE_BYTES].hex()
        left = LeftLetter(
            topic, partition, offset, ended.at_ms, left_for=None, lane=lane, action=None, step=None, lineage=None, attempt=None,
            team=None,
        )  # fmt: skip
        known: LetterRecord | StoredLetter
        if ended.record is not None:
            known, cell = ended.record, ended.record.cell
            if ended.record.action is not None:
                self._cells.note_action(self._cells.id_of(cell), ended.record.action)
        elif gone is not None:
            known, cell = gone, self._cells.cell_of(gone.cell)
        else:
            # The letter itself was compacted away. Of older ones nobody asks any more.
            return None if ended.at_ms < clock.wall_ms() - KEPT_MS else left
        sent_to = None if cell.reason is not None or cell.target in self._resting else cell.target
        return left._replace(
            left_for=sent_to, lineage=known.lineage, attempt=cell.attempt, team=cell.team, action=known.action, step=known.step
        )
