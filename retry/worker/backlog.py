"""The backlog of a worker: what is due soon in its shards, how long Kafka keeps it, and letters that are not taken in yet."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from retry import clock
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import NAMED
from retry.errors import EntryUnreadable, TableUnreadable
from retry.kafka.interface import Partition
from retry.kafka.offset_ranges import ReadableEnd
from retry.worker.shards.shard import Shard

# What is due soon in the shards of a worker, and how long Kafka keeps the letters that wait: looked at now and then.

log = logging.getLogger(__name__)

_WITHIN_MS = {"1m": 60_000, "5m": 300_000}
# Of all shards together: a microsecond each, and three where what waits is read.
_ROWS_MAX = 20_000
_LANE_ROWS, _LANE_BYTES = 100, 256 << 10

# By topic, how many milliseconds Kafka keeps a record; topics that keep theirs are left out.
Retention = Callable[[Iterable[str]], Mapping[str, int]]


class BacklogGauges:
    """Looks belong to one thread; what they found, in the shards that are owned, may be asked for by others."""

    def __init__(self, shards: Callable[[], list[Shard]], retention: Retention) -> None:
        self._shards, self._retention = shards, retention
        self._soon, self._oldest_s = dict.fromkeys(_WITHIN_MS, 0.0), 0.0
        self._gone_at_ms: dict[str, int] = {}

    def look_ahead(self) -> None:
        """Count the entries that are due soon, and note how long ago the oldest one was due."""
        now_ms, shards = clock.wall_ms(), self._shards()
        until_ms, found = [now_ms + within for within in _WITHIN_MS.values()], []
        for shard in shards:
            try:
                found.append(shard.soon(until_ms, _ROWS_MAX // len(shards)))
            except TableUnreadable as error:
                log.warning("shard %d: not counted, the next sweep will see to it: %s", shard.changelog.partition, error)
        self._soon = {within: float(sum(soon.due[n] for soon in found)) for n, within in enumerate(_WITHIN_MS)}
        first_ms = min((soon.first_ms for soon in found if soon.first_ms is not None), default=now_ms)
        self._oldest_s = max(0, now_ms - first_ms) / 1_000

    def look_back(self) -> None:
        """Find the oldest waiting letter of each topic, and note when Kafka deletes it.

        Raises KafkaException or TimeoutError where no broker told of the topics.
        """
        oldest_ms: dict[str, int] = {}
        shards = self._shards()
        for shard in shards:
            lanes = len(shard.table.list_lanes()) or 1
            try:
                for topic, stamp_ms in _read_timestamps(shard, min(_LANE_ROWS, 1 + _ROWS_MAX // len(shards) // lanes)):
                    oldest_ms[topic] = min(stamp_ms, oldest_ms.get(topic, stamp_ms))
            except TableUnreadable as error:
                log.warning("shard %d: not looked at, the next sweep will see to it: %s", shard.changelog.partition, error)
        kept_ms = self._retention(oldest_ms)
        self._gone_at_ms = {topic: oldest_ms[topic] + kept for topic, kept in kept_ms.items()}

    def due_soon(self) -> dict[str, float]:
        return self._soon

    def count_held(self) -> dict[str, float]:
        """Count the entries that are held because the key that they are sealed under is not here, by the id of that key."""
        found = Counter[str]()
        for shard in self._shards():
            found.update(shard.moves.held.by_key)
        return {key: float(count) for key, count in found.items()}

    def oldest_s(self) -> float:
        """Return how many seconds ago the oldest entry was due at the last look; 0 where none was due."""
        return self._oldest_s

    def retention_left_s(self) -> dict[str, float]:
        """Return the seconds until Kafka may delete the oldest waiting letter of each dead-letter topic."""
        now_ms = clock.wall_ms()
        return {topic: (at_ms - now_ms) / 1_000 for topic, at_ms in self._gone_at_ms.items()}


def _read_timestamps(shard: Shard, rows_max: int) -> Iterable[tuple[str, int]]:
    for key, envelope in shard.list_first_entries(rows_max, _LANE_BYTES):
        # What has a name came in by another entry source.
        if key[0] == NAMED:
            continue
        try:
            topic, entry = entry_keys.read_source(key).topic, envelopes.decode_routing(envelope)
        except EntryUnreadable as error:
            log.debug("shard %d: %s", shard.changelog.partition, error)
            continue
        stamp_ms = entry.failed_at_ms if entry.timestamp_ms is None else entry.timestamp_ms
        if stamp_ms is not None:
            yield topic, stamp_ms


# Counts letters that are not taken in yet, and says where a transaction of another producer holds them back.
#
# Readers of committed records get nothing that lies behind the beginning of an open transaction. A producer that hangs can keep
# one open for as long as its `transaction.timeout.ms` says, 15 minutes at most by default; the letters of others wait with it.

BEHIND, OPEN_TRANSACTION = "behind", "open_transaction"
# Transactions of healthy producers are open for a moment, and end one after the other.
_HELD_S = 30.0
# See `retry.kafka.offset_ranges.find_ends`.
FindEnds = Callable[[Collection[Partition]], Mapping[Partition, ReadableEnd]]


class _OpenTransaction(NamedTuple):
    offset: int
    since_s: float


class UnreadLetters:
    """Looks belong to one thread, others ask for what they found; `list_taken` has the first offset not taken in by partition."""

    def __init__(self, list_taken: Callable[[], Mapping[Partition, int]], find_ends: FindEnds) -> None:
        self._list_taken, self._find_ends = list_taken, find_ends
        self._counts: dict[tuple[str, str], float] = {}
        self._open: dict[Partition, _OpenTransaction] = {}
        self._held: dict[Partition, str] = {}

    def count_letters(self) -> None:
        taken = self._list_taken()
        ends = self._find_ends(taken)
        counts, held = Counter[tuple[str, str]](), dict[Partition, str]()
        open_before, self._open = self._open, {}
        for partition, (decided, end) in ends.items():
            readable, undecided = max(0, decided - taken[partition]), max(0, end - max(decided, taken[partition]))
            counts[partition[0], BEHIND] += readable
            counts[partition[0], OPEN_TRANSACTION] += undecided
            if undecided:
                before = open_before.get(partition)
                since_s = before.since_s if before is not None and before.offset == decided else clock.monotonic_s()
                self._open[partition] = _OpenTransaction(decided, since_s)
                if clock.monotonic_s() - since_s >= _HELD_S:
                    held[partition] = _describe(partition, decided, undecided)
        self._log_held_partitions(held)
        self._counts, self._held = {key: float(count) for key, count in counts.items()}, held

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
