"""How far dead letters were taken in, as somebody sees it from outside, and what operators may ask for about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from retry import clock
from retry.intake.read_positions import PARTITION, ReadPosition, RereadRequest, encode_request, fold_record
from retry.kafka import consumer_groups, offset_ranges, record_producer, topics
from retry.kafka.interface import Partition
from retry.kafka.offset_ranges import Span
from retry.kafka.topic_ids import TopicIds
from retry.operations.cluster import Cluster


class KnownPositions(NamedTuple):
    """The newest records of the topic of positions, by partition."""

    positions: dict[Partition, ReadPosition]
    requests: dict[Partition, RereadRequest]


def load_positions(cluster: Cluster) -> KnownPositions:
    """Read the topic of positions to its end; nothing is known where there is no such topic yet.

    Raises:
      ReadPositionNewer: a newer version of this service wrote a record there.
      TopicsInvalid: it cannot be read.
    """
    known, topic = KnownPositions({}, {}), cluster.names.positions
    if topic in topics.describe(cluster.admin, [topic], optional=True):
        spans = offset_ranges.find_readable_spans(cluster.admin, topic, [PARTITION]).values()
        for batch in offset_ranges.read_batches(cluster.reader, list(spans)):
            for message in batch:
                fold_record(message, known.positions, known.requests)
    return known


class ReadOffsets(NamedTuple):
    """How far letters were taken in, by partition.

    Attributes:
      reached: up to this offset: the larger of the service's own record and the group's.
      read_again_from: letters from this offset on may have been taken in more than once, since an operator asked for that.
    """

    reached: dict[Partition, int]
    read_again_from: dict[Partition, int]


def find_read_offsets(cluster: Cluster) -> ReadOffsets:
    """Find how far letters were taken in; raises as `load_positions`."""
    # The group's first: what it says was committed together with a position.
    reached = consumer_groups.read_positions(cluster.admin, cluster.names.intake_group)
    positions, requests = load_positions(cluster)
    ids = TopicIds(cluster.admin).fetch_ids({topic for topic, _ in [*positions, *requests]})
    for partition, position in positions.items():
        if ids.get(partition[0]) == position.topic_id:
            reached[partition] = max(position.offset, reached.get(partition, 0))
    again = {each: asked.lowest_offset for each, asked in requests.items() if ids.get(each[0]) == asked.topic_id}
    return ReadOffsets(reached, again)


def check_positions(cluster: Cluster, reads: Callable[[str], bool]) -> Iterator[str]:
    """Say what is wrong with positions and the group's offsets of topics that are read; raises as `load_positions`."""
    group, positions = cluster.names.intake_group, load_positions(cluster).positions
    partitions = [partition for partition in sorted(positions) if reads(partition[0])]
    if not partitions:
        return
    offsets = consumer_groups.read_positions(cluster.admin, group)
    ids = TopicIds(cluster.admin).fetch_ids({topic for topic, _ in partitions})
    ends = offset_ranges.find_end_offsets(cluster.admin, partitions)
    for partition in partitions:
        topic, number = partition
        position, offset, end = positions[partition], offsets.get(partition), ends.get(partition)
        if end is None or ids.get(topic) != position.topic_id:
            continue
        goes_on = f"workers go on at {position.offset:,} by the service's own record"
        if position.offset > end:
            yield (
                f"{topic}/{number} ends at {end:,}, and was taken in up to {position.offset:,}: it has lost records. "
                f"`retry topics reread {topic}` has what is left taken in again"
            )
        elif offset is None:
            yield f"{topic}/{number}: the group {group} has lost its offset; {goes_on}"
        elif offset > end or offset < position.offset:
            yield f"{topic}/{number}: the offset of the group {group} is {offset:,}; {goes_on}"


def request_reread(cluster: Cluster, spans: Iterable[Span], by: str) -> int:
    """Ask to read again from the start of each span, and count these; raises `BrokersUnreachable` where some were not asked."""
    wanted, known = list(spans), load_positions(cluster)
    ids, now_ms = TopicIds(cluster.admin).fetch_ids({span.topic for span in wanted}), clock.wall_ms()
    rows = []
    for span in wanted:
        partition = span.topic, span.partition
        former, position = known.requests.get(partition), known.positions.get(partition)
        number = max(former.number if former else 0, position.reread if position else 0) + 1
        is_same = former is not None and former.topic_id == ids[span.topic]
        lowest = min(span.start, former.lowest_offset) if former and is_same else span.start
        request = RereadRequest(
            topic_id=ids[span.topic], offset=span.start, lowest_offset=lowest, number=number, asked_at_ms=now_ms, by=by
        )
        rows.append(encode_request(partition, request))
    return record_producer.send_records(cluster.settings, cluster.names.positions, [(row["key"], row["value"]) for row in rows])
