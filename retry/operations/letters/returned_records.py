"""Which records of parking topics were returned from there, and so are no parked letters any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from retry.delay_queue import returned_offsets
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.kafka import offset_ranges, topics
from retry.operations.cluster import Cluster
from retry.operations.explain.search import LetterLocation


class ReturnedRecords:
    """Tells of single records whether they were returned.

    Args:
      bitmap: returns the bitmap with a key; by default bitmaps are read from the changelog, for the first record.
    """

    def __init__(self, cluster: Cluster, bitmap: Callable[[bytes], bytes | None] | None = None) -> None:
        self._cluster, self._bitmap = cluster, bitmap
        # Asked for once a topic, and not once a record.
        self.topic_hash = cache(self._topic_hash)

    def is_record_returned(self, record: LetterLocation) -> bool:
        """Whether the letter at this place was returned.

        Raises:
          TopicsInvalid: there is no changelog, or it cannot be read.
        """
        if self._bitmap is None:
            self._bitmap = _read_committed(self._cluster).get
        return returned_offsets.is_offset_returned(self._bitmap(self.resolve_place(record).block()), record.offset)

    def resolve_place(self, record: LetterLocation) -> ParkedPlace:
        """Convert a place to one with the hash of the id of the topic that has this name now."""
        return ParkedPlace(self.topic_hash(record.topic), record.partition, record.offset)

    def _topic_hash(self, topic: str) -> bytes:
        return returned_offsets.topic_hash(topics.describe(self._cluster.admin, [topic])[topic].topic_id)


def _read_committed(cluster: Cluster) -> dict[bytes, bytes]:
    changelog = cluster.names.changelog
    cluster.partitions(changelog)
    spans = offset_ranges.readable_spans(cluster.admin, changelog, [returned_offsets.SHARD]).values()
    records = (message for messages in offset_ranges.read_batches(cluster.reader, spans) for message in messages)
    return {key: each.value() or b"" for each in records if (key := each.key() or b"").startswith(returned_offsets.RETURNED)}
