"""What was sent is on record as soon as it can be read: topics end with the marks of transactions, and not with records."""

from __future__ import annotations

import uuid
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from retry.clock import monotonic_s
from retry.intake import attempts
from retry.intake.attempts import RecentLineages, lineage_follower
from retry.intake.attempts.lineage_follower import LineageFollower
from retry.intake.read_positions import ReadPositions
from retry.kafka import topics
from retry.kafka.cluster import KafkaCluster
from retry.kafka.local_broker import LocalBroker
from retry.kafka.topic_ids import ChangelogIdentity
from retry.kafka.transactional_ids import RememberedIds
from retry.settings import Settings
from tests.support.process import await_that
from tests.support.topics import create_all

PARTITIONS, SENDS = 2, 20
# A look that does not see the end of a topic takes so long, each time: far longer than a busy machine takes for one that does.
LOOK_S = 10.0


def test_each_send_is_known_after_one_look(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lineage_follower, "_NOW_S", LOOK_S)
    topic, positions = f"t{uuid.uuid4().hex[:8]}", f"t{uuid.uuid4().hex[:8]}"
    settings = Settings(bootstrap_servers=broker.bootstrap_servers, app_id=topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    create_all(admin, [NewTopic(topic, PARTITIONS, 1), NewTopic(positions, 1, 1)])
    await_that("the topics are known", lambda: len(topics.describe(admin, [topic, positions])) == 2)
    identity = ChangelogIdentity(admin, topic, topics.describe(admin, [topic])[topic].topic_id)
    brokers = KafkaCluster(settings, admin, topic, identity, RememberedIds(tmp_path / "ids.json"))
    kept, ended = ReadPositions(brokers, positions), Event()
    recent = LineageFollower(brokers, topic, PARTITIONS, RecentLineages(1_000), kept)

    def follow() -> None:
        while not ended.is_set():
            recent.read()

    looks_s = []

    def is_known(attempt: int) -> bool:
        began_s = monotonic_s()
        recent.catch_up_to_now()
        looks_s.append(monotonic_s() - began_s)
        known = recent.lineages.find_team("shop").sends(7)
        return known is not None and known.attempts == attempt

    reader = Thread(target=follow)
    reader.start()
    writer = brokers.make_producer("intake")
    try:
        writer.open()
        for attempt in range(1, SENDS + 1):
            writer.begin()
            packed = attempts.pack("shop", [attempts.build_fields(7, 7, 5_000, 1_000, attempt, False)])
            writer.write(topic, attempt % PARTITIONS, [{"key": None, "value": packed}])
            writer.commit()
            await_that("the send is known", lambda: is_known(attempt))  # noqa: B023 asked at once
        assert min(looks_s) < LOOK_S / 2
    finally:
        ended.set()
        reader.join()
        writer.close()
        recent.close()
