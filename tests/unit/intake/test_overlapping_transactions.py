"""Two batches of letters in transactions at a time: they count in their order, or are read again, each letter once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from retry.errors import CommitInDoubt
from retry.intake.batch import BatchResult, WrittenBatch
from retry.intake.consumer import LetterConsumer
from retry.intake.entry_source import RecordVersions
from retry.intake.read_positions import PARTITION, ReadPosition, build_group_offsets, encode_positions
from retry.testing.kafka import Fault, MemoryCluster, MemoryLog, MemoryTransactionalProducer
from tests.support.positions import TOPIC as POSITIONS
from tests.support.positions import FollowedPositions

TOPIC, OTHER, GROUP, TAKEN = "orders.DLT", "others.DLT", "intake", "taken"
IDS = ["app-intake-a", "app-intake-a:1"]
PATIENCE_S = 10.0


class Producer(MemoryTransactionalProducer):
    """Waits where it is told to, and fails to undo where it is told to.

    Attributes:
      arrive: whether records arrive before somebody has waited too long.
    """

    commits_when: threading.Event | None = None
    undoes: BaseException | bool = True
    arrive = True
    waited_for = 0

    def __init__(self, log: MemoryLog, transactional_id: str) -> None:
        super().__init__(log, transactional_id)
        self.is_asked = threading.Event()

    def commit(self) -> None:
        self.is_asked.set()
        if self.commits_when is not None:
            assert self.commits_when.wait(PATIENCE_S)
        super().commit()

    def await_arrival(self, within_s: float) -> bool:
        self.waited_for += 1
        return self.arrive and super().await_arrival(within_s)

    def abort(self) -> None:
        if isinstance(self.undoes, BaseException):
            raise self.undoes
        if not self.undoes:
            self._broken = CommitInDoubt("no answer")
            raise self._broken
        super().abort()


class Brokers(MemoryCluster):
    def make_producer(self, name: str) -> Producer:
        return Producer(self._log, f"app-{name}")


class Copying:
    """Writes down the offset of each letter, in a transaction with where reading goes on."""

    def __init__(self) -> None:
        self.sent: list[dict[str, int]] = []
        self.fails: BaseException | None = None

    def reads_topic(self, _topic: str) -> bool:
        return True

    def prepare(self, messages: Any, _now_ms: int, _incarnations: object) -> BatchResult:
        result = BatchResult()
        result.outcomes = [{"key": m.topic().encode(), "value": b"%d" % m.offset()} for m in messages]
        return result

    def write(self, result: BatchResult, positions: dict[Any, ReadPosition], member: object, writer: Any) -> None:
        writer.begin()
        writer.write(TAKEN, 0, result.outcomes)
        writer.write(POSITIONS, PARTITION, encode_positions(positions))
        if self.fails is not None:
            raise self.fails
        writer.read_to(build_group_offsets(positions), member)
        self.sent.append({topic: position.offset for (topic, _), position in positions.items()})


class Worker:
    def __init__(self, log: MemoryLog, instance: str = "a") -> None:
        self.log, self.intake = log, Copying()
        brokers = Brokers(log, "app", instance)
        positions = FollowedPositions(brokers)
        self.letters = LetterConsumer(
            brokers, f"intake-{instance}", GROUP, [TOPIC, OTHER], self.intake,  # type: ignore[arg-type]
            positions=positions, versions=RecordVersions(), records_max=10, bytes_max=1 << 20,
        )  # fmt: skip

    @property
    def producers(self) -> list[Producer]:
        return self.letters._transactions._producers  # type: ignore[return-value]

    def writes(self, count: int = 2, topic: str = TOPIC) -> WrittenBatch | None:
        """A batch of so many new letters, in an open transaction."""
        for _ in range(count):
            self.log.add_record(topic, b"k", b"v", partition=0)
        return self.writes_on()

    def writes_on(self) -> WrittenBatch | None:
        batch = self.letters.read()
        return self.letters.write(self.letters.prepare(batch, 0)) if batch else None

    def commits(self, *written: WrittenBatch | None) -> list[bool]:
        assert all(written)
        return [self.letters.commit(each) for each in written if each]

    def catches_up(self, turns: int = 6) -> None:
        for _ in range(turns):
            if written := self.writes_on():
                self.letters.commit(written)

    def taken(self, topic: str = TOPIC) -> list[int]:
        return [int(record.value() or b"") for record in self.log.read(TAKEN) if record.key() == topic.encode()]


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    for topic in (TOPIC, OTHER, TAKEN, POSITIONS):
        made.create(topic)
    return made


@pytest.fixture
def worker(log: MemoryLog) -> Worker:
    made = Worker(log)
    assert made.letters.read() is None
    return made


def test_a_batch_is_written_while_the_one_before_it_is_committed(worker: Worker) -> None:
    goes_on = worker.producers[0].commits_when = threading.Event()
    first = worker.writes()
    committing = threading.Thread(target=worker.commits, args=[first])
    committing.start()
    second = worker.writes()
    assert sorted(worker.log.under_way) == IDS
    assert worker.taken() == []
    goes_on.set()
    committing.join(PATIENCE_S)
    assert worker.taken() == [0, 1]
    assert worker.commits(second) == [True]
    assert worker.taken() == [0, 1, 2, 3]
    assert worker.log.find_committed(GROUP, TOPIC, 0).offset == 4


def test_a_batch_sends_only_what_has_moved_since_the_one_before_it_which_is_not_committed_yet(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3, OTHER)
    assert worker.intake.sent == [{TOPIC: 2}, {OTHER: 3}]
    worker.commits(first, second)
    worker.commits(worker.writes(1))
    assert worker.intake.sent[2] == {TOPIC: 3}


@pytest.mark.parametrize("fault", [Fault.ABORTED, Fault.DOUBT_OPEN, Fault.DOUBT_COMMITTED, Fault.DOUBT_LATE])
def test_where_a_commit_fails_the_next_batch_is_undone_and_each_letter_is_taken_in_once(worker: Worker, fault: Fault) -> None:
    first, second = worker.writes(2), worker.writes(3)
    worker.log.faults = [fault]
    assert worker.commits(first, second) == [False, False]
    assert worker.log.under_way == {}
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]
    assert worker.log.find_committed(GROUP, TOPIC, 0).offset == 5


def test_what_has_moved_before_a_failure_is_sent_again_after_it(worker: Worker) -> None:
    worker.commits(worker.writes(2))
    second, third = worker.writes(1), worker.writes(1, OTHER)
    worker.log.faults = [Fault.ABORTED]
    worker.commits(second, third)
    worker.catches_up()
    assert worker.intake.sent[3:] == [{TOPIC: 3, OTHER: 1}]


def test_a_batch_behind_one_whose_commit_is_seen_late_counts(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    worker.log.faults = [Fault.LATE]
    assert worker.commits(first, second) == [True, True]
    third = worker.writes(1)
    # The first is seen only now, and its offsets are older ones.
    assert worker.log.committed_offsets[GROUP, TOPIC, 0].offset == 5
    assert worker.commits(third) == [True]
    assert worker.taken() == list(range(6))


def test_where_a_batch_cannot_be_written_the_one_that_waits_is_undone_too(worker: Worker) -> None:
    first = worker.writes(2)
    worker.intake.fails = CommitInDoubt("no answer")
    assert worker.writes(3) is None
    assert worker.commits(first) == [False]
    worker.intake.fails = None
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_a_batch_that_is_being_committed_when_the_next_fails_counts(worker: Worker) -> None:
    goes_on = worker.producers[0].commits_when = threading.Event()
    first, done = worker.writes(2), list[bool]()
    committing = threading.Thread(target=lambda: done.extend(worker.commits(first)))
    committing.start()
    assert worker.producers[0].is_asked.wait(PATIENCE_S)
    worker.intake.fails = CommitInDoubt("no answer")
    assert worker.writes(3) is None
    goes_on.set()
    committing.join(PATIENCE_S)
    assert done == [True]
    worker.intake.fails = None
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_nothing_is_read_again_before_nothing_is_under_way(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retry.intake.consumer._AGAIN_S", 0.0)
    first = worker.writes(2)
    worker.letters._start_over("for some reason")
    assert worker.letters.read() is None
    assert worker.commits(first) == [False]
    assert worker.letters.read() is not None


def test_a_batch_is_begun_when_all_records_of_the_one_before_it_have_arrived(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    assert [producer.waited_for for producer in worker.producers] == [1, 1]
    assert worker.commits(first, second) == [True, True]


def test_where_records_do_not_arrive_both_batches_are_undone_and_read_again(worker: Worker) -> None:
    first = worker.writes(2)
    worker.producers[1].arrive = False
    assert worker.writes(3) is None
    assert worker.commits(first) == [False]
    assert worker.log.under_way == {}
    worker.producers[1].arrive = True
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_a_batch_is_never_committed_before_the_one_before_it(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    assert worker.commits(second) == [False]
    assert worker.taken() == []
    # What was undone would be a gap behind it.
    assert worker.commits(first) == [False]
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_a_namesake_that_has_opened_the_first_id_only_stops_both(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    MemoryTransactionalProducer(worker.log, IDS[0]).open()
    assert worker.commits(first, second) == [False, False]
    assert worker.log.under_way == {}
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_a_namesake_that_has_opened_the_second_id_only_leaves_the_first_batch_standing(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    MemoryTransactionalProducer(worker.log, IDS[1]).open()
    assert worker.commits(first, second) == [True, False]
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_what_is_committed_is_known_before_anything_is_read_again(worker: Worker) -> None:
    known, transactions = list[int](), worker.letters._transactions
    is_over = transactions._over

    def over(transaction: Any) -> None:
        known.append(worker.letters._cursors.find_committed((TOPIC, 0)))
        is_over(transaction)

    transactions._over = over  # type: ignore[method-assign]
    worker.commits(worker.writes(2))
    assert known == [2]


def test_a_producer_that_cannot_undo_is_opened_again(worker: Worker) -> None:
    first, second, stuck = worker.writes(2), worker.writes(3), worker.producers[1]
    stuck.undoes = False
    worker.log.faults = [Fault.ABORTED]
    assert worker.commits(first, second) == [False, False]
    assert worker.producers[1] is not stuck
    assert worker.log.under_way == {}
    worker.catches_up()
    assert worker.taken() == [0, 1, 2, 3, 4]


def test_whatever_is_not_expected_ends_with_nothing_committed_behind_it(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)

    def broken() -> None:
        raise SystemError

    worker.producers[0].commit = broken  # type: ignore[method-assign]
    with pytest.raises(SystemError):
        worker.commits(first)
    assert worker.commits(second) == [False]
    worker.letters.close()
    assert worker.taken() == []


@pytest.mark.parametrize("fails", ["write", "commit"])
def test_a_worker_that_cannot_undo_ends_all_the_same(worker: Worker, fails: str) -> None:
    first = worker.writes(2)
    worker.producers[0].undoes = SystemError("the client, fenced while it waited")
    if fails == "write":
        worker.intake.fails = CommitInDoubt("no answer")
        with pytest.raises(SystemError):
            worker.writes(3)
    else:
        worker.letters._start_over("for some reason")
        with pytest.raises(SystemError):
            worker.commits(first)
    closing = threading.Thread(target=worker.letters.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert worker.taken() == []


def test_a_worker_that_starts_ends_what_its_past_left_open_with_both_producers(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    successor = Worker(worker.log)
    assert successor.log.under_way == {}
    # The former one learns that it was fenced, and would only open its ids again.
    successor.catches_up()
    assert successor.taken() == [0, 1, 2, 3, 4]
    assert worker.commits(first, second) == [False, False]


def test_no_two_workers_have_a_producer_in_common(log: MemoryLog) -> None:
    for instance in ("a", "a-1", "a-1-1", "a.1"):
        Worker(log, instance)
    assert (len(log.epochs), set(log.epochs.values())) == (8, {1})


def test_partitions_are_given_up_when_both_batches_are_committed(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    leaving = threading.Thread(target=worker.letters._drain, args=[[(TOPIC, 0)]])
    leaving.start()
    assert worker.commits(first) == [True]
    assert leaving.is_alive()
    assert worker.commits(second) == [True]
    leaving.join(PATIENCE_S)
    assert not leaving.is_alive()
    assert worker.letters._epoch == 0


def test_what_is_not_committed_in_time_before_its_partitions_go_is_undone(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retry.intake.consumer._DRAIN_S", 0.0)
    first, second = worker.writes(2), worker.writes(3)
    worker.letters._drain([(TOPIC, 0)])
    assert worker.commits(first, second) == [False, False]
    assert worker.log.under_way == {}


def test_closing_undoes_what_was_written_and_leaves_nothing_open(worker: Worker) -> None:
    first, second = worker.writes(2), worker.writes(3)
    worker.letters.close()
    assert worker.log.under_way == {}
    assert worker.commits(first, second) == [False, False]
    successor = Worker(worker.log)
    successor.catches_up()
    assert successor.taken() == [0, 1, 2, 3, 4]
