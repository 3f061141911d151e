"""What followers, members and bounds promise, in memory and on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from retry.delay_queue.envelopes import HEADERS_MAX, Entry
from retry.delivery.sweep import ChangelogPartition
from retry.errors import TransactionAborted
from retry.kafka import client_config, topics
from retry.kafka.cluster import KafkaCluster
from retry.kafka.interface import CommittedOffset, GroupMember, Log, OffsetBounds, StartingPoint, TopicPartition
from retry.kafka.local_broker import LocalBroker
from retry.kafka.topic_ids import ChangelogIdentity
from retry.kafka.transactional_ids import RememberedIds
from retry.settings import Settings
from retry.testing.kafka import MemoryCluster, MemoryLog
from retry.testing.memory_table import MemoryTable
from retry.worker.shards import assignment
from retry.worker.shards.assignment import RestoreQueue
from retry.worker.shards.shard import Shard
from tests.support.process import await_that
from tests.support.topics import create_all

PARTITIONS = 2
_ASK_S = 20.0
_WAIT_S = 0.1
# How long a transaction may be open here, and a member be silent: as long as a starved core takes, and not six seconds.
_PATIENT_S = 60


class Place:
    """A log with one topic of two partitions, as workers of different names reach it."""

    def __init__(self, topic: str, reached_by: Callable[[str], Log]) -> None:
        self.topic, self.group, self.reached_by = topic, f"{topic}-group", reached_by
        self.log = reached_by("a")
        self._members: list[GroupMember] = []

    def writer(self, name: str) -> Any:
        """Open a producer of this name."""
        writer = self.log.make_producer(name)
        writer.open(_PATIENT_S)
        return writer

    def wrote(self, *values: bytes, partition: int = 0) -> None:
        """Write records and commit them."""
        writer = self.writer("some")
        self.begun(writer, *values, partition=partition)
        writer.commit()

    def begun(self, writer: Any, *values: bytes, partition: int = 0) -> None:
        """Records of a transaction that is not at its end."""
        writer.begin()
        writer.write(self.topic, partition, [{"key": b"k", "value": value} for value in values])

    def member(self, instance: str) -> GroupMember:
        """A member of the group."""
        joined = self.reached_by(instance).join_group(self.group, [self.topic], lambda _: None, lambda _: None)
        self._members.append(joined)
        return joined

    def close(self) -> None:
        """Let go of the members."""
        for member in self._members:
            member.close()


@pytest.fixture(params=["memory", "broker"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    run = uuid.uuid4().hex[:8]
    if request.param == "memory":
        log = MemoryLog()
        log.create("orders", PARTITIONS)
        made = Place("orders", lambda instance: MemoryCluster(log, run, instance))
    else:
        broker: LocalBroker = request.getfixturevalue("broker")
        monkeypatch.setattr(client_config, "SESSION_TIMEOUT_MS", _PATIENT_S * 1_000)
        servers = broker.bootstrap_servers
        settings = Settings(bootstrap_servers=servers, app_id=f"t{run}", session_timeout_ms=_PATIENT_S * 1_000)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        # Some records are of 1970, and brokers look every five minutes for what is older than a week.
        create_all(admin, [NewTopic(run, PARTITIONS, 1, config={"retention.ms": "-1"})])
        await_that("the topic is known", lambda: len(topics.describe(admin, [run])) == 1)
        same = ChangelogIdentity(admin, run, topics.describe(admin, [run])[run].topic_id)
        ids = RememberedIds(tmp_path / "ids.json")
        made = Place(run, lambda instance: KafkaCluster(settings, admin, f"{run}-{instance}", same, ids))
    yield made
    made.close()


def read_until(follower: Any, end: int) -> list[bytes]:
    """Values, until the end of a partition is told to lie at `end`."""
    values: list[bytes] = []
    ends: list[int] = []

    def came() -> bool:
        for message in follower.read(100, _WAIT_S):
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ends.append(message.offset())
        return end in ends

    await_that(f"the end at {end} is told", came)
    return values


def begin_reading(member: GroupMember) -> dict[Any, CommittedOffset]:
    """Have a member read what it owns from the committed offsets on; asked again while nobody answers in time."""
    told: dict[Any, CommittedOffset] = {}

    def choose(committed: Any, _topic_ids: Any) -> dict[Any, StartingPoint]:
        told.update(committed)
        return {place: StartingPoint(offset.offset, offset.leader_epoch) for place, offset in committed.items()}

    def has_begun_reading() -> bool:
        try:
            member.begin_reading(member.owned, choose)
        except (KafkaException, TimeoutError):
            return False
        return True

    await_that("it is told where to read on", has_begun_reading)
    return told


def join_group(place: Place, instance: str = "a") -> GroupMember:
    """A member that reads all partitions from the committed offsets on."""
    member = owning_all(place, instance)
    begin_reading(member)
    return member


def owning_all(place: Place, instance: str) -> GroupMember:
    """A member that owns all partitions and reads none of them yet."""
    member = place.member(instance)

    def owns_all() -> bool:
        assert member.read(1, _WAIT_S) == []
        return len(member.owned) == PARTITIONS

    await_that("it owns all", owns_all)
    return member


def positions_after(messages: list[Any]) -> list[TopicPartition]:
    """List the offsets at which reading goes on after these messages."""
    last = {(message.topic(), message.partition()): message for message in messages}
    return [
        TopicPartition(*at, message.offset() + 1, metadata="id", leader_epoch=message.leader_epoch())
        for at, message in last.items()
    ]


def read_records(member: GroupMember, count: int) -> list[Any]:
    """So many records, read one by one."""
    found: list[Any] = []

    def came() -> bool:
        found.extend(member.read(1, _WAIT_S))
        return len(found) >= count

    await_that("records come", came)
    return found


def test_bounds_count_records_that_are_undecided(place: Place) -> None:
    place.wrote(b"1", b"2")
    writer = place.writer("other")
    place.begun(writer, b"3")
    expected = {0: OffsetBounds(0, 4), 1: OffsetBounds(0, 0)}
    await_that("it is there", lambda: place.log.fetch_bounds(place.topic, [0, 1]) == expected)
    writer.abort()


def test_a_follower_tells_records_and_the_end(place: Place) -> None:
    place.wrote(b"1", b"2")
    follower = place.log.make_reader()
    follower.follow_partition(place.topic, 0, 0)
    assert read_until(follower, 3) == [b"1", b"2"]
    place.wrote(b"3")
    assert read_until(follower, 5) == [b"3"]
    follower.close()


def test_a_restore_that_an_open_transaction_holds_up_lets_the_next_begin(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "MANY", 0)
    place.wrote(b"1")
    place.wrote(*(b"%d" % n for n in range(2, 9)), partition=1)
    writer = place.writer("other")
    place.begun(writer, b"9")
    expected = {0: OffsetBounds(0, 3), 1: OffsetBounds(0, 8)}
    await_that("it is there", lambda: place.log.fetch_bounds(place.topic, [0, 1]) == expected)
    queue, unused, values = RestoreQueue(place.log.make_reader(), place.topic), cast(Any, None), set[bytes | None]()
    for partition, bounds in place.log.fetch_bounds(place.topic, [0, 1]).items():
        shard = Shard(ChangelogPartition(place.topic, partition), MemoryTable(), unused, bounds.end)
        queue.add_shard(partition, shard)

    def came(wanted: set[bytes]) -> bool:
        values.update(m.value() for found in queue.read(100, _WAIT_S).values() for m in found if m.error() is None)
        return values >= wanted

    await_that("the first is read as far as it can be", lambda: came({b"1"}))
    await_that("the second is read, too", lambda: came({b"8"}))
    assert values == {b"%d" % n for n in range(1, 9)}
    writer.commit()
    await_that("the first is read to its end", lambda: came({b"9"}))
    queue.close()


def test_a_follower_begins_where_it_is_told(place: Place) -> None:
    place.wrote(b"1", b"2", b"3")
    follower = place.log.make_reader()
    follower.follow_partition(place.topic, 0, 1)
    assert read_until(follower, 4) == [b"2", b"3"]
    follower.unfollow_partition(place.topic, 0)
    follower.follow_partition(place.topic, 0, 2)
    assert read_until(follower, 4) == [b"3"]
    follower.close()


def test_a_follower_stops_at_a_transaction_that_is_open_whoever_began_it(place: Place) -> None:
    slow = place.writer("slow")
    place.begun(slow, b"undecided")
    # Arrived for sure: a commit of another producer lies behind it.
    await_that("it is there", lambda: place.log.fetch_bounds(place.topic, [0])[0].end == 1)
    place.wrote(b"behind")
    follower = place.log.make_reader()
    follower.follow_partition(place.topic, 0, 0)
    assert read_until(follower, 0) == []
    slow.abort()
    assert read_until(follower, 4) == [b"behind"]
    follower.close()


def test_a_member_reads_nothing_before_it_is_told_where_to_begin_and_then_from_there(place: Place) -> None:
    place.wrote(b"1", b"2", b"3")
    member, writer = join_group(place), place.writer("w")
    found = read_records(member, 2)
    writer.begin()
    writer.read_to(positions_after(found), member.metadata())
    writer.commit()
    assert [m.value() for m in read_records(member, 1)] == [b"3"]
    epoch = found[-1].leader_epoch()
    assert begin_reading(member) == {
        (place.topic, 0): CommittedOffset(2, "id", epoch), (place.topic, 1): CommittedOffset(None),
    }  # fmt: skip
    assert [m.value() for m in read_records(member, 1)] == [b"3"]
    assert member.owned == {(place.topic, 0), (place.topic, 1)}


def test_a_member_sets_the_offsets_of_its_group(place: Place) -> None:
    place.wrote(b"1", b"2", b"3")
    # Not one that reads from the beginning already: the client asks where that is, and goes there when the answer comes.
    member = owning_all(place, "a")
    member.commit_starts({(place.topic, 0): StartingPoint(2, 0), (place.topic, 1): StartingPoint(None)})
    assert begin_reading(member)[place.topic, 0].offset == 2
    assert [m.value() for m in read_records(member, 1)] == [b"3"]


def test_a_member_that_knows_the_leader_epoch_begins_no_later_than_that_epoch_ends(place: Place) -> None:
    place.wrote(b"1", b"2", b"3")
    member = join_group(place)
    epoch = read_records(member, 3)[-1].leader_epoch()
    # As if four more records had been read that a broker has lost since.
    member.begin_reading(member.owned, lambda *_: {(place.topic, 0): StartingPoint(8, epoch)})

    def is_at_end() -> bool:
        assert member.read(1, _WAIT_S) == []
        return member.ended.get((place.topic, 0)) == 4

    # What is written before brokers were asked lies in the same epoch here, as it never does behind a lost end.
    await_that("it is told to begin at the end", is_at_end)
    place.wrote(b"4")
    assert [m.value() for m in read_records(member, 1)] == [b"4"]


def test_bounds_of_several_topics_are_told_at_once(place: Place) -> None:
    place.wrote(b"1", b"2")
    places = {(place.topic, 0): OffsetBounds(0, 3), (place.topic, 1): OffsetBounds(0, 0)}
    await_that("they are told", lambda: place.log.fetch_partition_bounds(places) == places)


def test_a_record_with_more_headers_than_a_client_reads_back_is_told_from_one_without(place: Place) -> None:
    writer = place.writer("some")
    writer.begin()
    for count in (0, HEADERS_MAX, HEADERS_MAX + 1):
        writer.publish([Entry(place.topic, b"k", b"%d" % count, [("a", None)] * count, None, "")], 1, [0])
    writer.commit()
    member, told = join_group(place), list[Any]()

    def came() -> bool:
        told.extend(member.replace_unreadable(member.read(3, _WAIT_S)))
        return len(told) == 3

    await_that("records come", came)
    none, most, more = told
    assert (none.headers(), len(most.headers()), more.value()) == (None, HEADERS_MAX, b"%d" % (HEADERS_MAX + 1))
    with pytest.raises(SystemError):
        more.headers()


def test_who_is_of_a_former_generation_commits_nothing(place: Place) -> None:
    place.wrote(b"1")
    first = join_group(place)
    positions, former = positions_after(read_records(first, 1)), first.metadata()
    second = place.member("b")

    def is_shared() -> bool:
        first.read(1, _WAIT_S)
        second.read(1, _WAIT_S)
        return len(first.owned) == len(second.owned) == 1

    await_that("the partitions are shared", is_shared)
    writer = place.writer("w")
    writer.begin()
    with pytest.raises(TransactionAborted):
        writer.read_to(positions, former)

    def commits() -> bool:
        first.read(1, _WAIT_S)
        second.read(1, _WAIT_S)
        writer.begin()
        try:
            writer.read_to(positions, first.metadata())
        except TransactionAborted:
            return False
        writer.commit()
        return True

    await_that("the round is over, and its proof counts", commits)


def test_nobody_learns_offsets_that_are_about_to_be_committed(place: Place) -> None:
    place.wrote(b"1")
    member = join_group(place)
    positions = positions_after(read_records(member, 1))
    writer = place.writer("w")
    place.begun(writer, b"2")
    writer.read_to(positions, member.metadata())
    with pytest.raises(KafkaException):
        member.begin_reading(member.owned, lambda *_: pytest.fail("it is told offsets that may change"))
    writer.abort()
    begin_reading(member)
    await_that("it is read again", lambda: [m.value() for m in member.read(1, _WAIT_S)] == [b"1"])
