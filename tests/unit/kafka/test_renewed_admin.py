"""The admin client of a long-lived process is replaced only where it is not answered and brokers are there."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from retry import clock
from retry.errors import BrokersRefused, BrokersUnreachable
from retry.kafka.cluster import SILENT_S, SILENT_S_MAX, RenewedAdmin
from tests.support.process import await_that
from tests.support.simulated_clock import simulated_clock


class Client:
    """Answers with its number."""

    def __init__(self, number: int) -> None:
        self.number = number


class Making:
    """Makes clients while brokers are there; counts how often it was asked to."""

    def __init__(self) -> None:
        self.asked, self.brokers = 0, True

    def __call__(self) -> Any:
        self.asked += 1
        if not self.brokers:
            raise BrokersUnreachable("nowhere", "a test")
        return Client(self.asked)


@pytest.fixture
def make() -> Iterator[Making]:
    with simulated_clock():
        yield Making()


def admin_of(make: Making) -> RenewedAdmin:
    return RenewedAdmin(Client(0), make, lambda task: task())  # type: ignore[arg-type]


class Endless(Client):
    """Cannot be let go of: as a client of librdkafka that waits for a thread of its own."""

    def __init__(self, number: int, waits: threading.Event, may_end: threading.Event) -> None:
        super().__init__(number)
        self._waits, self._may_end = waits, may_end

    def __del__(self) -> None:
        self._waits.set()
        self._may_end.wait()


def test_whoever_asks_does_not_wait_for_a_client_that_cannot_be_let_go_of() -> None:
    waits, may_end, made = threading.Event(), threading.Event(), itertools.count(1)
    admin = RenewedAdmin(Endless(0, waits, may_end), lambda: Client(next(made)))  # type: ignore[arg-type, return-value]
    try:
        for number, patience_s in enumerate((0.0, 0.0), 1):
            admin._patience_s = patience_s
            admin.note_answered(all_answered=False)
            await_that("the new one asks", lambda number=number: admin.number == number)  # type: ignore[misc]
        # The first is let go of now, by somebody else.
        assert waits.wait(60)
        admin._patience_s = 0.0
        admin.note_answered(all_answered=False)
        await_that("the next one asks", lambda: admin.number == 3)
    finally:
        may_end.set()


def test_what_refuses_a_new_client_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Any:
        raise BrokersRefused("nowhere", "the password is wrong")

    with simulated_clock():
        admin = RenewedAdmin(Client(0), refuse, lambda task: task())  # type: ignore[arg-type]
        clock.pause(SILENT_S)
        admin.note_answered(all_answered=False)
    assert (admin.number, "the password is wrong" in caplog.text) == (0, True)


def test_one_that_is_answered_now_and_then_is_kept(make: Making) -> None:
    admin = admin_of(make)
    for _ in range(10):
        clock.pause(SILENT_S - 1)
        admin.note_answered(all_answered=False)
        admin.note_answered(all_answered=True)
    assert (admin.number, make.asked) == (0, 0)


def test_one_that_is_not_answered_for_long_is_replaced_where_a_broker_is_there(make: Making) -> None:
    admin = admin_of(make)
    clock.pause(SILENT_S)
    admin.note_answered(all_answered=False)
    assert (admin.number, make.asked) == (1, 1)
    admin.note_answered(all_answered=False)
    assert make.asked == 1


def test_it_is_kept_while_a_new_one_hears_from_no_broker_either(make: Making) -> None:
    admin = admin_of(make)
    make.brokers = False
    for tries in range(1, 4):
        clock.pause(SILENT_S)
        admin.note_answered(all_answered=False)
        assert (admin.number, make.asked) == (0, tries)
    make.brokers = True
    clock.pause(SILENT_S)
    admin.note_answered(all_answered=False)
    assert admin.number == 4


def test_where_new_ones_are_not_answered_either_they_come_less_and_less_often(make: Making) -> None:
    admin, wait_s = admin_of(make), SILENT_S
    for number in range(1, 10):
        clock.pause(wait_s - 0.1)
        admin.note_answered(all_answered=False)
        assert make.asked == number - 1
        clock.pause(0.1)
        admin.note_answered(all_answered=False)
        assert admin.number == number
        wait_s = min(2 * wait_s, SILENT_S_MAX)
    admin.note_answered(all_answered=True)
    clock.pause(SILENT_S)
    admin.note_answered(all_answered=False)
    assert admin.number == 10
