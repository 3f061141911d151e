"""Records of the service's own topics that no version of it wrote: every reader passes over them, and says so here.

Whoever may write to such a topic must not be able to stop a part of the service for good with one record. So it is passed over,
counted by topic, and the first of each topic is named, once in the log and as long as the process runs in its health. The metric
`retry_unreadable_records_total` counts them, and commands say at their end what they have passed over.

What a newer version wrote to the changelog is another matter: that is the truth about entries, and its shard stops.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

log = logging.getLogger(__name__)
# Commands say at their end what they have passed over, and log nothing.
log.addHandler(logging.NullHandler())

_WHY_CHARS_MAX = 200


class UnreadableTopic(NamedTuple):
    """How many records of a topic were passed over; and of the first one its place, and why it cannot be read, in a sentence that
    has nothing of what it holds."""

    topic: str
    records: int
    first: str

    @property
    def sentence(self) -> str:
        return f"{self.records:,} records of {self.topic} cannot be read and are passed over, the first: {self.first}"


class UnreadableRecords:
    """Counts records that are passed over; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_topic: dict[str, UnreadableTopic] = {}

    def pass_over(self, topic: str | None, partition: int | None, offset: int | None, why: object) -> None:
        """Count a record that cannot be read; the first of its topic is logged.

        Args:
          offset: None where only the partition is known.
          why: in words, with nothing of what the record holds but its key.
        """
        topic = topic or ""
        with self._lock:
            known = self._by_topic.get(topic)
            if known is not None:
                self._by_topic[topic] = known._replace(records=known.records + 1)
                return
            place = f"{topic}/{partition}" if offset is None else f"{topic}/{partition}/{offset}"
            first = f"{place}: {str(why)[:_WHY_CHARS_MAX]}"
            self._by_topic[topic] = UnreadableTopic(topic, 1, first)
        log.warning("a record cannot be read and is passed over, further ones of its topic are only counted: %s", first)

    def list_topics(self) -> list[UnreadableTopic]:
        with self._lock:
            return sorted(self._by_topic.values())

    def count_by_topic(self) -> dict[str, float]:
        return {each.topic: float(each.records) for each in self.list_topics()}

    def describe_first_ones(self) -> dict[str, str]:
        return {each.topic: f"{each.records:,} passed over, the first: {each.first}" for each in self.list_topics()}


# Of this process: as with its log, whatever reads says it here.
UNREADABLE = UnreadableRecords()
