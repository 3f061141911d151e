"""No two transactions that were undone have the same producer id, whatever they were undone for, and across restarts."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from retry.delay_queue.envelopes import Entry
from retry.errors import ProducerFenced, TransactionAborted
from retry.kafka import topics
from retry.kafka.cluster import KafkaCluster
from retry.kafka.local_broker import LocalBroker
from retry.kafka.record_writers import RecordWriters
from retry.kafka.topic_ids import ChangelogIdentity
from retry.kafka.transactional_ids import RememberedIds
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings
from tests.support.process import await_that
from tests.support.reading import COMMITTED, UNCOMMITTED, admin, read
from tests.support.topics import create_all

pytestmark = pytest.mark.check

NARROW_BYTES, PATIENT_S, NOW_MS = 2_000, 60.0, 1
NAME = "sweep-a-0"


class Place:
    """A topic, another one that takes small records alone, and processes of one worker, one after another."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self._file = servers, folder / "ids.json"
        self.topic, self.narrow = f"t{uuid.uuid4().hex[:8]}", f"t{uuid.uuid4().hex[:8]}"
        self.client = admin(servers)
        # Their records are of 1970, and brokers look every five minutes for what is older than a week.
        kept = {"retention.ms": "-1"}
        narrow = NewTopic(self.narrow, 1, 1, config=kept | {"max.message.bytes": str(NARROW_BYTES)})
        create_all(self.client, [NewTopic(self.topic, 1, 1, config=kept), narrow])
        await_that("the topics are known", lambda: len(topics.describe(self.client, [self.topic, self.narrow])) == 2)

    def start_process(self) -> Callable[[], KafkaTransactionalProducer]:
        """Start a process of the worker: return what makes its producer, again and again, and opens it."""
        settings = Settings(bootstrap_servers=self.servers, app_id=self.topic)
        identity = ChangelogIdentity(self.client, self.topic, topics.describe(self.client, [self.topic])[self.topic].topic_id)
        cluster = KafkaCluster(settings, self.client, "a", identity, RememberedIds(self._file))

        def make_producer() -> KafkaTransactionalProducer:
            made = cluster.make_producer(NAME)
            made.open(PATIENT_S)
            return made

        return make_producer

    def build_entry(self, text: str, destination: str = "") -> Entry:
        return Entry(destination or self.topic, b"k", text.encode(), [], None, "team")

    def write(self, producer: KafkaTransactionalProducer, text: str) -> None:
        """Begin a transaction, and write a record that arrives."""
        producer.begin()
        producer.publish([self.build_entry(text)], NOW_MS)
        assert producer.await_arrival(PATIENT_S)

    def commit(self, producer: KafkaTransactionalProducer, text: str) -> None:
        self.write(producer, text)
        producer.commit()

    def read_values(self, isolation: str) -> list[str]:
        return [(record.value or b"").decode() for record in read(self.servers, [self.topic], isolation)]

    def count_undone(self) -> Counter[int]:
        """Count the undone records of the topic by producer id."""
        writers, undone = RecordWriters({"bootstrap.servers": self.servers}), Counter[int]()
        for record in read(self.servers, [self.topic], UNCOMMITTED):
            writer = writers.find(self.topic, 0, record.offset)
            assert writer is not None
            if writer.was_undone:
                undone[writer.producer_id] += 1
        return undone


@pytest.fixture
def place(broker: LocalBroker, tmp_path: Path) -> Place:
    return Place(broker.bootstrap_servers, tmp_path)


def test_each_transaction_that_a_producer_undoes_has_a_producer_id_of_its_own(place: Place) -> None:
    producer = place.start_process()()
    for n in range(3):
        place.write(producer, f"undone {n}")
        producer.abort()
    place.commit(producer, "done 1")
    place.commit(producer, "done 2")
    place.write(producer, "undone 3")
    producer.abort()
    place.commit(producer, "done 3")
    producer.close()
    assert place.read_values(COMMITTED) == ["done 1", "done 2", "done 3"]
    undone = place.count_undone()
    assert len(undone) == 4 and set(undone.values()) == {1}


def test_transactions_of_refused_records_and_of_the_search_for_them_have_ids_of_their_own(place: Place) -> None:
    producer = place.start_process()()
    too_large = "x" * 2 * NARROW_BYTES
    for n in range(2):
        entries = [place.build_entry(f"beside {n}"), place.build_entry(too_large, place.narrow)]
        place.write(producer, f"undone {n}")
        with pytest.raises(TransactionAborted):
            producer.publish(entries, NOW_MS)
            producer.commit()
        assert list(producer.rehearse_entries(entries, NOW_MS)) == [1]
        place.commit(producer, f"done {n}")
    producer.close()
    assert place.read_values(COMMITTED) == ["done 0", "done 1"]
    # Of one transaction there may be two batches, and so two records.
    undone = place.count_undone()
    assert len(undone) >= 4 and max(undone.values()) <= 2


def test_what_was_left_open_is_undone_once_for_each_id_by_the_next_producer_or_process(place: Place) -> None:
    for process in range(3):
        make_producer = place.start_process()
        for n in range(2):
            # As after a commit in doubt, and then as after a kill: it is let go with a transaction under way.
            producer = make_producer()
            place.commit(producer, f"done {process} {n}")
            place.write(producer, f"left {process} {n}")
            producer.close()
    place.start_process()().close()
    assert place.read_values(COMMITTED) == [f"done {process} {n}" for process in range(3) for n in range(2)]
    undone = place.count_undone()
    assert len(undone) == 6 and set(undone.values()) == {1}


def test_a_former_process_is_fenced_by_the_next_one_under_whatever_id_it_was(place: Place) -> None:
    former = place.start_process()()
    place.write(former, "undone")
    former.abort()
    place.write(former, "late")
    owner = place.start_process()()
    with pytest.raises(ProducerFenced):
        former.commit()
    place.commit(owner, "done")
    assert place.read_values(COMMITTED) == ["done"]
