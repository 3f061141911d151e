"""Where the letters of an action are looked for: here in all of the changelog, and in the topics where letters rest.

The console has another source, which knows from its replica where the letters lie that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from retry.operations import waiting_entries
from retry.operations.cluster import Cluster
from retry.operations.control_requests import ShardNumbers
from retry.operations.found_letter import FoundLetter
from retry.operations.listing import Cursor, Listing, ReturnedRecords
from retry.settings import Settings


class WaitingRow(NamedTuple):
    """A letter that waits, as the changelog has it.

    Attributes:
      shard: the partition of the changelog.
      key: of its entry.
      envelope: of its entry.
    """

    shard: int
    key: bytes
    envelope: bytes


class LetterSource(Protocol):
    """Gives the letters among which those of an action are chosen.

    Attributes:
      shards: how many partitions the changelog has.
      gone: how many letters were to be given whose records are there no more.
    """

    shards: int
    gone: int

    def iterate_waiting(self) -> Iterator[WaitingRow]:
        """Letters that wait, or may.

        Raises:
          TopicsInvalid: a topic is missing, or cannot be read.
          ActionRefused: records could not be read.
        """
        ...

    def iterate_resting(self) -> Iterator[FoundLetter]:
        """Letters that are parked or discarded, also those that were returned; raises as `iterate_waiting`."""
        ...

    def build_returned_records(self) -> ReturnedRecords:
        """What says which of them were returned."""
        ...


class AllLetters:
    """See `LetterSource`: every letter that waits or rests, read from Kafka.

    Args:
      listing: where letters that rest are looked for; None where none is meant.
      waits: whether letters that wait are meant.
    """

    gone = 0

    def __init__(self, shards: ShardNumbers, listing: Listing | None = None, *, waits: bool = True) -> None:
        self.shards, self._numbers, self._listing, self._waits = shards.count, shards, listing, waits

    def iterate_waiting(self) -> Iterator[WaitingRow]:
        return iterate_changelog(self._numbers.settings) if self._waits else iter(())

    def iterate_resting(self) -> Iterator[FoundLetter]:
        return iter(()) if self._listing is None else self._listing.iterate_resting(Cursor())

    def build_returned_records(self) -> ReturnedRecords:
        return ReturnedRecords(Cluster(self._numbers.settings))


def iterate_changelog(settings: Settings) -> Iterator[WaitingRow]:
    """Every entry of the changelog, shard by shard.

    Raises:
      TopicsInvalid: the changelog cannot be read.
    """
    for shard, table in waiting_entries.load_shard_tables(settings):
        for key, envelope in waiting_entries.scan_rows(table):
            yield WaitingRow(shard, key, envelope)
