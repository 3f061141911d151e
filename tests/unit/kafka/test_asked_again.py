"""Brokers that cannot answer just now are asked again, within bounds; what they refuse is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from retry import clock
from retry.errors import RightMissing, TopicsInvalid
from retry.kafka import consumer_groups, offset_ranges, topics
from retry.kafka.asked_again import ask_until_answered
from retry.kafka.record_fetch import RecordFetcher
from retry.kafka.topic_ids import TopicIds

TOPIC = "app-lineage"
PASSING = ["NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR",
           "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "_TRANSPORT", "NOT_CONTROLLER"]  # fmt: skip


def failure(name: str) -> KafkaException:
    return KafkaException(KafkaError(getattr(KafkaError, name), f"said {name}"))


class Admin:
    """Answers every question at the third time that it is asked, and with one error before."""

    def __init__(self, error: KafkaException, fails: int = 2) -> None:
        self._error, self._fails, self.asked = error, fails, 0
        about = SimpleNamespace(error=None, partitions={0: None})
        self._metadata = SimpleNamespace(topics={TOPIC: about}, brokers={1: None})

    def _told(self, answer: object) -> Future[Any]:
        told: Future[Any] = Future()
        self.asked += 1
        if self.asked <= self._fails:
            told.set_exception(self._error)
        else:
            told.set_result(answer)
        return told

    def list_topics(self, *_: object, **__: object) -> Any:
        return self._told(self._metadata).result()

    def list_offsets(self, asked: Iterable[Any], **_: object) -> dict[Any, Future[Any]]:
        return {place: self._told(SimpleNamespace(offset=7)) for place in asked}

    def describe_topics(self, _asked: object, **_: object) -> dict[str, Future[Any]]:
        return {TOPIC: self._told(SimpleNamespace(topic_id="id", partitions=[None]))}

    def describe_configs(self, asked: Iterable[Any], **_: object) -> dict[Any, Future[Any]]:
        return {resource: self._told({}) for resource in asked}

    def describe_consumer_groups(self, names: Iterable[str], **_: object) -> dict[str, Future[Any]]:
        member = SimpleNamespace(group_instance_id="", member_id="a")
        return {group: self._told(SimpleNamespace(members=[member])) for group in names}

    def list_consumer_group_offsets(self, asked: Iterable[Any], **_: object) -> dict[str, Future[Any]]:
        place = SimpleNamespace(topic=TOPIC, partition=0, offset=7)
        return {each.group_id: self._told(SimpleNamespace(topic_partitions=[place])) for each in asked}


QUESTIONS: dict[str, tuple[Callable[[Any], object], object]] = {
    "ends": (lambda admin: offset_ranges.ends(admin, TOPIC, [0]), {0: 7}),
    "starts": (lambda admin: offset_ranges.find_starts(admin, TOPIC, [0]), {0: 7}),
    "places": (lambda admin: offset_ranges.partitions_of(admin, TOPIC.__eq__, 5.0), [(TOPIC, 0)]),
    "describe": (lambda admin: topics.describe(admin, [TOPIC]), {TOPIC: topics.Described("id", 1, {})}),
    "ids": (lambda admin: TopicIds(admin).fetch_ids([TOPIC]), {TOPIC: "id"}),
    "positions": (lambda admin: consumer_groups.read_positions(admin, "group"), {(TOPIC, 0): 7}),
    "members": (lambda admin: consumer_groups.count_members(admin, "group"), 1),
}


@pytest.fixture(autouse=True)
def seconds() -> Iterable[list[float]]:
    """A clock on which only pauses pass."""
    passed = [100.0]

    class Paused:
        def wall_ms(self) -> int:
            return int(passed[0] * 1_000)

        def monotonic_s(self) -> float:
            return passed[0]

        def pause(self, seconds: float) -> None:
            passed[0] += max(seconds, 0.001)

    clock.use(Paused())  # type: ignore[arg-type]
    yield passed
    clock.use(clock.MACHINE)


@pytest.mark.parametrize("error", PASSING)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_broker_that_cannot_answer_yet_is_asked_again(question: str, error: str) -> None:
    ask, answer = QUESTIONS[question]
    assert ask(Admin(failure(error))) == answer


def test_partitions_of_a_topic_that_was_just_made_are_asked_for_again() -> None:
    for unheard_of in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION"):
        assert offset_ranges.ends(Admin(failure(unheard_of)), TOPIC, [0]) == {0: 7}  # type: ignore[arg-type]


def test_a_topic_whose_partitions_nobody_tells_is_not_one_without_partitions() -> None:
    admin = Admin(failure("_TRANSPORT"), fails=0)
    admin._metadata.topics[TOPIC].error = failure("LEADER_NOT_AVAILABLE").args[0]
    admin._metadata.topics[TOPIC].partitions = {}
    with pytest.raises(KafkaException, match=f"{TOPIC}: said LEADER_NOT_AVAILABLE"):
        offset_ranges.partitions_of(admin, TOPIC.__eq__, 5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("question", QUESTIONS)
def test_asking_again_ends_and_the_last_error_is_told(question: str, seconds: list[float]) -> None:
    with pytest.raises(KafkaException, match=r"said NOT_LEADER_FOR_PARTITION.*; asked again for \d+ s"):
        QUESTIONS[question][0](Admin(failure("NOT_LEADER_FOR_PARTITION"), fails=1_000_000))
    assert seconds[0] - 100 < 25


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_refusal_is_not_asked_again(question: str) -> None:
    admin = Admin(failure("TOPIC_AUTHORIZATION_FAILED"))
    try:
        # How many members there are is not known then.
        assert QUESTIONS[question][0](admin) is None
    except (KafkaException, RightMissing) as refusal:
        assert "said TOPIC_AUTHORIZATION_FAILED" in f"{refusal}{refusal.__cause__}" or "no right to describe" in str(refusal)  # noqa: PT017
    assert admin.asked == 1


def test_whoever_is_asked_is_told_how_long_it_may_take(seconds: list[float]) -> None:
    given = []

    def ask(within_s: float) -> int:
        given.append(within_s)
        clock.pause(4)
        if len(given) < 3:
            raise failure("_TIMED_OUT")
        return len(given)

    assert ask_until_answered(ask, 10) == 3
    assert given == sorted(given, reverse=True)
    assert given[0] == 10
    assert sum(given) < 20


class Creating(Admin):
    """A cluster that does not tell of what it created."""

    def list_topics(self, *_: object, **__: object) -> Any:
        return self._metadata

    def create_topics(self, new: Iterable[Any], **_: object) -> dict[str, Future[Any]]:
        return {topic.topic: self._told(None) for topic in new}

    def describe_topics(self, asked: Any, **_: object) -> dict[str, Future[Any]]:
        unknown: Future[Any] = Future()
        unknown.set_exception(failure("UNKNOWN_TOPIC_OR_PART"))
        return dict.fromkeys(["app-changelog"], unknown)


def test_topics_that_no_broker_tells_of_after_their_creation_are_not_called_created() -> None:
    with pytest.raises(TopicsInvalid, match="app-changelog was created, and no broker tells of it"):
        topics.create(Creating(failure("NOT_CONTROLLER"), fails=1), "app", 1)  # type: ignore[arg-type]


def test_a_pointer_whose_leader_moves_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    admin, pointers = Admin(failure("LEADER_NOT_AVAILABLE")), RecordFetcher({})
    admin.get_watermark_offsets = lambda *_, **__: (5, 5)  # type: ignore[attr-defined]
    monkeypatch.setattr(pointers, "_client", admin)
    assert pointers.fetch([(TOPIC, 0, 1)]) == {(TOPIC, 0, 1): "source_gone"}
