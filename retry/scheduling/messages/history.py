"""Schedules that were sent, as the history topic has them: the newest of each partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka.admin import AdminClient

from retry import clock
from retry.kafka import offset_ranges, topics
from retry.kafka.client_config import Config
from retry.scheduling.messages.schedule_json import Shown, of_history

NEWEST = 10_000
_READ_S = 10.0


def history(admin: AdminClient, reader: Config, topic: str) -> Iterator[Shown]:
    """The newest 10,000 of all partitions together, as far as they can be read within ten seconds.

    Raises:
      TopicsInvalid: the topic cannot be read.
    """
    about = topics.describe(admin, [topic]).get(topic)
    if about is None:
        return
    each = NEWEST // about.partitions + 1
    whole = offset_ranges.whole(admin, topic, range(about.partitions)).values()
    newest = [span._replace(start=max(span.start, span.stop - each)) for span in whole]
    for batch in offset_ranges.batches(reader, newest, clock.Deadline(_READ_S)):
        for message in batch:
            try:
                headers: Any = message.headers() or []
            except SystemError:
                # Not one of ours: a name that is no UTF-8 is parked.
                continue
            yield of_history(headers, message.key(), message.value())
