"""A consumer that does not come to an end is left behind; one that is only slow, or at work in a callback, is not."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from retry.kafka import closing
from retry.kafka.closing import close_consumer
from retry.kafka.group_member import KafkaGroupMember

HUNG_S = 0.6


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "_CLOSE_S", HUNG_S)
    monkeypatch.setattr(closing, "_LOOK_S", 0.05)


class Closing:
    """A consumer whose closing ends when it is let.

    Attributes:
      lets: let it end.
    """

    def __init__(self, failure: Exception | None = None) -> None:
        self.lets, self.is_closed, self._failure = Event(), Event(), failure

    def close(self) -> None:
        self.lets.wait(60)
        self.is_closed.set()
        if self._failure is not None:
            raise self._failure


def test_one_that_never_ends_is_left_behind() -> None:
    consumer: Any = Closing()
    assert not close_consumer(consumer)
    assert not consumer.is_closed.is_set()
    consumer.lets.set()


def test_one_whose_callback_is_at_work_is_waited_for() -> None:
    consumer: Any = Closing()
    looks = 0

    def is_telling() -> bool:
        nonlocal looks
        looks += 1
        if looks > 3 * HUNG_S / 0.05:
            consumer.lets.set()
        return True

    assert close_consumer(consumer, is_telling)
    assert consumer.is_closed.is_set()


def test_what_goes_wrong_in_it_is_raised_where_it_was_asked_for() -> None:
    consumer: Any = Closing(ValueError("of a callback"))
    consumer.lets.set()
    with pytest.raises(ValueError, match="of a callback"):
        close_consumer(consumer)


def test_a_member_whose_client_does_not_end_gives_up_what_it_owns() -> None:
    consumer, left = Closing(), list[Any]()
    member = KafkaGroupMember.__new__(KafkaGroupMember)
    member.owned, member.ended, member._leaving = {("letters", 0)}, {}, left.extend
    member._is_telling, member._consumer = False, consumer  # type: ignore[assignment]
    member._refused = SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
    member.close()
    assert (left, member.owned) == ([("letters", 0)], set())
    consumer.lets.set()
