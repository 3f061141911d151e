"""A message of a schedules topic: what it asks for. Ids of acceptance items stand in the names; probes are those that the Go
scheduler was measured with."""

from __future__ import annotations

import pytest

from retry.delay_queue.envelopes import Entry
from retry.intake.batch import BatchResult
from retry.intake.entry_source import QueueLimits, RecordVersions
from retry.kafka.refused_headers import UnreadableHeaders
from retry.kafka.topics import matches
from retry.record import Headers
from retry.scheduling.messages.entry_source import SchedulesSource
from retry.scheduling.messages.schedule_request import (
    CANCEL,
    OWN_TOMBSTONE,
    Invalid,
    Put,
    RefusedBecause,
    Rules,
    ScheduleRequest,
    read_request,
)
from retry.testing.kafka import MemoryRecord

NOW_S = 1_700_000_000
TODAY_S = NOW_S - NOW_S % 86_400
RULES = Rules(lambda topic: topic != "forbidden", None, TODAY_S, frozenset({"app-changelog"}))


def message(
    epoch: object = NOW_S + 60, *more: tuple[str, bytes | None], target: str | None = "online-videos",
    target_key: bytes | None = b"vid1", key: bytes | None = b"vid1-online", value: bytes | None = b"video 1",
    sent_ms: int = NOW_S * 1_000,
) -> MemoryRecord:  # fmt: skip
    headers: Headers = [] if epoch is None else [("scheduler-epoch", str(epoch).encode())]
    headers += [] if target is None else [("scheduler-target-topic", target.encode())]
    headers += [] if target_key is None else [("scheduler-target-key", target_key)]
    return MemoryRecord(Entry("schedules", key, value, [*headers, *more], None, ""), 2, 41, sent_ms)


def ask(record: MemoryRecord | UnreadableHeaders, rules: Rules = RULES, now_ms: int = NOW_S * 1_000) -> ScheduleRequest:
    return read_request(record, now_ms, rules)


def read_put(record: MemoryRecord, rules: Rules = RULES, now_ms: int = NOW_S * 1_000) -> Put:
    found = ask(record, rules, now_ms)
    assert isinstance(found, Put), found
    return found


def reason(record: MemoryRecord | UnreadableHeaders, rules: Rules = RULES, now_ms: int = NOW_S * 1_000) -> RefusedBecause:
    found = ask(record, rules, now_ms)
    assert isinstance(found, Invalid), found
    return found.reason


def test_1_1_epoch_in_seconds_target_topic_and_target_key_are_taken_from_the_headers() -> None:
    found = read_put(message(1_893_456_000))
    assert (found.due_at_ms, found.target, found.target_key) == (1_893_456_000_000, "online-videos", b"vid1")


def test_1_2_the_example_of_the_seed_comes_out_as_written_there() -> None:
    found = read_put(message(1_893_456_000, ("customer-header", b"dummy"), sent_ms=1_607_918_336_000), Rules(lambda _: True))
    assert found.headers == [
        ("customer-header", b"dummy"),
        ("scheduler-timestamp", b"1607918336"),
        ("scheduler-key", b"vid1-online"),
        ("scheduler-topic", b"schedules"),
    ]


def test_1_2_customer_headers_keep_order_duplicates_and_nulls_and_no_scheduler_header_passes_through() -> None:
    others: Headers = [("a", b"1"), ("b", None), ("a", b""), ("Scheduler-x", b"kept: another case")]
    stale: Headers = [("scheduler-key", b"of the last time"), ("scheduler-anything", b"x")]
    found = read_put(message(NOW_S, *others, *stale))
    assert found.headers[: len(others)] == others
    assert [name for name, _ in found.headers[len(others) :]] == ["scheduler-timestamp", "scheduler-key", "scheduler-topic"]


def test_1_2_the_timestamp_is_that_of_the_message_in_seconds_cut_off() -> None:
    found = read_put(message(sent_ms=NOW_S * 1_000 + 999))
    assert ("scheduler-timestamp", b"%d" % NOW_S) in found.headers


def test_1_3_a_null_value_cancels() -> None:
    assert ask(message(value=None)) is CANCEL
    assert ask(message(None, value=None, target=None)) is CANCEL


def test_1_5_our_own_tombstone_read_back_says_nothing() -> None:
    assert ask(message(None, ("scheduler-done", b"41"), value=None)) is OWN_TOMBSTONE


def test_1_5_a_value_with_that_header_is_a_schedule_all_the_same() -> None:
    assert read_put(message(NOW_S + 5, ("scheduler-done", b"41"))).due_at_ms == (NOW_S + 5) * 1_000


@pytest.mark.parametrize(("late_s", "grace_s", "goes"), [
    (5, None, True), (5, 0, False), (0, 0, True), (3, 3, True), (4, 3, False), (-60, 0, True),
])  # fmt: skip
def test_1_15_and_1_25_past_due_on_arrival_goes_at_once_within_grace(late_s: int, grace_s: int | None, goes: bool) -> None:
    found = ask(message(NOW_S - late_s), RULES._replace(grace_s=grace_s))
    assert isinstance(found, Put) is goes
    assert goes or found == Invalid(RefusedBecause.PAST_DUE, ends=True)


def test_1_12_what_was_in_time_and_is_read_late_is_missed_and_goes_whatever_the_grace() -> None:
    sent = message(NOW_S - 600, sent_ms=(NOW_S - 3_600) * 1_000)
    found = read_put(sent, RULES._replace(grace_s=0))
    assert found.due_at_ms == (NOW_S - 600) * 1_000


def test_1_14_missed_schedules_of_before_since_are_too_old_and_stay_in_their_topic() -> None:
    yesterday = message(TODAY_S - 60, sent_ms=(TODAY_S - 600) * 1_000)
    assert ask(yesterday) == Invalid(RefusedBecause.TOO_OLD, ends=False)
    assert read_put(yesterday, RULES._replace(since_s=TODAY_S - 86_400)).due_at_ms == (TODAY_S - 60) * 1_000


def test_1_25_a_message_from_the_future_counts_as_arrived_now() -> None:
    assert reason(message(NOW_S - 5, sent_ms=(NOW_S + 900) * 1_000), RULES._replace(grace_s=3)) is RefusedBecause.PAST_DUE


def test_probe_epoch_is_now() -> None:
    assert read_put(message(NOW_S), RULES._replace(grace_s=0), NOW_S * 1_000 + 700).due_at_ms == NOW_S * 1_000


@pytest.mark.parametrize(("epoch", "why", "ends"), [
    (None, RefusedBecause.NO_EPOCH, False),
    ("", RefusedBecause.NO_EPOCH, False),
    ("tomorrow", RefusedBecause.NO_EPOCH, False),
    (f"{NOW_S + 3}.5", RefusedBecause.NO_EPOCH, False),
    (f" {NOW_S}", RefusedBecause.NO_EPOCH, False),
    ("9" * 40, RefusedBecause.NO_EPOCH, False),
    ((NOW_S + 3) * 1_000, RefusedBecause.EPOCH_IN_MS, False),
    (-5, RefusedBecause.NEGATIVE_EPOCH, True),
])  # fmt: skip
def test_probe_epochs_that_are_none(epoch: object, why: RefusedBecause, ends: bool) -> None:
    assert ask(message(epoch)) == Invalid(why, ends)


@pytest.mark.parametrize(("target", "why"), [
    (None, RefusedBecause.NO_TARGET), ("", RefusedBecause.NO_TARGET), ("no such/topic", RefusedBecause.BAD_TARGET),
    ("..", RefusedBecause.BAD_TARGET),
    ("\u00fc", RefusedBecause.BAD_TARGET), ("x" * 250, RefusedBecause.BAD_TARGET),
    ("forbidden", RefusedBecause.TARGET_NOT_ALLOWED),
    ("__consumer_offsets", RefusedBecause.INTERNAL_TARGET), ("__any", RefusedBecause.INTERNAL_TARGET),
    ("app-changelog", RefusedBecause.INTERNAL_TARGET),
])  # fmt: skip
def test_probe_targets_that_are_none(target: str | None, why: RefusedBecause) -> None:
    assert ask(message(target=target)) == Invalid(why, ends=False)


def test_probe_an_empty_value_is_a_message_like_any_other() -> None:
    assert read_put(message(value=b"")).target == "online-videos"


def test_probe_without_a_target_key_it_goes_with_a_null_key() -> None:
    assert read_put(message(target_key=None)).target_key is None
    assert read_put(message(target_key=b"")).target_key == b""


def test_probe_of_a_header_that_is_there_twice_the_first_counts_as_with_the_go_scheduler() -> None:
    assert read_put(message(NOW_S + 60, ("scheduler-epoch", b"%d" % (NOW_S + 99)))).due_at_ms == (NOW_S + 60) * 1_000


@pytest.mark.parametrize("key", [None, b"", b"  "])
def test_probe_without_a_key_it_is_no_schedule(key: bytes | None) -> None:
    assert reason(message(key=key)) is RefusedBecause.NO_KEY
    assert reason(message(key=key, value=None)) is RefusedBecause.NO_KEY


def test_headers_that_the_client_cannot_tell_make_no_schedule_but_cancel_with_a_null() -> None:
    assert reason(UnreadableHeaders(message())) is RefusedBecause.UNREADABLE_HEADERS
    assert ask(UnreadableHeaders(message(value=None))) is CANCEL


@pytest.mark.parametrize("value", [b"x", None])
def test_headers_that_the_client_cannot_tell_are_not_asked_for_again_where_there_is_no_key(value: bytes | None) -> None:
    untold = UnreadableHeaders(message(key=None, value=value))
    assert reason(untold) is RefusedBecause.UNREADABLE_HEADERS
    result = BatchResult()
    limits = QueueLimits(1, 1 << 20, RecordVersions())
    SchedulesSource(["schedules"], RULES, "history", "parked", limits).prepare([untold], NOW_S * 1_000, result)
    assert sum(map(len, result.entries.values())) == 1


def test_1_11_topics_are_names_and_patterns() -> None:
    topics = ("schedules", "^team-[a-z]+-schedules$")
    assert [matches(t, topics) for t in ("schedules", "team-a-schedules", "schedules2", "x-team-a-schedules")] == [
        True, True, False, False,
    ]  # fmt: skip
