"""Counts letters that are not taken in yet, and says where a transaction of another producer holds them back.

Readers of committed records get nothing that lies behind the beginning of an open transaction. A producer that hangs can keep
one open for as long as its `transaction.timeout.ms` says, 15 minutes at most by default; the letters of others wait with it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from retry import clock
from retry.kafka.interface import AdminClient, Partition
from retry.kafka.offset_ranges import ReadableEnd, find_ends

log = logging.getLogger(__name__)

BEHIND, OPEN_TRANSACTION = "behind", "open_transaction"
# Transactions of healthy producers are open for a moment, and end one after the other.
_HELD_S = 30.0


class _OpenTransaction(NamedTuple):
    offset: int
    since_s: float


class UnreadLetters:
    """Looks belong to one thread; what they found may be asked for by others.

    Args:
      list_taken: by partition that this worker reads, the first offset that is not taken in.
      find_ends: see `retry.kafka.offset_ranges.find_ends`.
    """

    def __init__(
        self,
        list_taken: Callable[[], Mapping[Partition, int]],
        find_ends: Callable[[Collection[Partition]], Mapping[Partition, ReadableEnd]],
    ) -> None:
        self._list_taken, self._find_ends = list_taken, find_ends
        self._counts: dict[tuple[str, str], float] = {}
        self._open: dict[Partition, _OpenTransaction] = {}
        self._held: dict[Partition, str] = {}

    @classmethod
    def of_brokers(cls, list_taken: Callable[[], Mapping[Partition, int]], admin: AdminClient) -> UnreadLetters:
        """Letters as the brokers tell of them."""
        return cls(list_taken, partial(find_ends, admin))

    def count_letters(self) -> None:
        """Count them, and log what has been held back for some time."""
        taken = self._list_taken()
        ends = self._find_ends(taken)
        counts, held = Counter[tuple[str, str]](), dict[Partition, str]()
        open_before, self._open = self._open, {}
        for partition, (decided, end) in ends.items():
            readable, undecided = max(0, decided - taken[partition]), max(0, end - max(decided, taken[partition]))
            counts[partition[0], BEHIND] += readable
            counts[partition[0], OPEN_TRANSACTION] += undecided
            if undecided:
                self._open[partition] = self._note_open(open_before.get(partition), decided)
                if clock.monotonic_s() - self._open[partition].since_s >= _HELD_S:
                    held[partition] = _describe(partition, decided, undecided)
        self._log_held_partitions(held)
        self._counts, self._held = {key: float(count) for key, count in counts.items()}, held

    def _note_open(self, before: _OpenTransaction | None, offset: int) -> _OpenTransaction:
        return before if before is not None and before.offset == offset else _OpenTransaction(offset, clock.monotonic_s())

    def _log_held_partitions(self, held: Mapping[Partition, str]) -> None:
        for partition in held.keys() - self._held.keys():
            log.warning("letters of %s/%d: %s", *partition, held[partition])
        for partition in self._held.keys() - held.keys():
            log.info("letters of %s/%d: no transaction holds them back any more", *partition)

    def count_by_reason(self) -> dict[tuple[str, str], float]:
        """Count the offsets that are not taken in yet, by topic and reason."""
        return self._counts

    def describe_held(self) -> dict[str, str]:
        """Describe the open transactions that hold letters back, by partition."""
        return {f"{topic}/{number}": why for (topic, number), why in self._held.items()}


def _describe(partition: Partition, offset: int, undecided: int) -> str:
    return (
        f"a transaction of another producer that is open since offset {offset} holds back {undecided} offsets; brokers end it "
        f"after its transaction.timeout.ms, or `kafka-transactions.sh abort --topic {partition[0]} --partition {partition[1]} "
        f"--start-offset {offset}` does"
    )
