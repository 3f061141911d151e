"""Where the letters of an action are looked for: in all of the changelog, and in the topics where letters rest.

The console has another source, which knows from its replica where the letters lie that are asked for, and most of what a
preview tells of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, Protocol

from retry.delivery.foreseen_acts import Foreseen, KnownEntry
from retry.delivery.letter_changes import Refusal
from retry.operations import waiting_entries
from retry.operations.cluster import Cluster
from retry.operations.control_requests import ShardNumbers
from retry.operations.found_letter import FoundLetter
from retry.operations.listing import Cursor, Listing, ReturnedRecords
from retry.settings import Settings

# What an action makes of a letter of which facts are known; see `retry.delivery.foreseen_acts.ForeseenActs.foresee`.
Foresee = Callable[[KnownEntry], Refusal | Foreseen]


class WaitingRow(NamedTuple):
    """A letter that waits, as the changelog has it: its shard, and key and envelope of its entry."""

    shard: int
    key: bytes
    envelope: bytes


class ForeseenRows(NamedTuple):
    """Letters that wait and are meant, of which the source knows without their records what the action makes.

    Attributes:
      members: the shard and the entry's key of each of which something is made.
      groups: how many of these have which team, topic, target, exception, reason and age.
      orders: of members whose topic keeps an order, how many have which topic and record key.
      refused: the others, by why nothing is done.
    """

    members: list[tuple[int, bytes]]
    groups: Counter[tuple[str | None, ...]]
    orders: Counter[tuple[str, bytes | None]]
    refused: Counter[str]


class LetterSource(Protocol):
    """Gives the letters among which those of an action are chosen.

    Attributes:
      shards: how many partitions the changelog has.
      gone: how many letters were to be given whose records are there no more.
      returned: says which of the letters that rest were returned before; made when the first of them is there.
    """

    shards: int
    gone: int

    @property
    def returned(self) -> ReturnedRecords: ...

    def iterate_waiting(self, foresee: Foresee) -> Iterator[WaitingRow | ForeseenRows]:
        """Yield letters that wait, or may wait; some of the first members come as rows with their envelopes.

        Raises:
          TopicsInvalid: a topic is missing, or cannot be read.
          ActionRefused: records could not be read.
        """
        ...

    def iterate_resting(self) -> Iterator[FoundLetter]:
        """Yield letters that are parked or discarded, including those that were returned; raises as `iterate_waiting` does."""
        ...


class AllLetters:
    """Every letter that waits (where `waits`) or rests (where there is a `listing`), read from Kafka; a `LetterSource`."""

    gone = 0

    def __init__(self, shards: ShardNumbers, listing: Listing | None = None, *, waits: bool = True) -> None:
        self.shards, self._numbers, self._listing, self._waits = shards.count, shards, listing, waits

    def iterate_waiting(self, _foresee: Foresee) -> Iterator[WaitingRow]:
        return iterate_changelog(self._numbers.settings) if self._waits else iter(())

    def iterate_resting(self) -> Iterator[FoundLetter]:
        return iter(()) if self._listing is None else self._listing.iterate_resting(Cursor())

    @cached_property
    def returned(self) -> ReturnedRecords:
        return ReturnedRecords(Cluster(self._numbers.settings))


def iterate_changelog(settings: Settings) -> Iterator[WaitingRow]:
    """Yield every entry of the changelog, shard by shard; raises `TopicsInvalid` where the changelog cannot be read."""
    for shard, table in waiting_entries.load_shard_tables(settings):
        for key, envelope in waiting_entries.scan_rows(table):
            yield WaitingRow(shard, key, envelope)
