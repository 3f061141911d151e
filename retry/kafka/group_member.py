"""One member of a consumer group that shares partitions cooperatively: what it owns, and what it reads; or whether it is elected.

What shall be done by one of several processes is done by the holder of a topic's first partition. For a moment two may think that
they hold it, and what the holder does has to bear that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from retry import clock, format_versions
from retry.errors import InstanceNameInUse, TransactionAborted
from retry.kafka import client_config
from retry.kafka.client_config import Config
from retry.kafka.closing import close_consumer
from retry.kafka.interface import ChooseStarts, CommittedOffset, OnAssigned, Partition, StartingPoint
from retry.kafka.reading_loop import IDLE_S, ErrorLog, ReadingLoop, is_end
from retry.kafka.refused_headers import RefusedHeaders
from retry.kafka.subscription import Subscription, UnassignedPartitions
from retry.kafka.topic_ids import TopicIds
from retry.settings import Settings

log = logging.getLogger(__name__)

_COMMITTED_S = 4.0
_AGAIN_S = 1.0
_PROOF_EVERY_S = 1.0
_NAMED_MAX = 20
# A broker that dies while it answers can leave a member fenced by its own ghost. More often means a real namesake.
_FENCED_MAX, _FENCED_WITHIN_S = 5, 60.0


def read_committed_offset(found: TopicPartition) -> CommittedOffset:
    if found.offset < 0:
        return CommittedOffset(None)
    return CommittedOffset(found.offset, found.metadata or "", -1 if found.leader_epoch is None else found.leader_epoch)


def _topic_partition(partition: Partition, start: StartingPoint, topic_id: str = "") -> TopicPartition:
    offset = OFFSET_BEGINNING if start.offset is None else start.offset
    return TopicPartition(*partition, offset, metadata=topic_id, leader_epoch=start.leader_epoch)


def _decides(error: KafkaError) -> bool:
    # A consumer hands its fatal errors on under one code, without the flag.
    return is_end(error) or error.fatal() or error.code() == KafkaError._FATAL


class KafkaGroupMember:
    """A consumer and the partitions that it owns. All methods but `metadata` and `ask_recreated` belong to one thread.

    Any other would wait until the consumer is neither reading nor being told of partitions (confluent-kafka 2.16), and whoever is
    told of those waits for what the other is about to commit.

    For `gained` and `leaving` see `Log.join_group`. `ended` has where the end of a partition was seen last. `refused` tells what
    was read and shows no headers though it has some.
    """

    def __init__(
        self, config: Config, subscription: Subscription, orphans: UnassignedPartitions, gained: OnAssigned, leaving: OnAssigned,
        identities: TopicIds, refused: RefusedHeaders,
    ) -> None:  # fmt: skip
        self.owned: set[Partition] = set()
        self.ended: dict[Partition, int] = {}
        self._config, self._subscription, self._orphans = config, subscription, orphans
        self._gained, self._leaving = gained, leaving
        self._errors = ErrorLog(config["group.id"])
        self._identities, self._ids = identities, dict[str, str]()
        self._refused = refused
        self._gave_up = self._is_telling = False
        # When the proof of membership is asked for, besides whenever the group was shared out anew.
        self._asking = clock.Interval(_PROOF_EVERY_S)
        self._metadata: object | None = None
        self._fatal_at_s: list[float] = []
        self._join()

    def _join(self) -> None:
        self._consumer, self._is_changed = client_config.make_consumer(self._config), True
        self._loop = ReadingLoop(self._consumer, self._errors, _decides, IDLE_S)
        self._subscribe()

    def _subscribe(self) -> None:
        if self._subscription.topics:
            callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_lost}
            self._consumer.subscribe(self._subscription.topics, **callbacks)
        else:
            self._consumer.unsubscribe()

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        """Return the next records, of owned partitions only; raises InstanceNameInUse where another process takes our place."""
        self._orphans.check_owners()
        if self._subscription.refresh_topics():
            self._subscribe()
        self._gave_up = False
        messages = self._loop.read(records_max, wait_s)
        if self._is_changed or self._metadata is None or self._asking.is_due():
            # Not at each read: it holds the interpreter while the client asks a thread of its own.
            self._metadata, self._is_changed = self._consumer.consumer_group_metadata(), False
        answers = [m for m in messages if m.error() is not None]
        for message in answers:
            if not is_end(error := cast(KafkaError, message.error())):
                self._join_again(error)
                return []
            self.ended[message.topic() or "", message.partition() or 0] = message.offset() or 0
        usable = [m for m in messages if m.error() is None] if answers else messages
        # Partitions may have been given up while the batch was being gathered.
        return [m for m in usable if (m.topic(), m.partition()) in self.owned] if self._gave_up else usable

    def subscribe(self, subscription: list[str]) -> None:
        """Read other topics from now on, if these are others; with none it leaves the group."""
        if subscription != self._subscription.names:
            more = [f"{len(subscription) - _NAMED_MAX:,} more"] if len(subscription) > _NAMED_MAX else []
            log.info("reading %s", ", ".join([*subscription[:_NAMED_MAX], *more]) or "nothing")
            self._subscription.replace_names(subscription)
            self._orphans.watch(subscription)
            self._subscribe()

    def _join_again(self, fatal: KafkaError) -> None:
        """Give everything up and begin as a new consumer; this one is of no more use."""
        now_s = clock.monotonic_s()
        self._fatal_at_s = [at_s for at_s in self._fatal_at_s if now_s - at_s < _FENCED_WITHIN_S] + [now_s]
        if len(self._fatal_at_s) >= _FENCED_MAX:
            raise InstanceNameInUse(format_versions.find_instance(self._config["group.instance.id"]), str(fatal))
        log.warning("joining the group again: %s", fatal)
        self.close()
        clock.pause(_AGAIN_S)
        self._join()

    def metadata(self) -> object:
        """Return the proof of group membership, as last known, that goes into a transaction; safe in any thread.

        Brokers refuse one that is older than the membership. Raises TransactionAborted where there is no membership just now.
        """
        metadata = self._metadata
        if metadata is None:
            raise TransactionAborted("no member of the group")
        return metadata

    def replace_unreadable(self, messages: list[Any]) -> list[Any]:
        """Replace records whose headers the client cannot read by `UnreadableHeaders`; each keeps its place."""
        return self._refused.replace_unreadable(messages)

    def begin_reading(self, partitions: Iterable[Partition], choose: ChooseStarts) -> None:
        """Read partitions that are owned from where `choose` says; nothing is read of one that was gained before that.

        It is told the committed offsets, after waiting for transactions that are about to commit some. Where it has no answer for
        a partition, nothing is read of it until it is asked again. Raises KafkaException or TimeoutError where nobody answers;
        ask again.
        """
        wanted = self.owned.intersection(partitions)
        # Before their offsets are asked for: what was committed for a topic that is gone by then, is gone with it. Of topics that
        # are read already the ids stay, so that it is found when one of them was made again meanwhile.
        kept = {topic for topic, _ in self.owned - wanted}
        ids = {topic: topic_id for topic, topic_id in self._ids.items() if topic in kept}
        self._ids = ids | self._identities.fetch_ids({topic for topic, _ in wanted} - ids.keys())
        asked = [TopicPartition(*partition) for partition in wanted if partition[0] in self._ids]
        committed = self._consumer.committed(asked, _COMMITTED_S) if asked else []
        offsets = {(each.topic, each.partition): read_committed_offset(each) for each in committed}
        for partition, start in choose(offsets, self._ids).items():
            place = _topic_partition(partition, start)
            self._consumer.seek(place)
            self._consumer.resume([place])

    def commit_starts(self, starts: Mapping[Partition, StartingPoint]) -> None:
        """Set the group's offsets to where reading begins, for those who look at them; raises KafkaException."""
        places = [_topic_partition(partition, start, self._ids.get(partition[0], "")) for partition, start in starts.items()]
        self._consumer.commit(offsets=places, asynchronous=False)

    def ask_recreated(self, topics: Iterable[str] = ()) -> Callable[[], list[str]]:
        """Ask which of some topics, or of all that are read, were deleted and made again since reading of them began.

        A client goes on in such a topic at the offset where it was. What was read before this is asked, and is not among the
        answer, is of the topic that its offsets are committed for. Safe in any thread. What is returned waits; it raises
        KafkaException or TimeoutError.
        """
        ids_before = self._ids
        ids_now = self._identities.request_ids(topics or ids_before)
        return lambda: sorted(topic for topic, topic_id in ids_now().items() if topic_id != ids_before.get(topic))

    def close(self) -> None:
        """Leave; `leaving` is told of everything that is still owned."""
        close_consumer(self._consumer, lambda: self._is_telling)
        self._refused.close()
        self._metadata = None
        if self.owned:
            self._give_up(list(self.owned))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # From an offset of our own, or the client would ask for the committed one, and go there whatever it is told meanwhile.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        consumer.pause(partitions)
        gained = [(p.topic, p.partition) for p in partitions]
        self.owned |= set(gained)
        self._is_changed = True
        self._gained(gained)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Of the membership that asks for them: what is under way can still be committed with it.
        try:
            self._metadata = consumer.consumer_group_metadata()
        except RuntimeError:
            # Fenced while it is closed, it has none. The client cannot hand this error on: it makes a `SystemError` of it.
            self._metadata = None
        self._give_up([(p.topic, p.partition) for p in partitions])
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Somebody else may have them by now.
        self._metadata = None
        self._give_up([(p.topic, p.partition) for p in partitions])
        consumer.incremental_unassign(partitions)

    def _give_up(self, given_up: list[Partition]) -> None:
        self._is_telling = True
        try:
            self._leaving(given_up)
        finally:
            self._is_telling = False
        self.owned -= set(given_up)
        self.ended = {partition: offset for partition, offset in self.ended.items() if partition in self.owned}
        self._gave_up = self._is_changed = True


_POLL_S = 0.05
_PARTITION = 0


class ElectedMember:
    """A member of a group that shares one topic; joins when it is asked first. For one thread."""

    def __init__(self, settings: Settings, group: str, topic: str) -> None:
        config = client_config.build_consumer_config(settings, group, "")
        # Whoever has no name of its own leaves the group when it ends, and need not be waited for.
        self._config = {name: value for name, value in config.items() if name != "group.instance.id"}
        self._topic, self._group = topic, group
        self._consumer: Consumer | None = None
        self._loop: ReadingLoop | None = None
        self.since_ms: int | None = None

    def is_holder(self) -> bool:
        """Whether this member holds the partition; ask every few seconds, which keeps it a member."""
        if self._loop is None:
            self._consumer = client_config.make_consumer(self._config)
            callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_revoke}
            self._consumer.subscribe([self._topic], **callbacks)  # type: ignore[arg-type]
            self._loop = ReadingLoop(self._consumer, ErrorLog(self._group))
        self._loop.read(1, _POLL_S)
        return self.since_ms is not None

    def close(self) -> None:
        if self._consumer is not None:
            close_consumer(self._consumer)
        self._consumer, self._loop, self.since_ms = None, None, None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions])
        consumer.pause(partitions)
        if any(each.partition == _PARTITION for each in partitions):
            self.since_ms = clock.wall_ms()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if any(each.partition == _PARTITION for each in partitions):
            self.since_ms = None
        consumer.incremental_unassign(partitions)
