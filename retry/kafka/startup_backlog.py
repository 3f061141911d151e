"""What was on some topics when a process began: to be taken in before anything is sent, since among it may be what cancels."""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from retry.clock import Interval
from retry.errors import TopicsInvalid
from retry.kafka import client_config, offset_ranges
from retry.kafka.client_config import Config
from retry.kafka.consumer_close import close_consumer
from retry.kafka.offset_ranges import Span

log = logging.getLogger(__name__)

_ASK_S = 4.0
_AGAIN_S = 0.5
_SAY_EVERY_S = 10.0


class StartupBacklog:
    """Holds back every shard until the group has taken in what was there, and the shard has folded it.

    Args:
      reads: whether a topic is one of those.
      member: the configuration of a consumer in the group that takes in.
      changelog: the topic that it takes in to.
    """

    def __init__(self, admin: AdminClient, reads: Callable[[str], bool], member: Config, changelog: str) -> None:
        self._admin, self._reads, self._changelog = admin, reads, changelog
        self._member = {name: value for name, value in member.items() if name != "group.instance.id"}
        self._left: dict[tuple[str, int], int] | None = None
        # By shard, up to where it has to be folded; None until that is known.
        self._folded: dict[int, int] | None = None
        self._asking, self._logging = Interval(_AGAIN_S, at_once=True), Interval(_SAY_EVERY_S)

    def holds(self, partition: int, next_offset: int) -> bool:
        """Whether nothing may be sent yet of this partition of the changelog, which is folded up to an offset."""
        if self._folded is None:
            return True
        if next_offset < self._folded.get(partition, 0):
            return True
        self._folded.pop(partition, None)
        return False

    def message(self) -> str:
        """Describe what is still waited for, as health shows it; empty where nothing is."""
        if self._folded is not None:
            return ""
        left = "asking how far that is" if self._left is None else f"{len(self._left)} partitions left"
        return f"what was there at the start is taken in first: {left}"

    def check_backlog(self) -> None:
        """See how far it has come, every half second."""
        if self._folded is not None or not self._asking.is_due():
            return
        try:
            self._measure_backlog()
        except (KafkaException, TimeoutError, TopicsInvalid) as error:
            log.warning("cannot learn yet what is to be taken in first: %s", error)
        self._asking.restart()

    def _measure_backlog(self) -> None:
        if self._left is None:
            self._left = self._there()
        behind = self._list_behind(self._left)
        self._left = {(span.topic, span.partition): span.stop for span in behind}
        if not behind:
            shards = offset_ranges.partitions_of(self._admin, lambda topic: topic == self._changelog, _ASK_S)
            self._folded = offset_ranges.ends(self._admin, self._changelog, (n for _, n in shards))
            log.info("what was there is taken in")
        elif self._logging.is_due():
            log.info(self.message())

    def _there(self) -> dict[tuple[str, int], int]:
        """Return the last stable offset of each partition where it is not 0."""
        partitions = offset_ranges.partitions_of(self._admin, self._reads, _ASK_S)
        ends = offset_ranges.find_stable_offsets(self._admin, partitions) if partitions else {}
        if len(ends) < len(partitions):
            raise TimeoutError(f"no broker tells the ends of {sorted(set(partitions) - ends.keys())}")
        return {partition: end for partition, end in ends.items() if end > 0}

    def _list_behind(self, ends: dict[tuple[str, int], int]) -> list[Span]:
        """List the spans that the group has not taken in yet; empty where none of them holds a record."""
        if not ends:
            return []
        consumer = client_config.consumer(self._member)
        try:
            committed = consumer.committed([TopicPartition(*partition) for partition in ends], _ASK_S)
        finally:
            close_consumer(consumer)
        stops = [(c.topic, c.partition, max(0, c.offset), ends[c.topic, c.partition]) for c in committed]
        behind = [Span(*each) for each in stops if each[2] < each[3]]
        # What comes last may be the mark of a transaction, which nobody is given to read and to commit.
        return behind if behind and next(offset_ranges.read_batches(self._member, behind), None) is not None else []
