"""A shard's second transactional id: when it is used, and that two ids do not make two owners."""

from __future__ import annotations

import pytest

from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted, TransactionFailed
from retry.kafka import spare_producer
from retry.kafka.spare_producer import SparedProducer
from retry.testing.kafka import Fault, MemoryLog, MemoryTransactionalProducer

CHANGELOG, TARGET = "changelog", "orders.retry"
MAIN, SPARE = "shard-0", "shard-0-spare"


class Silent(MemoryTransactionalProducer):
    """A client of the main id of whose records nobody says whether they have arrived."""

    def arrived(self, within_s: float) -> bool:
        return not self.is_silent()

    def is_silent(self) -> bool:
        return self._id == MAIN


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.create(CHANGELOG)
    made.create(TARGET)
    return made


def writer(log: MemoryLog, of: type[MemoryTransactionalProducer] = MemoryTransactionalProducer) -> SparedProducer:
    return SparedProducer(lambda name: of(log, name), MAIN)


def opened(log: MemoryLog, of: type[MemoryTransactionalProducer] = MemoryTransactionalProducer) -> SparedProducer:
    made = writer(log, of)
    made.open()
    return made


def put(spared: SparedProducer, key: bytes, target: str = "") -> None:
    spared.begin()
    spared.write(CHANGELOG, 0, [{"key": key, "value": None}])
    if target:
        spared.publish([Entry(target, key, b"v", [], None, "")], 1)


def committed(spared: SparedProducer, key: bytes) -> None:
    put(spared, key)
    spared.commit()


def seen(log: MemoryLog) -> list[bytes | None]:
    return [record.key() for record in log.read(CHANGELOG)]


def left_without_a_leader(spared: SparedProducer, log: MemoryLog, key: bytes) -> None:
    """Commit what has touched the target, whose leader goes away before it is told of that."""
    put(spared, key, TARGET)
    log.leaderless.add(TARGET)
    spared.commit()


def test_the_other_id_goes_on_while_a_target_without_a_leader_keeps_a_transaction_from_ending(log: MemoryLog) -> None:
    spared = opened(log)
    left_without_a_leader(spared, log, b"a")
    with pytest.raises(TransactionAborted, match=f"{SPARE} goes on"):
        committed(spared, b"b")
    committed(spared, b"b")
    committed(spared, b"c")
    assert seen(log) == [b"a", b"b", b"c"]
    assert log.read(TARGET) == []
    log.leaderless.clear()
    log.finish(MAIN)
    assert [record.key() for record in log.read(TARGET)] == [b"a"]


def test_an_aborted_transaction_that_cannot_end_is_no_hindrance_either(log: MemoryLog) -> None:
    spared = opened(log)
    committed(spared, b"a")
    log.leaderless.add(TARGET)
    put(spared, b"b", TARGET)
    spared.abort()
    with pytest.raises(TransactionAborted):
        committed(spared, b"b")
    committed(spared, b"b")
    assert seen(log) == [b"a", b"b"]


def test_the_id_that_was_stuck_is_the_spare_once_it_is_free(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_producer, "_ASK_EVERY_S", 0.0)
    spared = opened(log)
    left_without_a_leader(spared, log, b"a")
    with pytest.raises(TransactionAborted):
        committed(spared, b"b")
    committed(spared, b"b")
    log.leaderless.clear()
    committed(spared, b"c")
    left_without_a_leader(spared, log, b"d")
    with pytest.raises(TransactionAborted, match=f"{MAIN} goes on"):
        committed(spared, b"e")
    committed(spared, b"e")
    assert seen(log) == [b"a", b"b", b"c", b"d", b"e"]


def test_opening_fences_both_ids_of_the_former_owner(log: MemoryLog) -> None:
    zombie = opened(log, Silent)
    zombie._may_go_over = True
    opened(log)
    with pytest.raises(TransactionAborted, match=f"{SPARE} goes on"):
        committed(zombie, b"zombie")
    with pytest.raises(ProducerFenced):
        committed(zombie, b"zombie")
    assert seen(log) == []


def test_of_two_that_open_at_the_same_time_one_commits_though_each_has_one_id(log: MemoryLog) -> None:
    one, other = writer(log, Silent), writer(log)
    one._writer.open()
    other.open()
    one._spare.open()
    one._spare_is_open = True
    committed(other, b"other")
    for _ in range(2):
        with pytest.raises(TransactionFailed):
            committed(one, b"one")
    assert seen(log) == [b"other"]


def test_an_id_that_was_opened_again_is_no_spare_until_the_present_one_has_committed(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was fenced, and has not noticed, opens the id that was stuck: it must not go on with that one."""
    monkeypatch.setattr(spare_producer, "_ASK_EVERY_S", 0.0)
    zombie = opened(log)
    left_without_a_leader(zombie, log, b"a")
    with pytest.raises(TransactionAborted):
        committed(zombie, b"b")
    committed(zombie, b"b")
    log.leaderless.clear()
    owner = opened(log)
    zombie.begin()
    assert not zombie._may_go_over
    with pytest.raises(ProducerFenced):
        zombie.commit()
    with pytest.raises(ProducerFenced):
        committed(owner, b"c")
    assert seen(log) == [b"a", b"b"]


@pytest.mark.parametrize("fault", [Fault.DOUBT_COMMITTED, Fault.DOUBT_OPEN, Fault.DOUBT_LATE])
def test_after_a_commit_in_doubt_neither_id_goes_on(log: MemoryLog, fault: Fault) -> None:
    spared = opened(log)
    committed(spared, b"a")
    log.faults.append(fault)
    with pytest.raises(CommitInDoubt):
        committed(spared, b"b")
    with pytest.raises(CommitInDoubt):
        committed(spared, b"b")
    again = opened(log)
    committed(again, b"c")
    assert seen(log) == ([b"a", b"c"] if fault is Fault.DOUBT_OPEN else [b"a", b"b", b"c"])


def test_after_an_abort_in_doubt_neither_id_goes_on(log: MemoryLog) -> None:
    spared = opened(log)
    left_without_a_leader(spared, log, b"a")
    put(spared, b"b")
    with pytest.raises(CommitInDoubt):
        spared.abort()
    with pytest.raises(CommitInDoubt):
        committed(spared, b"b")


def test_a_shard_is_not_opened_before_the_last_transactions_of_both_ids_have_ended(log: MemoryLog) -> None:
    left_without_a_leader(opened(log), log, b"a")
    with pytest.raises(TransactionFailed):
        opened(log)
    log.leaderless.clear()
    committed(opened(log), b"b")
    assert seen(log) == [b"a", b"b"]


def test_slow_brokers_are_waited_for_where_nothing_was_committed_since_the_spare_was_opened(log: MemoryLog) -> None:
    spared = opened(log, Silent)
    put(spared, b"a")
    assert not spared.arrived(0.0)
    spared.commit()
    assert seen(log) == [b"a"]
