"""One loop reads every consumer: what its caller decides about comes through, and whatever passes is logged once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from retry.clock import Deadline
from retry.kafka.reading_loop import ErrorLog, ReadingLoop

END, LOST = KafkaError._PARTITION_EOF, KafkaError._TRANSPORT


def message(code: int | None = None) -> Any:
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(error=lambda: error, topic=lambda: "orders")


class Consumer:
    """Brings these messages, batch by batch, then nothing."""

    def __init__(self, *batches: list[Any]) -> None:
        self._batches = list(batches)

    def consume(self, _records_max: int, _wait_s: float) -> list[Any]:
        return self._batches.pop(0) if self._batches else []


def loop(*batches: list[Any]) -> ReadingLoop:
    return ReadingLoop(Consumer(*batches), ErrorLog())  # type: ignore[arg-type]


def test_records_and_ends_keep_their_order_and_what_passes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    first, end, last = message(), message(END), message()
    assert loop([first, message(LOST), end, message(LOST), last]).read(10, 0.0) == [first, end, last]
    assert len(caplog.records) == 1


def test_of_thousands_of_topics_that_are_not_there_twenty_are_named(caplog: pytest.LogCaptureFixture) -> None:
    errors = ErrorLog("group")
    for n in range(14_156):
        errors.log_error(KafkaError(KafkaError._UNKNOWN_TOPIC, f"Subscribed topic not available: t{n}"), f"t{n}")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 21
    assert "t19" in warnings[-2]
    assert "more topics" in warnings[-1]


def test_a_reader_outside_every_group_is_not_bothered_with_rights_to_one(caplog: pytest.LogCaptureFixture) -> None:
    assert loop([message(KafkaError.GROUP_AUTHORIZATION_FAILED)]).read(10, 0.0) == []
    assert not caplog.records


def test_reading_ends_when_nothing_more_is_wanted_or_the_time_is_over() -> None:
    records, wanted = [message(), message()], iter([2, 1, 1, 0])
    assert list(loop(records[:1], [], records[1:]).until(lambda: next(wanted), 0.0)) == [records[:1], [], records[1:]]
    assert list(loop(records).until(lambda: 1, 0.0, Deadline(0.0))) == []
