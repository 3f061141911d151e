"""Of very many names a client is told those of topics that there are; a topic that is made later is read, too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from retry import clock
from retry.kafka.subscription import Subscription


class Topics:
    """Stands for the brokers' list of topics; counts how often it was asked for."""

    def __init__(self, *names: str) -> None:
        self.names, self.asked, self.away = set(names), 0, False

    def list_topics(self, timeout: float) -> Any:
        self.asked += 1
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics=dict.fromkeys(self.names))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the monotonic clock, to be set."""
    at_s = [1_000.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: at_s[0])
    return at_s


MANY = [f"g{n}.DLT" for n in range(14_156)]


def test_of_names_that_are_few_all_are_told_and_nobody_is_asked() -> None:
    brokers = Topics()
    subscription = Subscription(brokers, MANY[:200])  # type: ignore[arg-type]
    assert subscription.topics == MANY[:200] and not subscription.refresh_topics() and brokers.asked == 0


def test_of_thousands_of_names_those_of_topics_are_told_with_patterns_and_two_hundred_others() -> None:
    subscription = Subscription(Topics("g9999.DLT", "strange"), ["^shop\\..*\\.DLT$", *MANY])  # type: ignore[arg-type]
    assert subscription.topics == ["^shop\\..*\\.DLT$", *MANY[:200], "g9999.DLT"] and len(subscription.names) == 14_157


def test_a_topic_that_is_made_later_is_told_within_seconds(now: list[float]) -> None:
    brokers = Topics("g0.DLT")
    subscription = Subscription(brokers, MANY)  # type: ignore[arg-type]
    brokers.names.add("g7000.DLT")
    looked = []
    for _ in range(3):
        looked.append(subscription.refresh_topics())
        now[0] += 5.0
    assert sorted(looked) == [False, False, True] and "g7000.DLT" in subscription.topics
    assert subscription.topics[:201] == MANY[:201]


def test_where_nobody_says_which_topics_there_are_none_is_left_out(now: list[float]) -> None:
    brokers = Topics("g7000.DLT")
    brokers.away = True
    subscription = Subscription(brokers, MANY)  # type: ignore[arg-type]
    assert subscription.topics == MANY
    brokers.away = False
    now[0] += 5.0
    assert subscription.refresh_topics() and subscription.topics == [*MANY[:200], "g7000.DLT"]
    brokers.away = True
    now[0] += 5.0
    assert not subscription.refresh_topics() and subscription.topics == [*MANY[:200], "g7000.DLT"]


def test_a_changed_policy_file_has_its_names_chosen_anew() -> None:
    subscription = Subscription(Topics("g7000.DLT"), ["orders.DLT"])  # type: ignore[arg-type]
    subscription.replace_names(MANY)
    assert subscription.topics == [*MANY[:200], "g7000.DLT"]
    subscription.replace_names([])
    assert subscription.topics == []
