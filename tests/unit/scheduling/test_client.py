"""The client for users of the scheduler: what it makes, read by the scheduler's own door."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from retry.delay_queue.envelopes import Entry
from retry.scheduling import client
from retry.scheduling.messages.schedule_request import CANCEL, Put, Rules, read_request
from retry.testing.kafka import MemoryRecord

NOW_S = 1_700_000_000


def read(record: client.ScheduleRecord) -> Any:
    sent = Entry(record["topic"], record["key"], record["value"], record["headers"], None, "")
    return read_request(MemoryRecord(sent, 0, 0, NOW_S * 1_000), NOW_S * 1_000, Rules(lambda _topic: True))


def make_schedule(**other: Any) -> client.ScheduleRecord:
    return client.schedule(**{"topic": "online", "key": b"vid1", "value": b"x", "at": NOW_S + 60, "schedule_id": "a"} | other)


def test_1_6_schedule_makes_what_the_scheduler_reads() -> None:
    record = make_schedule(schedules_topic="mine", headers=[("a", b"1"), ("scheduler-key", b"stale")])
    assert (record["topic"], record["key"], record["value"]) == ("mine", b"a", b"x")
    put = read(record)
    assert isinstance(put, Put)
    assert (put.due_at_ms, put.target, put.target_key, put.headers[0]) == ((NOW_S + 60) * 1_000, "online", b"vid1", ("a", b"1"))


def test_1_6_a_time_is_never_cut_to_an_earlier_second() -> None:
    assert read(make_schedule(at=NOW_S + 0.2)).due_at_ms == (NOW_S + 1) * 1_000
    at = datetime.datetime.fromtimestamp(NOW_S, datetime.timezone(datetime.timedelta(hours=3)))
    assert read(make_schedule(at=at)).due_at_ms == NOW_S * 1_000


def test_1_6_cancel_is_a_null_under_the_same_id() -> None:
    record = client.cancel(schedule_id="a")
    assert (record["topic"], record["key"], record["value"]) == ("schedules", b"a", None)
    assert read(record) is CANCEL


@pytest.mark.parametrize("wrong", [
    {"topic": ""}, {"schedule_id": ""}, {"schedules_topic": ""}, {"value": None}, {"at": float("nan")}, {"at": -1},
    {"at": datetime.datetime(2026, 1, 1)},
])  # fmt: skip
def test_1_6_what_would_be_no_schedule_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        make_schedule(**wrong)


def test_1_6_a_message_from_a_scheduler_is_known() -> None:
    put = read(make_schedule())
    assert client.is_scheduled_message(put.headers)
    assert not client.is_scheduled_message([("a", b"1")])
    assert not client.is_scheduled_message(None)


def test_1_6_and_1_24_retries_are_counted_in_the_headers_and_wait_longer_each_time() -> None:
    headers: list[client.Header] = [("mine", b"1")]
    waits = []
    for n in range(1, 4):
        record = client.schedule_retry(
            topic="calls", key=b"k", value=b"x", headers=headers, schedule_id="k", attempts_max=3, now=NOW_S
        )
        put = read(record)
        waits.append(put.due_at_ms // 1_000 - NOW_S)
        headers = put.headers
        assert client.count_attempts(headers) == n
    assert waits == [10, 20, 40]
    assert dict(headers)["retry-original-timestamp"] == b"%d" % NOW_S
    with pytest.raises(client.AttemptsUsedUp):
        client.schedule_retry(topic="calls", key=b"k", value=b"x", headers=headers, schedule_id="k", attempts_max=3)
