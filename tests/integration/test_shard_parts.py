"""What a shard shows to the watchdog: whether it gets on, whether it has work, and what it failed with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from retry.delay_queue import control_records, entry_keys, envelopes
from retry.delay_queue.control_records import Reschedule
from retry.delay_queue.entry_keys import Lane
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import RocksTables
from retry.delivery.admission import Admission
from retry.delivery.sweep import ChangelogPartition
from retry.kafka.interface import OffsetBounds
from retry.telemetry.health import HealthProbe
from retry.testing.kafka import Fault, MemoryLog, MemoryTransactionalProducer
from retry.worker.shards.joint_sweep import joint_sweep
from retry.worker.shards.restore import Phase, ShardContext
from retry.worker.shards.shard import Shard
from tests.support.acted import entry_actions
from tests.support.plans import registry_of
from tests.support.tables import plain_key

CHANGELOG, NOW_MS = ChangelogPartition("changelog", 0), 1_700_000_000_000
POLICIES = "teams: {team: {topics: [{dead_letters: orders.DLT, retry_to: retry}]}}"


class Forgetful(Admission):
    """An admission that lets nothing through and does not say why, as one with a mistake in it might."""

    forgets = False

    def acquire_permits(self, lane: Lane, wanted: int, now_ms: int, standing: Mapping[bytes, bytes]) -> int:
        return 0 if self.forgets else super().acquire_permits(lane, wanted, now_ms, standing)


class Bench:
    """A shard with one entry that is due, over a log in memory."""

    def __init__(self, folder: Path) -> None:
        self.log, self.closed = MemoryLog(), dict[str, str]()
        self.log.create("changelog")
        self.log.create("retry")
        tables = RocksTables(folder, "changelog", "cluster", "topic", Memory(8 << 20), 1 << 60)
        self.admission = Forgetful(registry_of(POLICIES), "parked", self._closed, lambda: 1.0)
        self.shard_context = ShardContext(self, tables, self.admission, entry_actions().redecider, 10, 1_000)  # type: ignore[arg-type]
        self.shard = Shard.open(CHANGELOG, self.shard_context)
        self.producer = self.make_producer("sweep")
        self.producer.open()
        entry = Entry("retry", b"k", b"v", [], None, "team")
        self.shard.table.apply_records([(plain_key(NOW_MS), envelopes.encode(entry))], 1, NOW_MS)

    def _closed(self, topics: set[str]) -> dict[str, str]:
        return {topic: self.closed[topic] for topic in topics & self.closed.keys()}

    def make_producer(self, name: str) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self.log, name)

    def fetch_bounds(self, _topic: str, partitions: list[int]) -> dict[int, OffsetBounds]:
        return dict.fromkeys(partitions, OffsetBounds(0, 0))

    def sweep(self) -> HealthProbe:
        """Sweep once; what is shown of delivering."""
        joint_sweep([self.shard], self.producer, self.shard_context, NOW_MS)
        return self.parts()["delivering"]

    def parts(self) -> dict[str, HealthProbe]:
        return {part.name.split(": ")[1]: part for part in self.shard.list_probes()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.shard.close()


def test_every_sweep_that_comes_back_is_a_step(bench: Bench) -> None:
    for tries in range(3):
        assert (bench.parts()["sweeping"].done, bench.parts()["sweeping"].busy) == (tries, True)
        bench.sweep()


def test_what_is_due_and_neither_sent_nor_held_is_work_left(bench: Bench) -> None:
    bench.admission.forgets = True
    before = bench.sweep()
    after = bench.sweep()
    assert (before.done, before.busy) == (after.done, after.busy) == (0, True)
    bench.admission.forgets = False
    sent = bench.sweep()
    assert (sent.done, sent.busy, len(bench.log.read("retry"))) == (1, False, 1)


def test_what_is_held_is_no_work(bench: Bench) -> None:
    bench.closed["retry"] = "no such topic"
    held = bench.sweep()
    assert (held.done, held.busy, bench.log.read("retry")) == (1, False, [])


def test_a_transaction_that_is_undone_is_told_until_one_is_not(bench: Bench) -> None:
    bench.log.faults += [Fault.ABORTED]
    failed = bench.sweep()
    assert (failed.done, failed.trouble != "") == (0, True)
    sent = bench.sweep()
    assert (sent.done, sent.trouble) == (1, "")


def test_a_shard_that_is_to_be_opened_again_has_no_parts_and_one_that_is_restored_has_no_sweeps_to_make(bench: Bench) -> None:
    bench.shard.phase = Phase.RESTORING
    assert not bench.parts()["sweeping"].busy
    bench.shard.phase = Phase.BROKEN
    assert bench.parts() == {}


def test_a_shard_that_has_nothing_to_do_is_let_alone_and_looked_at_closely_now_and_then(bench: Bench) -> None:
    assert not bench.shard.is_idle(NOW_MS)
    bench.sweep()
    tries = bench.parts()["sweeping"].done
    glances = [bench.shard.is_idle(NOW_MS) for _ in range(40)]
    assert (glances.count(False), glances.count(True)) == (2, 38)
    # The watchdog sees each of them.
    assert bench.parts()["sweeping"].done == tries + 38


def test_a_shard_with_a_request_that_stands_is_not_idle(bench: Bench) -> None:
    bench.sweep()
    request = control_records.reschedule_key(1)
    bench.shard.table.apply_records([(request, control_records.encode(Reschedule(NOW_MS, policies="digest")))], 2, NOW_MS)
    assert not bench.shard.is_idle(NOW_MS)


def test_a_shard_is_quiet_until_something_is_due(bench: Bench) -> None:
    bench.sweep()
    key = entry_keys.build_key(NOW_MS + 1_000, entry_keys.build_key_stem("orders.DLT", 0), 77)
    bench.shard.table.apply_records([(key, b"later")], 2, NOW_MS)
    assert [bench.shard.quiet(NOW_MS + ms) for ms in (0, 999, 1_000)] == [True, True, False]
