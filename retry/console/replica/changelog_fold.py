"""Records of the changelog → letters that wait, pauses and actions, and which parked letters were returned."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from retry.console.replica import letter_record
from retry.console.replica.cells import Cells
from retry.console.replica.letter_record import LetterRecord, LogPlace
from retry.console.replica.letter_table import GoneLetter, LetterTable
from retry.console.replica.resting_fold import ReturnedLetters
from retry.console.replica.sql_rows import insert
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.ramp_records import FAILED
from retry.delay_queue.returned_offsets import RETURNED
from retry.delay_queue.table import changelog_records
from retry.delay_queue.table.interface import CONTROL
from retry.errors import EntryUnreadable
from retry.kafka.interface import Message
from retry.operations.letters.found_letter import waiting
from retry.policies.registry import Registry

_LEFT_MAX = 1_000_000


class ChangelogFold:
    """For the thread that folds.

    Args:
      log: the number of the changelog's topic.
      registry: gives the newest.
      trouble: told of what cannot be read, which is passed over.
    """

    def __init__(
        self, connection: sqlite3.Connection, cells: Cells, letters: LetterTable, returned: ReturnedLetters, log: int,
        registry: Callable[[], Registry], trouble: Callable[[str], None],
    ) -> None:
        self._connection, self._cells, self._letters, self._returned = connection, cells, letters, returned
        self._log, self._registry, self._trouble = log, registry, trouble

    def fold(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        changes: dict[str, LetterRecord | None] = {}
        ended_ms: dict[str, int] = {}
        for message in messages:
            key, value = message.key() or b"", message.value()
            try:
                ((key, value),) = changelog_records.checked([(key, value)]) or ((b"", None),)
                if key[:1] == CONTROL:
                    self._control(partition, key, value)
                elif key[:1] == RETURNED:
                    changes.update(dict.fromkeys(self._returned.mark(key, value)))
                elif key[:1] == FAILED:
                    self._failed(key, value)
                elif key[:1] not in changelog_records.OF_ACTIONS and key:
                    place = letter_record.waiting_place(partition, key)
                    changes[place] = None if value is None else self._letter(partition, message.offset() or 0, key, value)
                    ended_ms[place] = message.timestamp()[1]
            except EntryUnreadable as error:
                self._trouble(f"{message.topic()}/{partition}/{message.offset()}: {error}")
        gone = self._letters.change(changes)
        self._note_left([each for each in gone if changes[each.place] is None and each.place in ended_ms], ended_ms)

    def _letter(self, partition: int, offset: int, key: bytes, envelope: bytes) -> LetterRecord:
        found = waiting(entry_keys.source(key), envelopes.decode_as(key, envelope), self._registry(), "")
        self._letters.note_long_headers(found.headers)
        return letter_record.of_waiting(found, key, partition, LogPlace(self._log, partition, offset))

    def _control(self, partition: int, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._connection.execute("DELETE FROM controls WHERE shard = ? AND key = ?", (partition, key))
        else:
            self._connection.execute("INSERT OR REPLACE INTO controls VALUES (?, ?, ?)", (partition, key, value))

    def _failed(self, mark: bytes, value: bytes | None) -> None:
        statement = "DELETE FROM ramp_failed WHERE mark = ?" if value is None else "INSERT OR IGNORE INTO ramp_failed VALUES (?)"
        self._connection.execute(statement, (mark,))

    def _note_left(self, gone: Sequence[GoneLetter], ended_ms: dict[str, int]) -> None:
        """When letters stopped waiting. Those that only moved are found again where they wait; see `lineage`."""
        rows = []
        for letter in gone:
            cell = self._cells.cell_of(letter.cell)
            if letter.lineage is not None and cell.reason is None:
                place = f"{cell.topic}/{letter.partition}/{letter.offset}"
                rows.append((letter.lineage, cell.attempt, ended_ms[letter.place], cell.target, cell.team, place))
        insert(self._connection, '"left" (lineage, attempt, at_ms, target, team, letter)', rows)

    def prune(self) -> None:
        """Keep the newest letters that left."""
        self._connection.execute('DELETE FROM "left" WHERE id <= (SELECT max(id) FROM "left") - ?', (_LEFT_MAX,))
