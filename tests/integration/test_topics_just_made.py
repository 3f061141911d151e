"""Topics can be asked about the moment after they were made, as a first start does."""

from __future__ import annotations

import uuid

from retry.kafka import offset_ranges, topics
from retry.kafka.local_broker import LocalBroker
from tests.support.reading import admin

TIMES = 15


def test_a_first_start_directly_after_its_topics_were_made_learns_where_they_begin_and_end(broker: LocalBroker) -> None:
    asking = admin(broker.bootstrap_servers)
    for _ in range(TIMES):
        app_id = f"t{uuid.uuid4().hex[:8]}"
        made = topics.create(asking, app_id, 8)
        about = topics.describe(asking, made)
        for topic in made:
            bounds = offset_ranges.find_readable_spans(asking, topic, range(about[topic].partitions))
            assert [(span.start, span.stop) for span in bounds.values()] == [(0, 0)] * about[topic].partitions
        assert len(topics.check(asking, app_id)) == 5
    own, day_ms = topics.build_topic_names(app_id), 86_400_000
    # Of what is parked nothing is ever deleted by time.
    kept_ms = topics.read_retention_ms(asking, [own.audit, own.discarded, own.outcomes, own.parked])
    assert kept_ms == {own.audit: 365 * day_ms, own.discarded: 30 * day_ms, own.outcomes: 30 * day_ms}
