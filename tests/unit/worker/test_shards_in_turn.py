"""A worker that has lost its tables: its shards are restored in turn, and those that still wait are not taken for stuck."""

from __future__ import annotations

from typing import Any

import pytest

from retry.delay_queue import envelopes
from retry.delay_queue.envelopes import Entry
from retry.testing.kafka import MemoryCluster, MemoryLog
from retry.testing.memory_table import MemoryTables
from retry.worker.shards import assignment
from retry.worker.shards.assignment import Shards
from retry.worker.shards.restore import Phase, ShardContext
from tests.support.tables import everything, plain_key

TOPIC, SIZES = "changelog", (30, 10, 20)
READS_MAX = 200
UNUSED: Any = None


def entries(partition: int) -> list[tuple[bytes, bytes]]:
    envelope = envelopes.encode(Entry("retry", None, None, [], None, "team"))
    return [(plain_key(1_000 + n, 100 * partition + n), envelope) for n in range(SIZES[partition])]


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> Shards:
    monkeypatch.setattr(assignment, "MANY", 2)
    # Several reads for each shard, so that one is read while others wait.
    monkeypatch.setattr("retry.worker.shards.assignment._RECORDS_MAX", 4)
    log = MemoryLog()
    log.create(TOPIC, len(SIZES))
    cluster = MemoryCluster(log, "app", "a")
    writer = cluster.make_producer("fill")
    writer.open()
    writer.begin()
    for partition in range(len(SIZES)):
        writer.write(TOPIC, partition, [{"key": key, "value": value} for key, value in entries(partition)])
    writer.commit()
    shard_context = ShardContext(cluster, MemoryTables(1 << 60), UNUSED, UNUSED, 10, 1_000)
    return Shards("group", TOPIC, shard_context, map, "sweep-a")


def folding(shards: Shards) -> set[int]:
    """Shards of which the watchdog expects that they get on with their folding."""
    return {part.place[1] for part in shards.list_probes() if part.place is not None}


def test_shards_are_restored_in_turn_and_those_that_wait_are_not_taken_for_stuck(shards: Shards) -> None:
    ready, together = list[int](), set[frozenset[int]]()
    for _ in range(READS_MAX):
        for shard, messages in shards.read():
            shard.apply_messages(messages)
        if shards.list_open_shards():
            together.add(frozenset(folding(shards)))
        restored = [s.changelog.partition for s in shards.list_open_shards() if s.phase is Phase.READY]
        ready += [partition for partition in restored if partition not in ready]
        if len(ready) == len(SIZES):
            break
    assert ready == [1, 2, 0], "the shortest first"
    assert together >= {frozenset({1}), frozenset({1, 2}), frozenset({0, 1, 2})}
    for shard in shards.list_open_shards():
        assert everything(shard.table) == dict(entries(shard.changelog.partition))
    shards.close()
