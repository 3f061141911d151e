"""The two producers of a worker's sweeps: each commit proves whose the shards are, and one goes on while the other cannot."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from confluent_kafka import TopicPartition

from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted, TransactionFailed
from retry.kafka import sweep_producers
from retry.kafka.interface import TransactionalProducer
from retry.kafka.sweep_producers import SweepProducers
from retry.testing.kafka import Fault, Membership, MemoryLog, MemoryTransactionalProducer

CHANGELOG, TARGET, GROUP = "changelog", "orders.retry", "table"
NAMES = ["sweep-0", "sweep-1"]


class Worker:
    """A member of the group that shares out shards, and its producers.

    Attributes:
      silent: how often brokers do not answer.
      stuck: how often they cannot end what was undone when the next transaction is to begin.
    """

    silent = stuck = 0

    def __init__(self, log: MemoryLog, instance: str = "w", names: list[str] = NAMES) -> None:
        self.log, self._instance, self.steps = log, instance, list[str]()
        self.group = log.ensure_group(GROUP)
        self.session = self.group.enter(instance, [CHANGELOG])
        self.group.heartbeat(instance, self.session, [CHANGELOG], ())
        self.generation = self.group.generation
        self.given_up = False
        self.producers = SweepProducers(self.make, names, CHANGELOG, self.prove)
        self.producers.open()

    def make(self, name: str, *, compressing: bool = False) -> Stepped:
        return Stepped(self, name, compresses=compressing)

    def prove(self, partitions: Iterable[int]) -> tuple[list[TopicPartition], object]:
        if self.given_up:
            raise TransactionAborted("shards were given up")
        member = Membership(GROUP, self._instance, self.session, self.generation)
        return [TopicPartition(CHANGELOG, partition, 7) for partition in partitions], member

    def commits(self, key: bytes, target: str = "") -> None:
        with self.producers.borrow_producer() as producer:
            assert producer is not None
            put_entry(producer, key, target)
            producer.commit()


class Stepped(MemoryTransactionalProducer):
    """Tells the order of what is asked of it."""

    def __init__(self, worker: Worker, name: str, *, compresses: bool) -> None:
        super().__init__(worker.log, name, compresses=compresses)
        self._steps, self._worker = worker.steps, worker

    def begin(self, renew_within_s: float = 0.0) -> None:
        if self._worker.stuck:
            self._worker.stuck -= 1
            raise CommitInDoubt("CONCURRENT_TRANSACTIONS")
        super().begin(renew_within_s)

    def await_arrival(self, within_s: float) -> bool:
        self._steps.append("arrived")
        if self.is_silent():
            self._worker.silent -= 1
            return False
        return super().await_arrival(within_s)

    def is_silent(self) -> bool:
        return self._worker.silent > 0 or super().is_silent()

    def read_to(self, positions: list[TopicPartition], member: object) -> None:  # type: ignore[override]
        self._steps.append("proof")
        super().read_to(positions, member)

    def commit(self) -> None:
        self._steps.append("commit")
        super().commit()


def put_entry(producer: TransactionalProducer, key: bytes, target: str = "") -> None:
    producer.begin()
    producer.write(CHANGELOG, 0, [{"key": key, "value": None}])
    if target:
        producer.publish([Entry(target, key, b"v", [], None, "")], 1)


def read_keys(log: MemoryLog) -> list[bytes | None]:
    return [record.key() for record in log.read(CHANGELOG)]


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.create(CHANGELOG, 2)
    made.create(TARGET)
    return made


@pytest.fixture
def worker(log: MemoryLog) -> Worker:
    return Worker(log)


def test_a_commit_proves_whose_the_shards_are_that_it_touched_when_its_records_have_arrived(worker: Worker) -> None:
    worker.commits(b"a", TARGET)
    assert worker.steps == ["arrived", "proof", "commit"]
    offsets = [worker.log.find_committed(GROUP, CHANGELOG, partition) for partition in (0, 1)]
    assert [offset and offset.offset for offset in offsets] == [7, None]


def test_the_producer_that_compresses_proves_whose_the_shards_are_as_well(worker: Worker) -> None:
    with worker.producers.borrow_producer() as producer:
        assert producer is not None
        worker.log.bytes_max[TARGET] = 500
        compressing = producer.open_compressing()
        assert producer.open_compressing() is compressing
        put_entry(compressing, b"a")
        compressing.publish([Entry(TARGET, b"a", b"x" * 5_000, [], None, "")], 1)
        worker.group.expire("w")
        with pytest.raises(TransactionAborted):
            compressing.commit()
    assert worker.steps == ["arrived", "proof"]
    assert (read_keys(worker.log), worker.log.read(TARGET)) == ([], [])


def test_what_touches_no_shard_needs_no_proof(worker: Worker) -> None:
    with worker.producers.borrow_producer() as producer:
        assert producer is not None
        producer.begin()
        producer.publish([Entry(TARGET, b"a", b"v", [], None, "")], 1)
        producer.commit()
    assert "proof" not in worker.steps


def test_a_worker_whose_membership_is_over_commits_nothing(worker: Worker) -> None:
    worker.group.expire("w")
    with pytest.raises(TransactionAborted):
        worker.commits(b"zombie", TARGET)
    assert (read_keys(worker.log), worker.log.read(TARGET)) == ([], [])


def test_a_shard_that_was_given_up_undoes_the_transaction_and_the_producer_goes_on(worker: Worker) -> None:
    worker.given_up = True
    with pytest.raises(TransactionAborted):
        worker.commits(b"a")
    worker.given_up = False
    worker.commits(b"b")
    assert read_keys(worker.log) == [b"b"]


def test_two_may_be_in_use_at_a_time(worker: Worker) -> None:
    with worker.producers.borrow_producer() as first, worker.producers.borrow_producer() as second:
        assert first is not None is not second is not first
        for producer, key in ((first, b"a"), (second, b"b")):
            put_entry(producer, key)
        with worker.producers.borrow_producer() as third:
            assert third is None
        assert worker.producers.trouble() == ""
        second.commit()
        first.commit()
    assert read_keys(worker.log) == [b"a", b"b"]


def left_without_a_leader(worker: Worker, key: bytes) -> None:
    """Commit what has touched the target, whose leader goes away before it is told of that."""
    with worker.producers.borrow_producer() as producer:
        assert producer is not None
        put_entry(producer, key, TARGET)
        worker.log.leaderless.add(TARGET)
        producer.commit()


def test_the_other_one_goes_on_while_a_target_without_a_leader_keeps_a_transaction_from_ending(worker: Worker) -> None:
    left_without_a_leader(worker, b"a")
    with pytest.raises(TransactionAborted, match="another producer goes on"):
        worker.commits(b"b")
    worker.commits(b"b")
    worker.commits(b"c")
    assert (read_keys(worker.log), worker.log.read(TARGET)) == ([b"a", b"b", b"c"], [])
    worker.log.leaderless.clear()
    worker.log.complete_transaction(NAMES[0])
    assert [record.key() for record in worker.log.read(TARGET)] == [b"a"]


def test_the_other_one_goes_on_while_what_was_undone_cannot_be_ended(worker: Worker) -> None:
    worker.stuck = 1
    with pytest.raises(TransactionAborted, match="another producer goes on"):
        worker.commits(b"a")
    worker.commits(b"a")
    assert read_keys(worker.log) == [b"a"]


def test_where_there_is_no_other_nothing_goes_on_before_that_is_ended(log: MemoryLog) -> None:
    worker = Worker(log, names=NAMES[:1])
    worker.stuck = 1
    with pytest.raises(CommitInDoubt):
        worker.commits(b"a")


def test_one_that_was_stuck_is_used_again_once_it_is_free(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_producers, "_ASK_EVERY_S", 0.0)
    left_without_a_leader(worker, b"a")
    with pytest.raises(TransactionAborted):
        worker.commits(b"b")
    worker.commits(b"b")
    worker.log.leaderless.clear()
    with worker.producers.borrow_producer() as first, worker.producers.borrow_producer() as second:
        assert None not in (first, second)
    assert read_keys(worker.log) == [b"a", b"b"]


def test_slow_brokers_are_waited_for_where_there_is_no_other(log: MemoryLog) -> None:
    worker = Worker(log, names=NAMES[:1])
    worker.silent = 3
    worker.commits(b"a")
    assert (read_keys(log), worker.steps) == ([b"a"], ["arrived"] * 4 + ["proof", "commit"])


@pytest.mark.parametrize("fault", [Fault.DOUBT_COMMITTED, Fault.DOUBT_OPEN, Fault.DOUBT_LATE])
def test_after_a_commit_in_doubt_a_new_producer_has_the_brokers_decide(log: MemoryLog, fault: Fault) -> None:
    worker = Worker(log, names=NAMES[:1])
    log.faults.append(fault)
    with pytest.raises(CommitInDoubt):
        worker.commits(b"a")
    worker.commits(b"b")
    assert read_keys(log) == ([b"b"] if fault is Fault.DOUBT_OPEN else [b"a", b"b"])


def test_a_worker_fences_its_own_past_and_what_is_fenced_does_not_fence_back_at_once(log: MemoryLog) -> None:
    former, present = Worker(log), Worker(log)
    for _ in NAMES:
        with pytest.raises(ProducerFenced):
            former.commits(b"zombie")
    with former.producers.borrow_producer() as producer:
        assert producer is None
    assert former.producers.trouble() != ""
    present.commits(b"a")
    assert read_keys(log) == [b"a"]


def test_a_worker_starts_though_one_of_its_last_transactions_has_not_ended(log: MemoryLog) -> None:
    left_without_a_leader(Worker(log), b"a")
    Worker(log).commits(b"b")
    assert read_keys(log) == [b"a", b"b"]


def test_a_worker_does_not_start_before_one_of_its_last_transactions_has_ended(log: MemoryLog) -> None:
    left_without_a_leader(Worker(log, names=NAMES[:1]), b"a")
    with pytest.raises(TransactionFailed):
        Worker(log, names=NAMES[:1])
    log.leaderless.clear()
    Worker(log, names=NAMES[:1]).commits(b"b")
    assert read_keys(log) == [b"a", b"b"]
