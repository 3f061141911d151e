"""Rights are asked for, of thousands of topics that are not there only for the first ones."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from retry.kafka.authorization import TOPIC, Right, list_missing_rights


class Admin:
    """Lists some topics, says that one of any name may be read and none may be described, and notes what it was asked for."""

    def __init__(self, listed: Iterable[str] | None) -> None:
        self._listed, self.asked = listed, list[str]()

    def list_topics(self, timeout: float) -> Any:
        if self._listed is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics=dict.fromkeys(self._listed))

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        self.asked = list(answers)
        for name, answer in answers.items():
            if name.startswith("hidden"):
                answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
            else:
                answer.set_result(SimpleNamespace(authorized_operations=[SimpleNamespace(name="READ")]))
        return answers


def rights(*names: str) -> list[Right]:
    return [Right(TOPIC, name, "read", False) for name in names]


@pytest.mark.parametrize("more", [0, 1_000])
def test_a_right_is_missing_whether_the_topic_is_listed_or_hidden(more: int) -> None:
    there, many = [f"there {n}" for n in range(300)], [f"made by nobody {n}" for n in range(more)]
    admin, writes = Admin([*there, "other"]), Right(TOPIC, "there 7", "write", False)
    wanted = [*rights("hidden", *there, *many), writes]
    assert list_missing_rights(admin, wanted) == [*rights("hidden"), writes]  # type: ignore[arg-type]
    assert admin.asked == ["hidden", *there, *many[:199]]


def test_where_nobody_answers_nothing_is_known() -> None:
    admin = Admin(None)
    assert list_missing_rights(admin, rights(*(f"hidden {n}" for n in range(300)))) == []  # type: ignore[arg-type]
    assert list_missing_rights(admin, rights("hidden")) == rights("hidden")  # type: ignore[arg-type]
