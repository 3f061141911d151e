"""Records are fetched by their coordinates, and what is not there is told from what cannot be read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from retry.clock import monotonic_s
from retry.kafka import topics
from retry.kafka.client_config import build_reader_config
from retry.kafka.local_broker import LocalBroker, free_port
from retry.kafka.record_fetch import GONE, UNREADABLE, RecordFetcher
from retry.settings import Settings
from tests.support.process import await_that
from tests.support.reading import UNCOMMITTED, admin, read
from tests.support.shared_broker import PATIENT
from tests.support.topics import create_all

pytestmark = pytest.mark.check

_ASK_S = 30.0
COMPACTED = {
    "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}  # fmt: skip


class Bench:
    """One topic, and who reads single records from it."""

    def __init__(self, broker: LocalBroker) -> None:
        self.servers, self.topic = broker.bootstrap_servers, f"origin-{uuid.uuid4().hex[:8]}"
        self.admin = admin(broker.bootstrap_servers)
        self.pointers = RecordFetcher(build_reader_config(Settings(bootstrap_servers=broker.bootstrap_servers)))

    def create(self, partitions: int = 1, **config: str) -> None:
        create_all(self.admin, [NewTopic(self.topic, partitions, 1, config=config)])
        await_that("the topic is known", lambda: topics.describe(self.admin, [self.topic]))

    def send(self, count: int, partition: int = 0, key: bytes | None = None, *, transaction: str = "") -> Producer:
        """Send `0`, `1`, …; in a transaction that is left open, committed or undone if `transaction` says so."""
        more = {"transactional.id": self.topic} if transaction else {}
        # Idempotent: a batch that is sent once more, as to a topic that was just made, keeps its place among the others.
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True, **more})
        if transaction:
            producer.init_transactions(_ASK_S)
            producer.begin_transaction()
        for n in range(count):
            producer.produce(self.topic, b"%d" % n, key, partition, headers=[("n", b"%d" % n)])
        assert producer.flush(_ASK_S) == 0
        if transaction in ("commit", "abort"):
            getattr(producer, f"{transaction}_transaction")(_ASK_S)
        return producer

    def fetch(self, *offsets: int, partition: int = 0, deadline_s: float = _ASK_S) -> dict[int, bytes | str | None]:
        """Fetch the value or the reason, by offset."""
        found = self.pointers.fetch([(self.topic, partition, offset) for offset in offsets], deadline_s=deadline_s)
        assert [offset for _, _, offset in found] == list(offsets)
        return {place[2]: what if isinstance(what, str) else what.value() for place, what in found.items()}

    def await_fetched(self, wanted: dict[int, bytes | str | None]) -> None:
        """A transaction's end is written to its partitions after its producer is told."""
        await_that(f"{wanted} is fetched", lambda: self.fetch(*wanted) == wanted)


@pytest.fixture
def bench(broker: LocalBroker) -> Iterator[Bench]:
    made = Bench(broker)
    yield made
    made.pointers.close()


def test_nothing_is_asked_for_nothing(bench: Bench) -> None:
    assert bench.pointers.fetch([]) == {}


def test_a_record_comes_with_all_that_it_has(bench: Bench) -> None:
    bench.create()
    bench.send(3, key=b"key")
    record = bench.pointers.fetch([(bench.topic, 0, 1)], deadline_s=_ASK_S)[bench.topic, 0, 1]
    assert not isinstance(record, str)
    assert (record.topic(), record.partition(), record.offset()) == (bench.topic, 0, 1)
    assert (record.key(), record.value(), record.headers()) == (b"key", b"1", [("n", b"1")])


def test_many_of_several_partitions_with_holes_between_them_again_and_again(bench: Bench) -> None:
    bench.create(partitions=3)
    for partition in range(3):
        bench.send(5_000, partition)
    offsets = [4_999, 0, 1, 2, 150, 2_500, 2_501, 700]
    for _ in range(2):
        for partition in range(3):
            assert bench.fetch(*offsets, partition=partition) == {offset: b"%d" % offset for offset in offsets}
    wanted = [(bench.topic, partition, offset) for partition in range(3) for offset in range(0, 5_000, 7)]
    found = bench.pointers.fetch(wanted, deadline_s=_ASK_S)
    assert [what if isinstance(what, str) else what.value() for what in found.values()] == [b"%d" % n for _, _, n in wanted]


@pytest.mark.parametrize("found_late", [False, True])
def test_what_was_deleted_is_gone_whether_it_is_noticed_early_or_late(
    bench: Bench, found_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create()
    bench.send(20)
    bench.admin.delete_records([TopicPartition(bench.topic, 0, 10)])
    bench.await_fetched({9: GONE})
    if found_late:
        monkeypatch.setattr(bench.pointers, "_fetch_offset_range", lambda *_: (0, 20))
    assert bench.fetch(3, 9, 10, 19) == {3: GONE, 9: GONE, 10: b"10", 19: b"19"}


def test_what_lies_beyond_the_end_is_gone(bench: Bench) -> None:
    bench.create(partitions=2)
    bench.send(3)
    assert bench.fetch(2, 3, 4, 1 << 40) == {2: b"2", 3: GONE, 4: GONE, 1 << 40: GONE}
    assert bench.fetch(0, partition=1) == {0: GONE}


def test_no_such_topic_partition_or_offset(bench: Bench) -> None:
    bench.create()
    bench.send(1)
    odd = [("no-such-topic", 0, 0), ("no topic", 0, 0), (bench.topic, 1, 0), (bench.topic, -1, 0), (bench.topic, 1 << 40, 0)]
    odd += [(bench.topic, 0, -1), (bench.topic, 0, -1001), ("", 0, 0), ("x" * 300, 0, 0)]
    assert bench.pointers.fetch(odd, deadline_s=_ASK_S) == dict.fromkeys(odd, GONE)
    assert bench.fetch(0) == {0: b"0"}
    assert "no-such-topic" not in bench.admin.list_topics(timeout=_ASK_S).topics


def test_what_a_transaction_undid_is_gone(bench: Bench) -> None:
    bench.create()
    bench.send(2, transaction="abort")
    bench.await_fetched({0: GONE, 1: GONE, 2: GONE})
    bench.send(2, transaction="commit")
    bench.await_fetched({0: GONE, 1: GONE, 2: GONE, 3: b"0", 4: b"1", 5: GONE})


@pytest.mark.parametrize("before", [0, 1])
def test_what_is_not_committed_yet_is_unreadable_and_comes_when_it_is(bench: Bench, before: int) -> None:
    bench.create()
    bench.send(before)
    producer = bench.send(2, transaction="open")
    first, end = before, before + 2
    assert bench.fetch(first, first + 1, end) == {first: UNREADABLE, first + 1: UNREADABLE, end: GONE}
    producer.commit_transaction(_ASK_S)
    bench.await_fetched({first: b"0", first + 1: b"1", end: GONE})


@pytest.fixture(scope="module")
def eager_and_strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker that compacts at once and asks who may do what."""
    overrides = [
        *PATIENT,
        "log.cleaner.backoff.ms=100",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    ]
    with LocalBroker(tmp_path_factory.mktemp("broker"), overrides=overrides) as local:
        yield local


@pytest.mark.slow
def test_what_was_compacted_away_is_gone(eager_and_strict: LocalBroker) -> None:
    bench = Bench(eager_and_strict)
    bench.create(**COMPACTED)
    bench.send(5, key=b"key")
    bench.send(1, key=b"other")

    def is_compacted() -> bool:
        # Only what is no longer written to is compacted, and a new segment begins with a new record.
        bench.send(1, key=b"roll")
        return all(record.offset > 3 for record in read(bench.servers, [bench.topic], UNCOMMITTED))

    await_that("it is compacted", is_compacted)
    assert bench.fetch(0, 3, 4, 5) == {0: GONE, 3: GONE, 4: b"4", 5: b"0"}
    bench.pointers.close()


@pytest.mark.parametrize("allowed", [AclOperation.ALTER, AclOperation.DESCRIBE], ids=["nothing of use", "all but read"])
def test_what_may_not_be_read_is_unreadable_and_nobody_waits_for_it(
    eager_and_strict: LocalBroker, allowed: AclOperation
) -> None:
    bench = Bench(eager_and_strict)
    bench.create()
    bench.send(3)
    right = AclBinding(
        ResourceType.TOPIC, bench.topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", allowed, AclPermissionType.ALLOW
    )
    for done in bench.admin.create_acls([right]).values():
        done.result(_ASK_S)
    # Whoever waited would wait for as long as that, and a machine that is busy for much less.
    long_s, began_s = 10 * _ASK_S, monotonic_s()
    await_that("it may not be read", lambda: set(bench.fetch(0, 2, deadline_s=long_s).values()) == {UNREADABLE}, long_s)
    assert monotonic_s() - began_s < long_s / 2
    assert bench.fetch(1) == {1: UNREADABLE}
    bench.pointers.close()


def test_what_no_broker_answers_for_is_unreadable() -> None:
    pointers = RecordFetcher(build_reader_config(Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")))
    assert pointers.fetch([("origin", 0, 0)], deadline_s=0.2) == {("origin", 0, 0): UNREADABLE}
    pointers.close()
