"""What a consumer group has to commit to be beyond all that lies in a topic now."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec

from retry.clock import Interval
from retry.kafka.offset_ranges import offsets_at

# Whoever asks has other things to do in its thread.
_ASK_S, _PARTITIONS_EVERY_S = 2.0, 60.0


class TopicEnds:
    """Asks again and again; how many partitions topics have is asked now and then."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._partitions: dict[str, int] = {}
        self._asking = Interval(_PARTITIONS_EVERY_S, at_once=True)

    def __call__(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Return the offset that a group must commit in each partition to pass its end; without topics where an end is unknown.

        Records are taken to be written in transactions, as retries are. Behind each lies the mark that ends its transaction,
        which is no record: a group commits what lies before it. While a transaction is open its mark is to come.
        """
        if self._asking.is_due() or not self._partitions.keys() >= set(topics):
            self._ask_partitions(topics)
        known = {topic: self._partitions[topic] for topic in topics if topic in self._partitions}
        places = [(topic, n) for topic, partitions in known.items() for n in range(partitions)]
        # In this order: where both are the same nothing was undecided when the first was asked.
        decided = offsets_at(self._admin, places, OffsetSpec.latest(), _ASK_S)
        ends = offsets_at(self._admin, places, OffsetSpec.latest(), _ASK_S, IsolationLevel.READ_UNCOMMITTED)
        found: dict[str, dict[int, int]] = {topic: {} for topic in known}
        for topic, n in decided.keys() & ends.keys():
            end = ends[topic, n]
            found[topic][n] = max(0, end - 1) if decided[topic, n] == end else end
        return {topic: of for topic, of in found.items() if len(of) == known[topic]}

    def _ask_partitions(self, topics: Collection[str]) -> None:
        if not topics:
            return
        answers = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=_ASK_S)
        for topic, answer in answers.items():
            self._partitions.pop(topic, None)
            # One that is not there, or may not be seen, has no ends that anybody is told of.
            with suppress(KafkaException, TimeoutError):
                self._partitions[topic] = len(answer.result(_ASK_S).partitions)
