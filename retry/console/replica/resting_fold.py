"""Records of parking topics, and of discarded letters → letters that rest; less those that were returned, or deleted by Kafka."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence

from retry.console.replica import letter_record
from retry.console.replica.letter_record import LogPlace, resting_place
from retry.console.replica.letter_table import LetterTable
from retry.delay_queue import returned_offsets
from retry.delay_queue.returned_offsets import BLOCK_BYTES, OFFSETS_A_BLOCK, ParkedPlace
from retry.kafka.interface import Message
from retry.operations.letters.found_letter import make_parked_letter
from retry.policies.registry import Registry

_FIRST_DELETED = "log = ? AND log_partition = ? AND log_offset < ?"


class ReturnedLetters:
    """Which records rest no more; all bitmaps are in memory, at a kilobyte for 8,192 letters.

    Args:
      numbers: of topics, by the hash of their ids.
    """

    def __init__(self, connection: sqlite3.Connection, numbers: dict[bytes, int]) -> None:
        self._connection, self._numbers = connection, numbers
        self._bitmaps: dict[bytes, bytes] = dict(connection.execute("SELECT block, bitmap FROM returned"))

    def is_letter_returned(self, topic_hash: bytes, partition: int, offset: int) -> bool:
        """Whether the letter there was returned."""
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
                    yield resting_place(LogPlace(number, partition, offset))


class RestingFold:
    """The fold of one topic where parked or discarded letters rest; only for the thread that folds.

    Args:
      number: of the topic in the replica; `topic_hash` is the hash of its id.
      is_discarded: whether letters there were discarded, and not parked.
    """

    def __init__(
        self, letters: LetterTable, returned: ReturnedLetters, number: int, topic_hash: bytes, registry: Callable[[], Registry],
        *, is_discarded: bool,
    ) -> None:
        self._letters, self._returned = letters, returned
        self._number, self._hash, self._registry, self._is_discarded = number, topic_hash, registry, is_discarded

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        """Take in the next records of a partition."""
        changes = {}
        for message in messages:
            offset = message.offset() or 0
            if not self._returned.is_letter_returned(self._hash, partition, offset):
                log = LogPlace(self._number, partition, offset)
                found = make_parked_letter(message, self._registry(), discarded=self._is_discarded)
                self._letters.note_long_headers(found.headers)
                changes[resting_place(log)] = letter_record.of_resting(found, log)
        self._letters.apply_changes(changes)

    def drop_before(self, partition: int, first: int) -> None:
        """Kafka has deleted all records before an offset."""
        self._letters.drop_where(_FIRST_DELETED, (self._number, partition, first))
