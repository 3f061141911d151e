"""What the transactional producer makes of answers of its client that brokers seldom cause."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, TransactionAborted, TransactionFailed
from retry.kafka.client_config import build_producer_config
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings
from tests.support.process import await_that


class FullClient:
    """A client whose queue is full at first; then it refuses the record."""

    def __init__(self) -> None:
        self.answers: list[Exception] = [
            BufferError(), BufferError(), KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        ]
        self.aborted = False

    def produce(self, *_record: Any, **_named: Any) -> None:
        raise self.answers.pop(0)

    def poll(self, _within_s: float) -> None: ...

    def __len__(self) -> int:
        return 0

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "one is under way"))

    def abort_transaction(self, _within_s: float) -> None:
        self.aborted = True


class BusyClient:
    """A client whose coordinator is not known, or still ends what the producer before left open; it is told so a few times."""

    def __init__(self, times: int) -> None:
        self._times, self.waited_s = times, list[float]()

    def init_transactions(self, within_s: float) -> None:
        self.waited_s.append(within_s)
        if len(self.waited_s) <= self._times:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "not yet", retriable=True))


def test_a_producer_that_is_opened_asks_again_at_once_and_then_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    # The client by itself asks again after half a second.
    producer = KafkaTransactionalProducer(build_producer_config(Settings(bootstrap_servers="localhost:1"), "app-shard-0"))
    client = BusyClient(3)
    monkeypatch.setattr(producer, "_producer", client)
    producer.open(60.0)
    assert client.waited_s == [0.02, 0.04, 0.08, 0.16]


def test_a_producer_that_is_opened_says_so_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = KafkaTransactionalProducer(build_producer_config(Settings(bootstrap_servers="localhost:1"), "app-shard-0"))
    monkeypatch.setattr(producer, "_producer", BusyClient(1_000))
    with pytest.raises(CommitInDoubt):
        producer.open(0.1)


def test_a_record_that_is_refused_after_a_full_queue_undoes_the_transaction_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = KafkaTransactionalProducer(build_producer_config(Settings(bootstrap_servers="localhost:1"), "app-shard-0"))
    client = FullClient()
    monkeypatch.setattr(producer, "_producer", client)
    with pytest.raises(TransactionAborted):
        producer.publish([Entry("orders.retry", b"k", b"v", [], None, "")], 1)
    assert client.aborted


def test_a_producer_that_could_not_send_offsets_is_let_go_without_a_garbage_collection() -> None:
    producer = KafkaTransactionalProducer(build_producer_config(Settings(bootstrap_servers="localhost:1"), "app-intake"))
    gone = weakref.ref(producer)
    gc.disable()
    try:
        # No transaction was begun, so the client refuses.
        with pytest.raises(TransactionFailed):
            producer.read_to([TopicPartition("orders.DLT", 0, 1)], Consumer({"group.id": "group"}).consumer_group_metadata())
        del producer
        # The thread that asked may not have come to its end yet.
        await_that("it is let go", lambda: gone() is None, 60.0)
    finally:
        gc.enable()
