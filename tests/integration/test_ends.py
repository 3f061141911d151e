"""A reader that has read all there is says so, also behind what was undone: else it would look as if it stood still."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from retry.kafka import client_config, topics
from retry.kafka.cluster import KafkaCluster
from retry.kafka.interface import StartingPoint
from retry.kafka.local_broker import LocalBroker
from retry.kafka.topic_ids import ChangelogIdentity
from retry.kafka.transactional_ids import RememberedIds
from retry.settings import Settings
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.process import await_that
from tests.support.reading import QUIET

COMMITTED, UNDONE = 3, 5


@pytest.fixture
def producer(broker: LocalBroker) -> Producer:
    """Yield a producer of letters that are written in transactions, as Kafka Streams does."""
    made = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "streams", "logger": QUIET})
    made.init_transactions(20.0)
    return made


def _write(producer: Producer, place: tuple[str, int], records: int, *, commit: bool) -> None:
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(place[0], b"v", partition=place[1])
    assert producer.flush(20.0) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(20.0)


def open_cluster(settings: Settings, deployment: Deployment) -> KafkaCluster:
    admin, changelog = client_config.connect_admin(settings), deployment.names.changelog
    topic_id = topics.describe(admin, [changelog])[changelog].topic_id
    identity, ids = ChangelogIdentity(admin, changelog, topic_id), RememberedIds(settings.data_dir / "ids.json")
    return KafkaCluster(settings, admin, "a-worker", identity, ids)


def test_readers_come_to_the_end_that_brokers_tell(deploy: Deploy, producer: Producer) -> None:
    deployment = deploy({"one": 1})
    place = next(iter(deployment.dead_letters)), 0
    settings = Settings(bootstrap_servers=deployment.bootstrap_servers, app_id=deployment.app_id)
    brokers = open_cluster(settings, deployment)
    follower, seen = brokers.make_reader(), [0]
    gained = set[tuple[str, int]]()
    member = brokers.join_group(f"{deployment.app_id}-group", [place[0]], gained.update, lambda _: None)
    follower.follow_partition(*place, 0)
    ends = dict[tuple[str, int], int]()

    def more() -> bool:
        # What no broker answered for in time is left out.
        ends.update(brokers.find_stable_offsets([place]))
        return ends.get(place, 0) > max(seen)

    def followed_to() -> int:
        seen.extend((m.offset() or 0) for m in follower.read(100, 0.1) if m.error() is not None)
        return seen[-1]

    def member_at() -> int:
        member.read(100, 0.1)
        if gained:
            member.begin_reading(gained, lambda *_: {place: StartingPoint(None)})
            gained.clear()
        return member.ended.get(place, 0)

    try:
        for commit, records in ((True, COMMITTED), (False, UNDONE), (False, UNDONE)):
            _write(producer, place, records, commit=commit)
            # A commit is answered before its marker is in every partition.
            await_that("more can be read", more)
            end = ends[place]
            await_that("the follower is there", lambda end=end: followed_to() == end)
            await_that("the member is there", lambda end=end: member_at() == end)
    finally:
        member.close()
        follower.close()


def test_what_is_not_there_has_no_end_and_keeps_no_other_from_being_told(deploy: Deploy) -> None:
    deployment = deploy({"one": 1})
    settings = Settings(bootstrap_servers=deployment.bootstrap_servers, app_id=deployment.app_id)
    brokers = open_cluster(settings, deployment)
    place = next(iter(deployment.dead_letters)), 0
    # What no broker answered for in time is left out as well, and asked for again.
    await_that("the one that is there is told", lambda: brokers.find_stable_offsets([place, ("never.was", 0)]) == {place: 0})
