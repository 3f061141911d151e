"""What is due soon in all shards, how late the oldest is, and when Kafka deletes the letters that wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from retry import clock
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.delivery.sweep import ChangelogPartition
from retry.testing.memory_table import MemoryTable
from retry.worker.backlog import BacklogGauges
from retry.worker.shards.shard import Shard
from tests.support.tables import NOW_MS, named_key

HOUR_MS = 3_600_000


def shard(number: int, *waiting: tuple[str, int, int]) -> Shard:
    """One with entries of (topic, due, stamped), all told in milliseconds from now."""
    table = MemoryTable()
    rows: list[tuple[bytes, bytes | None]] = []
    for n, (topic, due, stamped) in enumerate(waiting):
        entry = Entry("t", None, None, [], NOW_MS + stamped, "a")
        key = entry_keys.build_key(NOW_MS + due, entry_keys.build_key_stem(topic, 0), n, entry_keys.lane("a", topic, "t"))
        rows.append((key, envelopes.encode(entry)))
    rows.append((named_key(NOW_MS + HOUR_MS, number), envelopes.encode(Entry("t", None, None, [], 1, "a"))))
    table.apply_records(rows, 1, NOW_MS)
    unused: Any = None
    return Shard(ChangelogPartition("changelog", number), table, unused, 0)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)


def retention(topics: Iterable[str]) -> dict[str, int]:
    return {topic: 24 * HOUR_MS for topic in topics if topic != "kept"}


def test_all_shards_count_together() -> None:
    one, other = shard(0, ("x", 30_000, 0), ("x", 90_000, 0)), shard(1, ("y", -2_500, 0), ("y", 400_000, 0))
    outlook = BacklogGauges(lambda: [one, other], retention)
    assert (outlook.due_soon(), outlook.oldest_s()) == ({"1m": 0, "5m": 0}, 0)
    outlook.look_ahead()
    assert (outlook.due_soon(), outlook.oldest_s()) == ({"1m": 2, "5m": 3}, 2.5)
    other.close()
    outlook.look_ahead()
    assert (outlook.due_soon(), outlook.oldest_s()) == ({"1m": 1, "5m": 2}, 0)


def test_a_corrupt_shard_is_left_to_its_sweep(caplog: pytest.LogCaptureFixture) -> None:
    one, other = shard(0, ("x", 0, 0)), shard(1, ("x", 0, 0))
    other.table.corrupt = True  # type: ignore[attr-defined]
    outlook = BacklogGauges(lambda: [one, other], retention)
    outlook.look_ahead()
    outlook.look_back()
    assert outlook.due_soon() == {"1m": 1, "5m": 1}
    assert caplog.text.count("shard 1") == 2


def test_the_oldest_letter_of_each_topic_counts_and_what_came_by_a_door_does_not() -> None:
    one = shard(0, ("x", 0, -HOUR_MS), ("x", 9, -5 * HOUR_MS), ("kept", 0, -HOUR_MS))
    other = shard(1, ("x", 0, -2 * HOUR_MS), ("y", 0, -25 * HOUR_MS))
    outlook = BacklogGauges(lambda: [one, other], retention)
    outlook.look_back()
    assert outlook.retention_left_s() == {"x": 19 * 3_600, "y": -3_600}
