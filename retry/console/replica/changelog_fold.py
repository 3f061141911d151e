"""Records of the changelog → letters that wait, pauses and actions, and which parked letters were returned."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from retry import clock
from retry.console.replica import letter_record
from retry.console.replica.attempts import KEPT_MS, Attempts, LeftLetter
from retry.console.replica.cells import Cells
from retry.console.replica.letter_record import LetterRecord, LogPlace
from retry.console.replica.letter_table import GoneLetter, LetterTable
from retry.console.replica.resting_fold import ReturnedLetters
from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.entry_keys import LANE_BYTES, NAMED, UNDELIVERED
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Unopened
from retry.delay_queue.ramp_records import FAILED
from retry.delay_queue.returned_offsets import RETURNED
from retry.delay_queue.table import changelog_records
from retry.delay_queue.table.interface import CONTROL
from retry.errors import EntryUnreadable
from retry.kafka.interface import Message
from retry.operations.letters.found_letter import make_waiting_letter
from retry.policies.registry import Registry
from retry.telemetry.unreadable_records import UNREADABLE


class _Ended(NamedTuple):
    """A null on the changelog: the entry of this key waits no more.

    Attributes:
      record: the letter that it ends, where that came earlier in the same batch; else None.
    """

    key: bytes
    at_ms: int
    record: LetterRecord | None


class ChangelogFold:
    """The fold of the changelog: waiting letters, controls, returned letters and marks of ramps; only for the thread that folds.

    Args:
      log: the number of the changelog's topic.
      resting: topics where letters rest: what went there was not sent.
      registry: returns the newest registry of policies.
      codec: reads envelopes.
    """

    def __init__(
        self, connection: sqlite3.Connection, cells: Cells, letters: LetterTable, returned: ReturnedLetters,
        attempts: Attempts, log: int, resting: Collection[str], registry: Callable[[], Registry],
        codec: EnvelopeCodec = PLAIN,
    ) -> None:
        self._connection, self._cells, self._letters, self._returned = connection, cells, letters, returned
        self._attempts, self._resting = attempts, resting
        self._log, self._registry, self._codec = log, registry, codec

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
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
                        place = letter_record.waiting_place(partition, entry, block)
                        if envelope is None:
                            ended[place] = _Ended(entry, message.timestamp()[1], changes.get(place))
                        changes[place] = None if envelope is None else self._decode_letter(place, log, entry, envelope)
            except EntryUnreadable as error:
                UNREADABLE.pass_over(message.topic(), partition, message.offset(), error)
        gone = {each.place: each for each in self._letters.apply_changes(changes)}
        left = ((each, gone.get(place)) for place, each in ended.items() if changes[place] is None)
        self._attempts.put_left([found for each in left if (found := self._find_left(*each)) is not None])

    def _decode_letter(self, place: str, log: LogPlace, key: bytes, envelope: bytes) -> LetterRecord:
        entry = self._codec.decode_to_show(key, envelope)
        if isinstance(entry, Unopened) and entry.is_foreign:
            raise EntryUnreadable(entry.why)
        found = make_waiting_letter(entry_keys.source(key), entry, self._registry(), "")
        self._letters.note_long_headers(found.headers)
        return letter_record.of_waiting(found, key, place, log)

    def _control(self, partition: int, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._connection.execute("DELETE FROM controls WHERE shard = ? AND key = ?", (partition, key))
        else:
            self._connection.execute("INSERT OR REPLACE INTO controls VALUES (?, ?, ?)", (partition, key, value))

    def _note_failed(self, mark: bytes, value: bytes | None) -> None:
        statement = "DELETE FROM ramp_failed WHERE mark = ?" if value is None else "INSERT OR IGNORE INTO ramp_failed VALUES (?)"
        self._connection.execute(statement, (mark,))

    def _find_left(self, ended: _Ended, gone: GoneLetter | None) -> LeftLetter | None:
        """Return what is known of a letter that left; None for named, undelivered, and old unknown entries."""
        if ended.key[0] == NAMED or entry_keys.lane_of(ended.key) in UNDELIVERED:
            return None
        _, topic, partition, offset = entry_keys.source(ended.key)
        lane = ended.key[1:LANE_BYTES].hex()
        if ended.record is not None:
            cell, lineage = ended.record.cell, ended.record.lineage
        elif gone is not None:
            cell, lineage = self._cells.cell_of(gone.cell), gone.lineage
        else:
            # The letter itself was compacted away. Of older ones nobody asks any more.
            if ended.at_ms < clock.wall_ms() - KEPT_MS:
                return None
            return LeftLetter(
                topic, partition, offset, left_ms=ended.at_ms, left_for=None, lane=lane, lineage=None, attempt=None, team=None
            )
        sent_to = None if cell.reason is not None or cell.target in self._resting else cell.target
        return LeftLetter(
            topic, partition, offset, left_ms=ended.at_ms, left_for=sent_to, lane=lane, lineage=lineage, attempt=cell.attempt,
            team=cell.team,
        )  # fmt: skip
