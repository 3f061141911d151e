"""What transactions promise, in memory and on a real broker."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from retry.clock import wall_ms
from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, ProducerFenced, ProducerSpent, TransactionAborted, TransactionFailed
from retry.kafka import topics, transactional_producer
from retry.kafka.client_config import Config, add_gzip, build_producer_config
from retry.kafka.local_broker import LocalBroker
from retry.kafka.record_limits import fits_compressed, measure_batch
from retry.kafka.refused_records import Anchor
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.record import Header, Headers
from retry.settings import Settings
from retry.testing.kafka import Fault, MemoryLog, MemoryTransactionalProducer, murmur2
from tests.support.process import await_that
from tests.support.reading import COMMITTED, read
from tests.support.topics import create_all

NOW_MS = wall_ms()
PARTITIONS = 5
NARROW_BYTES = 2_000
AGE_MS_MAX = 3_600_000
_ASK_S = 20.0
# How long a producer is given here for what takes it seconds, and a transaction may be open: as long as a starved core takes.
_PATIENT_S = 60

Writer = Any


class Seen(NamedTuple):
    """A record as a read_committed reader sees it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class InMemory:
    """A log in memory and its producers."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.topic, self.narrow = "orders.retry", "narrow.retry"
        self.log.create(self.topic, PARTITIONS)
        self.log.create(self.narrow, 1, bytes_max=NARROW_BYTES)
        # Takes no record without a key, and none that is older than an hour.
        self.strict = "strict.retry"
        self.log.create(self.strict, 2)
        self.log.needs_key.add(self.strict)
        self.log.age_ms_max[self.strict] = AGE_MS_MAX
        self.forbidden = "forbidden.retry"
        self.log.create(self.forbidden)
        self.log.forbidden.add(self.forbidden)
        self.group = self.member = "intake"

    def writer(self, transactional_id: str) -> Writer:
        """Return a producer that is not opened yet."""
        return MemoryTransactionalProducer(self.log, transactional_id)

    def compressing_writer(self, transactional_id: str) -> Writer:
        """Return a producer that is not opened yet, for what its topic takes only compressed."""
        return MemoryTransactionalProducer(self.log, transactional_id, compresses=True)

    def seen(self, topic: str | None = None) -> list[Seen]:
        """Everything committed, partition by partition."""
        return [
            Seen(r.partition(), r.key(), r.value(), r.headers() or [], r.timestamp()[1])
            for r in self.log.read(topic or self.topic)
        ]

    def position(self) -> int | None:
        """Return the offset that the group has committed for partition 1."""
        committed = self.log.committed_offsets.get((self.group, self.topic, 1))
        return committed and committed.offset


class OnBroker:
    """The contract on a real broker, with topics and ids that no other test uses."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._run = uuid.uuid4().hex[:8]
        # The transaction coordinator lets nobody write there, and names no record.
        self.forbidden = "__transaction_state"
        self._settings = Settings(bootstrap_servers=bootstrap_servers, app_id=f"t{self._run}")
        self.topic, self.narrow, self.group = f"{self._run}.retry", f"{self._run}.narrow", f"{self._run}-intake"
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        # For ever: a record of long ago would be gone as soon as the broker looks for what is too old.
        kept = {"retention.ms": "-1"}
        narrow = NewTopic(self.narrow, 1, 1, config=kept | {"max.message.bytes": str(NARROW_BYTES)})
        self.strict = f"{self._run}.strict"
        demands = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(AGE_MS_MAX)}
        new = [NewTopic(self.topic, PARTITIONS, 1, config=kept), narrow, NewTopic(self.strict, 2, 1, config=demands)]
        create_all(admin, new)
        await_that("topics are known", lambda: len(topics.describe(admin, [self.topic, self.narrow])) == 2)
        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": self.group})
        self.member = self._consumer.consumer_group_metadata()
        self._writers: list[KafkaTransactionalProducer] = []

    def writer(self, transactional_id: str) -> Writer:
        """Return a producer that is not opened yet."""
        # Nothing is compressed, so that what is too large does not shrink below the limit.
        return self._made(self._config(transactional_id) | {"compression.type": "none"})

    def compressing_writer(self, transactional_id: str) -> Writer:
        """Return a producer that is not opened yet, for what its topic takes only compressed."""
        return self._made(add_gzip(self._config(transactional_id)))

    def _config(self, transactional_id: str) -> Config:
        config = build_producer_config(self._settings, f"{self._run}-{transactional_id}")
        return config | {"transaction.timeout.ms": _PATIENT_S * 1_000}

    def _made(self, config: Config) -> Writer:
        self._writers.append(KafkaTransactionalProducer(config))
        return self._writers[-1]

    def seen(self, topic: str | None = None) -> list[Seen]:
        """Everything committed, partition by partition."""
        found = read(self._settings.bootstrap_servers, [topic or self.topic], COMMITTED)
        found.sort(key=lambda r: (r.partition, r.offset))
        return [Seen(r.partition, r.key, r.value, r.headers, r.timestamp_ms) for r in found]

    def position(self) -> int | None:
        """Return the offset that the group has committed for partition 1."""
        offset = self._consumer.committed([TopicPartition(self.topic, 1)], _ASK_S)[0].offset
        return None if offset < 0 else offset

    def close(self) -> None:
        """Let go of the clients."""
        self._consumer.close()
        for writer in self._writers:
            writer.close()


Log = InMemory | OnBroker


@pytest.fixture(params=["memory", "broker"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    if request.param == "memory":
        yield InMemory()
        return
    # Of the eight seconds of a rehearsal three go by until the client takes it that a topic is not there.
    for name in ("_REHEARSE_S", "_OFFSETS_S"):
        monkeypatch.setattr(transactional_producer, name, float(_PATIENT_S))
    broker: LocalBroker = request.getfixturevalue("broker")
    made = OnBroker(broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def writer(log: Log) -> Writer:
    made = log.writer("a")
    made.open(_PATIENT_S)
    return made


def entry(log: Log, key: bytes | None, value: bytes | None, *headers: Header, **changed: Any) -> Entry:
    return Entry(changed.get("to", log.topic), key, value, list(headers), changed.get("timestamp_ms"), "team")


def commit_writer(writer: Writer, *entries: Entry) -> None:
    writer.begin()
    writer.publish(entries, NOW_MS)
    writer.commit()


def test_what_is_committed_is_seen(log: Log, writer: Writer) -> None:
    writer.begin()
    writer.publish([entry(log, b"k", b"published")], NOW_MS)
    writer.write(log.topic, 3, [{"key": b"k", "value": b"written"}])
    writer.commit()
    assert {(seen.value, seen.partition == 3) for seen in log.seen()} >= {(b"written", True)}
    assert sorted(seen.value or b"" for seen in log.seen()) == [b"published", b"written"]


def test_what_has_a_partition_of_its_own_goes_there_and_the_rest_where_its_key_decides(log: Log, writer: Writer) -> None:
    commit_writer(writer, entry(log, b"k", b"by its key"))
    (by_key,) = {seen.partition for seen in log.seen()}
    others = [n for n in range(PARTITIONS) if n != by_key]
    writer.begin()
    told = [*others, -1]
    writer.publish([entry(log, b"k", b"%d" % n) for n in told], NOW_MS, told)
    writer.commit()
    assert {(seen.value, seen.partition) for seen in log.seen()} == {
        (b"by its key", by_key), (b"-1", by_key), *((b"%d" % n, n) for n in others),
    }  # fmt: skip


def test_a_partition_that_is_not_there_undoes_the_transaction_and_a_rehearsal_names_it(log: Log, writer: Writer) -> None:
    commit_writer(writer, entry(log, b"k", b"before"))
    records, partitions = [entry(log, b"k", b"good"), entry(log, b"k", b"bad")], [-1, PARTITIONS + 7]
    # It is spent where it undoes at once what brokers did not begin yet, since they still completed the one before.
    with pytest.raises((TransactionAborted, ProducerSpent)):
        writer.begin()
        writer.publish(records, NOW_MS, partitions)
        writer.commit()
    assert list(writer.rehearse_entries(records, NOW_MS, partitions)) == [1]
    commit_writer(writer, entry(log, b"k", b"after"))
    assert sorted(seen.value or b"" for seen in log.seen()) == [b"after", b"before"]


def test_what_is_aborted_is_not_seen_and_the_next_transaction_is(log: Log, writer: Writer) -> None:
    writer.begin()
    writer.publish([entry(log, b"k", b"undone")], NOW_MS)
    writer.abort()
    commit_writer(writer, entry(log, b"k", b"done"))
    assert [seen.value for seen in log.seen()] == [b"done"]


def test_what_a_former_producer_left_open_is_undone_by_the_next(log: Log, writer: Writer) -> None:
    writer.begin()
    writer.publish([entry(log, b"k", b"left")], NOW_MS)
    writer.write(log.topic, 1, [{"key": b"k", "value": None}])
    successor = log.writer("a")
    successor.open()
    commit_writer(successor, entry(log, b"k", b"done"))
    assert [seen.value for seen in log.seen()] == [b"done"]


def test_a_renewed_client_undoes_what_was_under_way_and_goes_on(log: Log, writer: Writer) -> None:
    writer.begin()
    writer.publish([entry(log, b"k", b"left")], NOW_MS)
    writer.write(log.topic, 1, [{"key": b"k", "value": None}])
    writer.renew_client()
    commit_writer(writer, entry(log, b"k", b"done"))
    assert [seen.value for seen in log.seen()] == [b"done"]


def test_a_fenced_producer_writes_nothing_more(log: Log, writer: Writer) -> None:
    commit_writer(writer, entry(log, b"k", b"before"))
    log.writer("a").open()
    writer.begin()
    writer.publish([entry(log, b"k", b"after")], NOW_MS)
    with pytest.raises(ProducerFenced):
        writer.commit()
    with pytest.raises(TransactionFailed):
        writer.begin()
    assert [seen.value for seen in log.seen()] == [b"before"]


def test_a_producer_fenced_within_a_transaction_commits_nothing(log: Log, writer: Writer) -> None:
    writer.begin()
    writer.publish([entry(log, b"k", b"torn")], NOW_MS)
    log.writer("a").open()
    with pytest.raises(ProducerFenced):
        writer.commit()
    assert log.seen() == []


def test_another_id_fences_nobody(log: Log, writer: Writer) -> None:
    log.writer("b").open()
    commit_writer(writer, entry(log, b"k", b"v"))
    assert [seen.value for seen in log.seen()] == [b"v"]


def test_null_and_empty_are_kept_apart(log: Log, writer: Writer) -> None:
    pairs = [(b"", b""), (b"", None), (b"k", None), (b"k", b""), (None, b""), (None, None), (b"\xff\xfe\0", b"\xff\0")]
    commit_writer(writer, *(entry(log, key, value) for key, value in pairs))
    assert sorted(map(repr, [(seen.key, seen.value) for seen in log.seen()])) == sorted(map(repr, pairs))


def test_written_rows_keep_null_and_empty_apart_and_their_order(log: Log, writer: Writer) -> None:
    rows = [(b"k1", b""), (b"k1", None), (b"\0\xff", b"\xff"), (b"", b"v")]
    writer.begin()
    writer.write(log.topic, 2, [{"key": key, "value": value} for key, value in rows])
    writer.commit()
    assert [(seen.partition, seen.key, seen.value) for seen in log.seen()] == [(2, *row) for row in rows]


def test_headers_keep_order_duplicates_nulls_and_empty_names(log: Log, writer: Writer) -> None:
    headers: Headers = [
        ("b", b"1"), ("a", b"2"), ("b", b"3"), ("", b"empty name"), ("none", None), ("empty", b""),
        ("", None), ("c\r\nd", b"\r\n"), ("naïve-☃", b"\xff\0"), ("b", b"1"),
    ]  # fmt: skip
    commit_writer(writer, entry(log, b"k", b"v", *headers))
    assert log.seen()[0].headers == headers


def test_keys_choose_partitions_as_java_does(log: Log, writer: Writer) -> None:
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"abcde", b"\xff\0", b"order-42", "ключ".encode(), b"x" * 1_001]
    commit_writer(writer, *(entry(log, key, b"") for key in keys))
    chosen = {seen.key: seen.partition for seen in log.seen()}
    assert chosen == {key: (murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys}


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % (1 << 32)


def test_one_key_keeps_its_order(log: Log, writer: Writer) -> None:
    for start in (0, 500):
        commit_writer(writer, *(entry(log, b"k", b"%d" % n) for n in range(start, start + 500)))
    assert [seen.value for seen in log.seen()] == [b"%d" % n for n in range(1_000)]


@pytest.mark.parametrize(
    ("stamp_ms", "expected_ms"),
    [(None, NOW_MS), (NOW_MS - 1, NOW_MS - 1), (1, 1), (NOW_MS + 1, NOW_MS), (NOW_MS + 7_200_000, NOW_MS)],
    ids=["none", "earlier", "long ago", "later", "hours later"],
)
def test_timestamps_are_kept_but_never_from_the_future(
    log: Log, writer: Writer, stamp_ms: int | None, expected_ms: int
) -> None:
    commit_writer(writer, entry(log, b"k", b"v", timestamp_ms=stamp_ms))
    assert log.seen()[0].timestamp_ms == expected_ms


def test_positions_are_part_of_the_transaction(log: Log, writer: Writer) -> None:
    for offset, end in ((5, writer.abort), (7, writer.commit), (9, writer.abort)):
        writer.begin()
        writer.publish([entry(log, b"k", b"%d" % offset)], NOW_MS)
        writer.read_to([TopicPartition(log.topic, 1, offset)], log.member)
        end()
    assert log.position() == 7
    assert [seen.value for seen in log.seen()] == [b"7"]


def test_of_positions_that_two_transactions_send_those_count_that_came_last(log: Log, writer: Writer) -> None:
    beside = log.writer("b")
    beside.open()
    for offset, first, last in ((5, writer, beside), (7, beside, writer)):
        for sender, at in ((first, offset), (last, offset + 1)):
            sender.begin()
            sender.publish([entry(log, b"k", b"%d" % at)], NOW_MS)
            sender.read_to([TopicPartition(log.topic, 1, at)], log.member)
        last.commit()
        first.commit()
        await_that("what came last counts", lambda expected=offset + 1: log.position() == expected)


def test_positions_of_a_fenced_producer_are_refused(log: Log, writer: Writer) -> None:
    log.writer("a").open()
    writer.begin()
    with pytest.raises(ProducerFenced):
        writer.read_to([TopicPartition(log.topic, 1, 5)], log.member)
    assert log.position() is None


def test_a_transaction_with_nothing_in_it_commits(log: Log, writer: Writer) -> None:
    commit_writer(writer)
    commit_writer(writer)
    assert log.seen() == []


def test_a_forbidden_topic_undoes_all_once_the_coordinator_has_taken_anything(log: Log, writer: Writer) -> None:
    with pytest.raises(TransactionAborted):
        writer.begin()
        writer.write(log.topic, 0, [{"key": b"k", "value": b"undone"}])
        assert writer.await_arrival(60.0)
        writer.publish([bad(log, "forbidden")], NOW_MS)
        assert writer.await_arrival(60.0)
        writer.commit()
    commit_writer(writer, entry(log, b"k", b"next"))
    assert [seen.value for seen in log.seen()] == [b"next"]


@pytest.mark.parametrize("refused", ["unknown topic", "too large", "no key", "too old"])
def test_one_refused_record_undoes_all_and_the_next_transaction_works(log: Log, writer: Writer, refused: str) -> None:
    with pytest.raises(TransactionAborted):
        commit_writer(writer, entry(log, b"k", b"good"), bad(log, refused), entry(log, b"k", b"good too"))
    assert log.seen() == []
    commit_writer(writer, entry(log, b"k", b"next"))
    assert [seen.value for seen in log.seen()] == [b"next"]


@pytest.mark.parametrize(
    ("refused", "codes"),
    [
        ("unknown topic", {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}),
        ("too large", {KafkaError.MSG_SIZE_TOO_LARGE}),
        ("forbidden", {KafkaError.TOPIC_AUTHORIZATION_FAILED}),
        ("no key", {KafkaError.INVALID_RECORD}),
        ("too old", {KafkaError.INVALID_TIMESTAMP}),
    ],
)
def test_a_rehearsal_says_who_is_refused_and_leaves_nothing(
    log: Log, writer: Writer, refused: str, codes: set[int]
) -> None:
    sent = [entry(log, b"k", b"good"), bad(log, refused), entry(log, b"k", b"good too")]
    told = writer.rehearse_entries(sent, NOW_MS, None, anchor(log))
    assert list(told) == [1]
    assert told[1].code() in codes
    commit_writer(writer, entry(log, b"k", b"next"))
    assert [seen.value for seen in log.seen()] == [b"next"]


def test_a_rehearsal_names_the_topics_for_which_transactions_are_refused_whole(log: Log, writer: Writer) -> None:
    sent = [entry(log, b"k", b"good"), *(bad(log, why) for why in ("forbidden", "forbidden", "too large", "unknown topic"))]
    told = writer.rehearse_entries(sent, NOW_MS, None, anchor(log))
    assert {sent[n].destination for n in told} == {each.destination for each in sent[1:]}
    commit_writer(writer, sent[0])
    assert [seen.value for seen in log.seen()] == [b"good"]


@pytest.mark.parametrize(
    "headers",
    [[], [("a", None)] * 3, [("", b""), ("naïve-☃", b"x" * 300), ("b", b"\0" * 63), ("c", b"\0" * 64)]],
    ids=["none", "nulls", "long ones"],
)
@pytest.mark.parametrize("key", [None, b"", b"k" * 64])
def test_a_record_is_too_large_by_one_byte(log: Log, writer: Writer, key: bytes | None, headers: Headers) -> None:
    spare = NARROW_BYTES - measure_batch(entry(log, key, b"x" * 1_000, *headers, to=log.narrow)) + 1_000
    fits, larger = (entry(log, key, b"x" * size, *headers, to=log.narrow) for size in (spare, spare + 1))
    assert [measure_batch(e) for e in (fits, larger)] == [NARROW_BYTES, NARROW_BYTES + 1]
    commit_writer(writer, fits)
    with pytest.raises(TransactionAborted):
        commit_writer(writer, larger)
    assert [seen.value for seen in log.seen(log.narrow)] == [fits.value]


def test_a_rehearsal_names_all_that_are_no_smaller_than_one_that_is_too_large(log: Log, writer: Writer) -> None:
    large = [entry(log, b"k", b"x" * size, to=log.narrow) for size in (3_000, 2_500, 4_000, 2_500)]
    sent = [entry(log, b"k", b"x" * 4_000), *large, entry(log, b"k", b"small", to=log.narrow)]
    assert {n: error.code() for n, error in writer.rehearse_entries(sent, NOW_MS).items()} == dict.fromkeys(
        range(1, 5), KafkaError.MSG_SIZE_TOO_LARGE
    )


@pytest.mark.parametrize("refused", ["no key", "too old"])
@pytest.mark.parametrize("places", [{0}, {17}, {39}, {3, 4, 30}, set(range(40))], ids=str)
def test_a_rehearsal_singles_out_who_is_refused_for_what_it_is(
    log: Log, writer: Writer, refused: str, places: set[int]
) -> None:
    """The answer to a real client names the whole batch where one of its records is to blame."""
    sent = [bad(log, refused) if n in places else entry(log, b"k%d" % (n % 3), b"good", to=log.strict) for n in range(40)]
    assert set(writer.rehearse_entries(sent, NOW_MS, None, anchor(log))) == places
    commit_writer(writer, *(each for n, each in enumerate(sent) if n not in places))
    assert len(log.seen(log.strict)) == 40 - len(places)


def test_a_rehearsal_of_good_entries_refuses_none_and_leaves_nothing(log: Log, writer: Writer) -> None:
    assert writer.rehearse_entries([entry(log, b"k", b"%d" % n) for n in range(100)], NOW_MS) == {}
    assert log.seen() == []


def test_what_is_told_to_fit_compressed_is_taken_compressed_and_what_is_larger_is_named(log: Log, writer: Writer) -> None:
    """Write records as large as the limit lets them be, of hexadecimal digits, which shrink to about half."""
    digits = random.Random(1).randbytes(NARROW_BYTES).hex().encode()
    headers: Headers = [("theirs", b"1"), ("null", None)]
    sized = (Entry(log.narrow, b"k", digits[:n], headers, None, "team") for n in range(len(digits), 0, -1))
    largest = next(each for each in sized if fits_compressed(each, NARROW_BYTES))
    assert measure_batch(largest) > 1.5 * NARROW_BYTES
    assert set(writer.rehearse_entries([largest], NOW_MS)) == {0}
    compressing = log.compressing_writer("sweep-gzip")
    compressing.open()
    larger = entry(log, b"k", digits, to=log.narrow)
    assert set(compressing.rehearse_entries([largest, larger], NOW_MS)) == {1}
    commit_writer(compressing, largest, entry(log, b"k", b"small", to=log.narrow))
    assert [seen.value for seen in log.seen(log.narrow)] == [largest.value, b"small"]


def test_a_second_transaction_within_the_first_is_refused(log: Log, writer: Writer) -> None:
    writer.begin()
    with pytest.raises(CommitInDoubt):
        writer.begin()


def test_large_batches_pass_the_producers_queue(log: Log, writer: Writer) -> None:
    """More bytes than librdkafka's queue holds, in one transaction: both ways wait for room."""
    value = b"x" * 20_000
    writer.begin()
    writer.publish([entry(log, b"k", value) for _ in range(3_000)], NOW_MS)
    writer.write(log.topic, 1, [{"key": b"%d" % n, "value": value} for n in range(3_000)])
    writer.abort()
    assert log.seen() == []


def anchor(log: Log) -> Anchor:
    return Anchor(log.topic, 0, b"anchor")


def bad(log: Log, refused: str) -> Entry:
    if refused == "unknown topic":
        return entry(log, b"k", b"bad", to=f"nobody.{log.topic}")
    if refused == "forbidden":
        return entry(log, b"k", b"bad", to=log.forbidden)
    if refused == "no key":
        return entry(log, None, b"bad", to=log.strict)
    if refused == "too old":
        return Entry(log.strict, b"k", b"bad", [], NOW_MS - AGE_MS_MAX - 60_000, "team")
    return entry(log, b"k", b"x" * 100_000, to=log.narrow)


class TestFaultsInMemory:
    """Faults that a broker shows only in bad luck, and a log in memory on demand."""

    @pytest.fixture
    def log(self) -> InMemory:
        return InMemory()

    @pytest.fixture
    def commit(self, log: InMemory) -> Callable[[Fault | None], Writer]:
        def with_fault(fault: Fault | None) -> Writer:
            writer = log.writer("a")
            writer.open()
            log.log.faults.append(fault)
            writer.begin()
            writer.publish([entry(log, b"k", b"v")], NOW_MS)
            writer.read_to([TopicPartition(log.topic, 1, 5)], log.member)
            writer.commit()
            return writer

        return with_fault

    def test_none_is_a_success(self, log: InMemory, commit: Callable[[Fault | None], Writer]) -> None:
        commit(None)
        assert (len(log.seen()), log.position(), log.log.faults) == (1, 5, [])

    def test_aborted_leaves_nothing(self, log: InMemory, commit: Callable[[Fault | None], Writer]) -> None:
        with pytest.raises(TransactionAborted):
            commit(Fault.ABORTED)
        assert (log.seen(), log.position()) == ([], None)

    def test_in_doubt_may_have_been_done(self, log: InMemory, commit: Callable[[Fault | None], Writer]) -> None:
        with pytest.raises(CommitInDoubt):
            commit(Fault.DOUBT_COMMITTED)
        assert (len(log.seen()), log.position()) == (1, 5)
        log.writer("a").open()
        assert len(log.seen()) == 1

    def test_in_doubt_may_hold_readers_back_until_the_id_is_opened_again(
        self, log: InMemory, commit: Callable[[Fault | None], Writer]
    ) -> None:
        with pytest.raises(CommitInDoubt):
            commit(Fault.DOUBT_OPEN)
        other = log.writer("b")
        other.open()
        commit_writer(other, entry(log, b"k", b"behind"))
        assert log.seen() == []
        log.writer("a").open()
        assert ([seen.value for seen in log.seen()], log.position()) == ([b"behind"], None)

    @pytest.mark.parametrize("fault", [Fault.DOUBT_COMMITTED, Fault.DOUBT_OPEN])
    def test_after_doubt_the_producer_is_of_no_use(self, log: InMemory, fault: Fault) -> None:
        writer = log.writer("a")
        writer.open()
        log.log.faults.append(fault)
        with pytest.raises(CommitInDoubt):
            commit_writer(writer, entry(log, b"k", b"v"))
        for call in (writer.begin, writer.commit, writer.abort):
            with pytest.raises(CommitInDoubt):
                call()

    def test_offsets_have_gaps_where_transactions_ended(self, log: InMemory) -> None:
        writer = log.writer("a")
        writer.open()
        for _ in range(2):
            commit_writer(writer, entry(log, b"k", b"v"), entry(log, b"k", b"v"))
        assert [record.offset() for record in log.log.read(log.topic)] == [0, 1, 3, 4]
