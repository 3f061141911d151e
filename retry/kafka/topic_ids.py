"""Which topics the names stand for: one that was deleted and made again has another id, and offsets of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, TopicDescription

from retry import clock
from retry.errors import ChangelogReplaced, TopicsInvalid
from retry.kafka import offset_ranges
from retry.kafka.client_config import Config

_EVERY_S = 4.0
# A broker that has just started may not know every topic yet.
_GONE_LOOKS = 3
_ASK_S = 5.0
_GROUP_S = 30.0
_AGAIN_S = 0.2
_LOOK = "look at the brokers, then start again"
_OFFSETS = "__consumer_offsets"


class Identities:
    """Asks the cluster for the ids of topics."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def ask(self, topics: Iterable[str]) -> Callable[[], dict[str, str]]:
        """Ask now for the ids of those of `topics` that exist, and be told them later, when they are wanted.

        Being told raises:
          KafkaException, TimeoutError: nobody answered within 5 s.
        """
        wanted = sorted(set(topics))
        answers = self._admin.describe_topics(TopicCollection(wanted), request_timeout=_ASK_S) if wanted else {}
        return lambda: dict(_found(answers))

    def now(self, topics: Iterable[str]) -> dict[str, str]:
        """The same at once."""
        return self.ask(topics)()


def _found(answers: Mapping[str, Future[TopicDescription]]) -> Iterator[tuple[str, str]]:
    for topic, answer in answers.items():
        try:
            yield topic, str(answer.result(_ASK_S).topic_id)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


class Changelog:
    """The changelog that a worker began with, and whether it is still that one."""

    def __init__(self, admin: AdminClient, topic: str, topic_id: str) -> None:
        self._identities, self._topic, self._topic_id = Identities(admin), topic, topic_id
        self._next_s, self._gone = clock.monotonic_s() + _EVERY_S, 0

    def look(self) -> None:
        """Ask every few seconds.

        Raises:
          ChangelogReplaced: it is another topic now, or gone.
        """
        if clock.monotonic_s() < self._next_s:
            return
        self._next_s = clock.monotonic_s() + _EVERY_S
        try:
            self.confirm()
        except (KafkaException, TimeoutError):
            return

    def confirm(self) -> None:
        """Ask now.

        Raises:
          ChangelogReplaced: as `look`.
          KafkaException, TimeoutError: nobody answered.
        """
        now = self._identities.now([self._topic]).get(self._topic)
        self._gone = self._gone + 1 if now is None else 0
        if now is None and self._gone < _GONE_LOOKS:
            return
        if now != self._topic_id:
            was = f"this worker began with topic id {self._topic_id}"
            raise ChangelogReplaced(self._topic, was, f"it is {now}" if now else "there is none")


def refuse_if_emptied(
    admin: AdminClient, changelog: str, partitions: int, member: Config, reads: Callable[[str], bool]
) -> None:
    """Refuse an empty changelog where letters were taken in before: entries and offsets are written together.

    Args:
      member: the configuration of a consumer in the intake group.
      reads: whether letters of a topic are taken in.

    Raises:
      ChangelogReplaced: the entries of those letters were in another topic of this name.
      TopicsInvalid: nobody knows how far letters were taken in.
    """
    deadline = clock.Deadline(_GROUP_S)

    def is_empty() -> bool:
        while True:
            try:
                return not any(offset_ranges.ends(admin, changelog, range(partitions)).values())
            except (KafkaException, TimeoutError) as error:
                # A topic that was just made has no leader for a moment.
                if deadline.passed():
                    raise TopicsInvalid([f"the end of {changelog} is not known: {error}"], _LOOK) from error
                clock.pause(_AGAIN_S)

    def letters() -> list[TopicPartition]:
        topics = admin.list_topics(timeout=_GROUP_S).topics
        return [TopicPartition(topic, n) for topic in topics if reads(topic) for n in topics[topic].partitions]

    # Asked again, since another worker may have taken in the first letters meanwhile.
    if is_empty() and (place := _taken_in(admin, member, letters())) and is_empty():
        was = f"letters of {place.topic} partition {place.partition} were taken in up to offset {place.offset}"
        raise ChangelogReplaced(changelog, was, "it is empty")


def _taken_in(admin: AdminClient, member: Config, places: list[TopicPartition]) -> TopicPartition | None:
    """A committed offset of the group, if it has one.

    Asked as the group's consumers do: an admin client that asks while a cluster makes its first groups ends the process
    (librdkafka 2.16).
    """
    if not places or not Identities(admin).now([_OFFSETS]):
        # A cluster that never had a group. Whoever asks for one waits for long until that topic is made.
        return None
    consumer = Consumer({name: value for name, value in member.items() if name != "group.instance.id"})
    deadline = clock.Deadline(_GROUP_S)
    try:
        while True:
            try:
                found = consumer.committed(places, _ASK_S)
                return next((place for place in found if place.offset > 0), None)
            except KafkaException as error:
                # A group that is new, or has moved, has no coordinator for a moment.
                if deadline.passed():
                    reason = f"the offsets of group {member['group.id']} cannot be read: {error}"
                    raise TopicsInvalid([reason], _LOOK) from error
                clock.pause(_AGAIN_S)
    finally:
        consumer.close()
