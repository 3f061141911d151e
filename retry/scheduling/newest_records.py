"""The newest records of a topic, read to show what was sent lately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from retry import clock
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import Message
from retry.kafka.topic_ends import cut_to_newest
from retry.record import Headers, read_headers
from retry.settings import Settings

# Where they begin has to be looked for, since ends of transactions lie between them.
_SEARCH_S, _READ_S = 3.0, 7.0


def newest_records(settings: Settings, topic: str, partition_max: Callable[[int], int]) -> Iterator[tuple[Message, Headers]]:
    """Read committed records with their headers, as far as can be read within ten seconds; none where there is no such topic.

    A record whose headers the client cannot tell is passed over. `partition_max` says how many of one partition, by how many
    there are. Raises TopicsInvalid, BrokersUnreachable.
    """
    # A client of its own for each reading: one that lives long can lose its brokers; see `retry.kafka.cluster`.
    admin, reader = client_config.admin(settings), client_config.reader_config(settings)
    about = topics.describe(admin, [topic]).get(topic)
    if about is None:
        return
    spans = offset_ranges.readable_spans(admin, topic, range(about.partitions)).values()
    read = partial(offset_ranges.read_batches, reader, deadline=clock.Deadline(_SEARCH_S))
    newest = cut_to_newest(read, dict.fromkeys(spans, partition_max(about.partitions)), clock.Deadline(_SEARCH_S))
    for batch in offset_ranges.read_batches(reader, newest, clock.Deadline(_READ_S)):
        for message in batch:
            headers = read_headers(message)
            if headers is not None:
                yield message, headers
