"""Several shards in one transaction: whose turn it is, how much of each, and that what is wrong with one holds up no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.delivery.sweep import ChangelogPartition, SweepResult
from retry.errors import EntryUnreadable, TableUnreadable
from retry.kafka.transaction_pace import TransactionPace
from retry.testing.kafka import Fault, MemoryLog, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from retry.worker.shards.joint_sweep import is_full, joint_sweep
from retry.worker.shards.restore import Phase, ShardContext
from retry.worker.shards.shard import Shard
from tests.support.acted import entry_actions
from tests.support.bench import NOW_MS, Door
from tests.support.simulated_clock import Simulated

ROWS_MAX = 80


class World:
    """Some shards that are ready, over one log."""

    def __init__(self, shards: int) -> None:
        self.log, self.admission, unused = MemoryLog(), Door(), None
        self.log.create("changelog", shards)
        for topic in ("retry", "other"):
            self.log.create(topic)
        nobody: Any = unused
        self.shard_context = ShardContext(nobody, nobody, self.admission, entry_actions().redecider, ROWS_MAX, 1 << 20)  # type: ignore[arg-type]
        self.shards = [self._ready(number) for number in range(shards)]
        self.writer = MemoryTransactionalProducer(self.log, "sweep")
        self.writer.open()

    def _ready(self, number: int) -> Shard:
        nobody: Any = None
        return Shard(ChangelogPartition("changelog", number), MemoryTable(), nobody, end_offset=0)

    def put(self, shard: int, entries: int, *, to: str = "retry", team: str = "team", value: bytes = b"v") -> None:
        lane, table = entry_keys.lane(team, "orders.DLT", to), self.shards[shard].table
        stem, first = entry_keys.build_key_stem("orders.DLT", shard), table.next_offset
        envelope = envelopes.encode(Entry(to, b"k", value, [], None, team))
        rows = [(entry_keys.build_key(NOW_MS, stem, first + n, lane), envelope) for n in range(entries)]
        table.apply_records(rows, first + entries, NOW_MS)

    def sweep(self) -> list[SweepResult]:
        """One, of all shards, those first that were swept longest ago."""
        in_turn = sorted(self.shards, key=lambda shard: shard.progress.last_sweep)
        return joint_sweep(in_turn, self.writer, self.shard_context, NOW_MS)

    def sent(self) -> Counter[int]:
        """Nulls in the changelog, by shard."""
        return Counter(record.partition() for record in self.log.read("changelog"))

    def waiting(self) -> list[int]:
        return [shard.count_waiting() for shard in self.shards]


def raising(error: type[Exception]) -> Callable[..., None]:
    """Make a function that fails in this way, whatever it is given."""

    def raises(*_: Any) -> None:
        raise error("as the test made it")

    return raises


@pytest.fixture
def world() -> Iterator[World]:
    made = World(4)
    yield made
    assert not any(shard._sweeping.locked() for shard in made.shards)


def test_few_letters_of_all_shards_go_in_one_transaction(world: World) -> None:
    for shard in range(4):
        world.put(shard, shard + 1)
    swept = world.sweep()
    assert [len(each.sent) for each in swept] == [1, 2, 3, 4]
    assert (world.sent(), world.waiting(), len(world.log.read("retry"))) == ({0: 1, 1: 2, 2: 3, 3: 4}, [0] * 4, 10)
    assert len({record.offset() for record in world.log.read("retry")}) == 10
    assert not world.log.under_way


def test_where_much_is_due_each_sweep_takes_half_of_the_shards_and_the_same_of_each(world: World) -> None:
    for shard in range(4):
        world.put(shard, 100)
    assert is_full(world.sweep(), world.shard_context)
    assert world.sent() == {0: 40, 1: 40}
    world.sweep()
    assert world.sent() == dict.fromkeys(range(4), 40)
    for _ in range(4):
        world.sweep()
    assert world.waiting() == [0] * 4


def test_what_one_shard_does_not_need_of_a_batch_is_for_the_next(world: World) -> None:
    world.put(0, 5)
    world.put(1, 100)
    world.sweep()
    assert world.sent() == {0: 5, 1: 75}


def test_bytes_bound_a_batch_over_all_shards(world: World) -> None:
    for shard in range(4):
        world.put(shard, 10, value=bytes(100_000))
    swept = world.sweep()
    assert 9 <= sum(len(each.sent) for each in swept) <= 13


def test_a_shard_that_another_sweep_has_is_passed_over(world: World) -> None:
    for shard in range(4):
        world.put(shard, 1)
    assert world.shards[1].acquire_sweep_lock()
    world.sweep()
    world.shards[1].release()
    assert world.waiting() == [0, 1, 0, 0]
    world.sweep()
    assert world.waiting() == [0] * 4


def test_one_that_is_not_ready_is_left_alone(world: World) -> None:
    for shard in range(4):
        world.put(shard, 1)
    world.shards[2].phase = Phase.RESTORING
    world.sweep()
    assert world.waiting() == [0, 0, 1, 0]


@pytest.mark.parametrize(("error", "phase"), [(TableUnreadable, Phase.BROKEN), (EntryUnreadable, Phase.HALTED)])
def test_a_shard_that_cannot_be_read_holds_up_no_other(
    world: World, error: type[Exception], phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in range(4):
        world.put(shard, 1)
    monkeypatch.setattr(world.shards[0].table, "find_due", raising(error))
    world.sweep()
    assert (world.waiting(), [shard.phase for shard in world.shards]) == ([1, 0, 0, 0], [phase] + [Phase.READY] * 3)


def test_a_table_that_fails_after_the_commit_is_opened_again_and_the_others_let_go_of_their_rows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for shard in range(4):
        world.put(shard, 1)
    monkeypatch.setattr(world.shards[1].table, "delete_scanned_rows", raising(TableUnreadable))
    world.sweep()
    assert (world.waiting(), world.shards[1].phase, len(world.log.read("retry"))) == ([0, 1, 0, 0], Phase.BROKEN, 4)


def test_what_is_undone_is_tried_again(world: World) -> None:
    for shard in range(4):
        world.put(shard, 1)
    world.log.faults.append(Fault.ABORTED)
    assert world.sweep() == []
    assert (world.waiting(), world.log.read("retry")) == ([1] * 4, [])
    world.sweep()
    assert (world.waiting(), len(world.log.read("retry"))) == ([0] * 4, 4)


def test_after_a_commit_in_doubt_every_shard_that_was_in_it_is_opened_again_and_no_other(world: World) -> None:
    for shard in range(3):
        world.put(shard, 1)
    world.log.faults.append(Fault.DOUBT_COMMITTED)
    world.sweep()
    assert [shard.phase for shard in world.shards] == [Phase.BROKEN] * 3 + [Phase.READY]


def test_a_shard_whose_sweeps_are_undone_again_and_again_is_swept_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds what is wrong with its letters: the brokers say nothing of it, and take them in no rehearsal."""
    commit = world.writer.commit

    def fail_commit() -> None:
        if any(record.key() == b"k" and record.value() == b"bad" for record in world.log.under_way["sweep"].records):
            world.log.faults.append(Fault.ABORTED)
        commit()

    monkeypatch.setattr(world.writer, "commit", fail_commit)
    for shard in range(4):
        world.put(shard, 1, value=b"bad" if shard == 2 else b"v")
    for _ in range(6):
        world.sweep()
    assert world.waiting() == [0, 0, 1, 0]
    for shard in range(4):
        world.put(shard, 3)
    for _ in range(2):
        world.sweep()
    assert world.waiting() == [0, 0, 4, 0]


def test_a_target_that_is_refused_is_left_out_of_every_shard(world: World) -> None:
    for shard in range(4):
        world.put(shard, 1)
        world.put(shard, 1, to="other")
    world.log.forbidden.add("other")
    world.sweep()
    assert (world.waiting(), set(world.admission.closed)) == ([1] * 4, {"other"})
    world.log.forbidden.clear()
    world.admission.closed.clear()
    world.sweep()
    assert (world.waiting(), len(world.log.read("other"))) == ([0] * 4, 4)


def test_a_transaction_that_runs_out_of_time_is_tried_again_with_half_as_much_and_no_record_is_looked_for(
    world: World, stepped_clock: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped_clock.now_s = NOW_MS / 1_000
    pace = TransactionPace("deliveries", 1 << 20)
    world.shard_context = world.shard_context._replace(pace=pace)
    world.put(0, 40, value=b"x" * 10_000)
    arrived = world.writer.await_arrival

    def run_out(_within_s: float) -> bool:
        stepped_clock.now_s += 0.5
        return False

    monkeypatch.setattr(world.writer, "await_arrival", run_out)
    monkeypatch.setattr(world.writer, "rehearse_entries", lambda *_: pytest.fail("no record is to blame"))
    assert world.sweep() == []
    assert pace.bytes_max == pytest.approx(200_000, rel=0.05)
    monkeypatch.setattr(world.writer, "await_arrival", arrived)
    # Two shards share a sweep: each may have half of its bytes.
    assert [len(each.sent) for each in world.sweep()] == [10]
    assert not world.log.under_way
