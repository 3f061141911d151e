"""Which topics the names stand for: one that was deleted and made again has another id, and offsets of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, TopicDescription

from retry.clock import Interval
from retry.errors import ChangelogReplaced, TopicsInvalid
from retry.kafka import authorization, client_config, offset_ranges
from retry.kafka.asked_again import ask_until_answered
from retry.kafka.authorization import Right
from retry.kafka.client_config import Config
from retry.kafka.closing import close_consumer

_EVERY_S = 4.0
# A broker that has just started may not know every topic yet.
_GONE_LOOKS = 3
_ASK_S = 5.0
_GROUP_S = 30.0
_LOOK = "look at the brokers, then start again"
_OFFSETS = "__consumer_offsets"


class TopicIds:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def request_ids(self, topics: Iterable[str]) -> Callable[[], dict[str, str]]:
        """Ask now for the ids of those of `topics` that exist; what is returned waits, and raises KafkaException or TimeoutError.
        """
        names = sorted(set(topics))
        answers = self._admin.describe_topics(TopicCollection(names), request_timeout=_ASK_S) if names else {}
        return lambda: dict(_ids_by_topic(answers))

    def fetch_ids(self, topics: Iterable[str]) -> dict[str, str]:
        names = list(topics)
        return ask_until_answered(lambda _within_s: self.request_ids(names)(), _ASK_S)


def _ids_by_topic(answers: Mapping[str, Future[TopicDescription]]) -> Iterator[tuple[str, str]]:
    for topic, answer in answers.items():
        try:
            yield topic, str(answer.result(_ASK_S).topic_id)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


class ChangelogIdentity:
    def __init__(self, admin: AdminClient, topic: str, topic_id: str) -> None:
        self._identities, self._topic, self._topic_id = TopicIds(admin), topic, topic_id
        self._asking, self._gone = Interval(_EVERY_S), 0

    def check_changelog(self) -> None:
        """Ask every few seconds; raises ChangelogReplaced where it is another topic now, or gone."""
        if not self._asking.is_due():
            return
        try:
            self.confirm()
        except (KafkaException, TimeoutError):
            return

    def confirm(self) -> None:
        """Ask now; raises ChangelogReplaced as `check_changelog`, and KafkaException or TimeoutError where nobody answers."""
        now = self._identities.fetch_ids([self._topic]).get(self._topic)
        self._gone = self._gone + 1 if now is None else 0
        if now is None and self._gone < _GONE_LOOKS:
            return
        if now != self._topic_id:
            was = f"this worker began with topic id {self._topic_id}"
            raise ChangelogReplaced(self._topic, was, f"it is {now}" if now else "there is none")


def refuse_if_emptied(
    admin: AdminClient, changelog: str, partitions: int, positions: str, member: Config, reads: Callable[[str], bool]
) -> None:
    """Refuse an empty changelog where letters were taken in before: entries, positions and offsets are written together.

    Args:
      positions: the topic of read positions.
      member: the configuration of a consumer in the intake group.

    Raises ChangelogReplaced: the entries were in another topic of this name; TopicsInvalid: nobody knows how far intake came.
    """

    def has_records(topic: str, count: int) -> bool:
        try:
            return any(offset_ranges.ends(admin, topic, range(count)).values())
        except (KafkaException, TimeoutError) as error:
            raise TopicsInvalid([f"the end of {topic} is not known: {error}"], _LOOK) from error

    def is_empty() -> bool:
        return not has_records(changelog, partitions)

    def list_partitions() -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in offset_ranges.partitions_of(admin, reads, _GROUP_S)]

    if is_empty() and has_records(positions, 1) and is_empty():
        raise ChangelogReplaced(changelog, f"{positions} has positions of letters that were taken in", "it is empty")
    # Asked again, since another worker may have taken in the first letters meanwhile.
    if is_empty() and (partition := _taken_in(admin, member, list_partitions())) and is_empty():
        was = f"letters of {partition.topic} partition {partition.partition} were taken in up to offset {partition.offset}"
        raise ChangelogReplaced(changelog, was, "it is empty")


def _never_had_a_group(admin: AdminClient) -> bool:
    """Whether the topic of all groups is missing; a question about a group would wait for long until that is made."""
    try:
        return not TopicIds(admin).fetch_ids([_OFFSETS])
    except KafkaException as error:
        # A user needs no right to that topic: then nobody knows, and the group is asked.
        if authorization.is_denied(error):
            return False
        raise


def _taken_in(admin: AdminClient, member: Config, partitions: list[TopicPartition]) -> TopicPartition | None:
    """A committed offset of the group, if it has one; asked as its consumers do, without `retry.kafka.committed_offsets`."""
    if not partitions or _never_had_a_group(admin):
        return None
    consumer = client_config.make_consumer({name: value for name, value in member.items() if name != "group.instance.id"})
    try:
        committed = ask_until_answered(lambda within_s: consumer.committed(partitions, min(within_s, _ASK_S)), _GROUP_S)
        return next((partition for partition in committed if partition.offset > 0), None)
    except KafkaException as error:
        # A client that may not ask for a group's coordinator hears nothing at all.
        right = Right(authorization.GROUP, member["group.id"], authorization.READ)
        reason = f"the offsets of group {right.name} cannot be read: {error}"
        raise TopicsInvalid([reason], f"{_LOOK}; or is it {authorization.build_right_missing(right)}") from error
    finally:
        close_consumer(consumer)
