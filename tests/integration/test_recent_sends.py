"""What was sent is on record as soon as it can be read: topics end with the marks of transactions, and not with records."""

from __future__ import annotations

import uuid
from threading import Event, Thread

from confluent_kafka.admin import AdminClient, NewTopic

from retry.intake import attempts
from retry.clock import monotonic_s
from retry.kafka import topics
from retry.kafka.local_broker import LocalBroker
from retry.kafka.cluster import Brokers
from retry.kafka.topic_ids import Changelog
from retry.intake.attempts import Lineages
from retry.intake.attempts.lineage_follower import Recent
from retry.settings import Settings
from tests.support.process import await_that

PARTITIONS, SENDS = 2, 20


def test_each_send_is_known_after_one_look(broker: LocalBroker) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    settings = Settings(bootstrap_servers=broker.bootstrap_servers, app_id=topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    await_that("the topic is known", lambda: len(topics.describe(admin, [topic])) == 1)
    brokers = Brokers(settings, admin, topic, Changelog(admin, topic, topics.describe(admin, [topic])[topic].topic_id))
    recent, ended = Recent(brokers, topic, PARTITIONS, Lineages(1_000)), Event()

    def follow() -> None:
        while not ended.is_set():
            recent.read()

    reader = Thread(target=follow)
    reader.start()
    writer = brokers.writer("intake")
    try:
        writer.open()
        began_s = monotonic_s()
        for attempt in range(1, SENDS + 1):
            writer.begin()
            packed = attempts.pack([attempts.row(7, 7, 5_000, 1_000, attempt, False)])
            writer.write(topic, attempt % PARTITIONS, [{"key": None, "value": packed}])
            writer.commit()
            recent.catch_up_to_now()
            known = recent.lineages.sends(7)
            assert known is not None and known.attempts == attempt
        # A look that does not see the end of a topic takes a whole second.
        assert monotonic_s() - began_s < SENDS / 2
    finally:
        ended.set()
        reader.join()
        writer.close()
        recent.close()
