"""The entry source for scheduled messages: which rows of the changelog a batch comes to."""

from __future__ import annotations

from typing import Any

import pytest

from retry.delay_queue import entry_keys, envelope_codec, envelopes
from retry.delay_queue.envelopes import Also, Entry, Named
from retry.intake.batch import BatchResult
from retry.intake.entry_source import CANCELS_REMEMBERED_MS, QueueLimits, RecordVersions
from retry.record import Headers
from retry.scheduling.messages.entry_source import CANCELLED, DONE, INVALID, PLANNED, TEAM, SchedulesSource
from retry.scheduling.messages.schedule_request import RefusedBecause, Rules
from retry.testing.kafka import MemoryRecord

NOW_MS = 1_700_000_000_000
SHARDS = 4


def record(
    epoch_s: int | None = NOW_MS // 1_000 + 60, *more: tuple[str, bytes | None], key: bytes | None = b"vid1-online",
    value: bytes | None = b"video 1", offset: int = 41, partition: int = 2, topic: str = "schedules", sent_ms: int = NOW_MS,
) -> MemoryRecord:  # fmt: skip
    headers: Headers = [("scheduler-target-topic", b"online"), ("scheduler-target-key", b"vid1"), ("mine", b"x")]
    if epoch_s is not None:
        headers.append(("scheduler-epoch", b"%d" % epoch_s))
    return MemoryRecord(Entry(topic, key, value, [*headers, *more], None, ""), partition, offset, sent_ms)


def prepare(*messages: MemoryRecord, bytes_max: int = 1 << 20, rules: Rules | None = None) -> BatchResult:
    rules = rules or Rules(lambda topic: topic == "online")
    source = SchedulesSource(["schedules"], rules, "history", "parked", QueueLimits(SHARDS, bytes_max, RecordVersions()))
    into = BatchResult()
    source.prepare(messages, NOW_MS, into)
    return into


def rows(result: BatchResult) -> list[dict[str, Any]]:
    return [row for rows in result.entries.values() for row in rows]


def only(result: BatchResult) -> tuple[bytes, Named]:
    (row,) = rows(result)
    return row["key"], envelopes.decode_named(row["value"])


def test_1_4_and_1_5_what_is_sent_takes_a_copy_for_history_and_a_tombstone_along() -> None:
    key, entry = only(prepare(record()))
    sent = [("mine", b"x"), ("scheduler-timestamp", b"1700000000"), ("scheduler-key", b"vid1-online"),
            ("scheduler-topic", b"schedules")]  # fmt: skip
    assert (entry.destination, entry.key, entry.value, entry.headers) == ("online", b"vid1", b"video 1", sent)
    assert entry.timestamp_ms is None
    history, tombstone = entry.also
    requested = [("scheduler-epoch", b"1700000060"), ("scheduler-target-topic", b"online"), ("scheduler-target-key", b"vid1")]
    # Behind the headers of what is sent, as `whole` has it.
    assert history == Also("history", None, b"vid1", None, True, requested)
    assert tombstone == Also("schedules", 2, b"vid1-online", None, False, [("scheduler-done", b"41")])
    assert entry_keys.due_at_ms(key) == NOW_MS + 60_000
    assert entry_keys.read_source(key)[1:] == ("schedules", 2, 41)


def test_1_25_issue_53_the_tombstone_goes_to_the_partition_of_the_schedule() -> None:
    for partition in range(7):
        _, entry = only(prepare(record(partition=partition)))
        assert entry.also[1].partition == partition


def test_1_3_the_same_key_again_is_the_same_name_with_a_greater_version() -> None:
    first, second = rows(prepare(record(offset=41), record(offset=42, epoch_s=NOW_MS // 1_000 + 9)))
    assert entry_keys.name_of(first["key"]) == entry_keys.name_of(second["key"])
    assert entry_keys.read_version(first["key"]) < entry_keys.read_version(second["key"])
    assert entry_keys.read_written_at_ms(first["key"]) == entry_keys.read_written_at_ms(second["key"]) == NOW_MS


def test_1_3_a_null_is_a_cancel_of_all_up_to_it() -> None:
    put, cancel = rows(prepare(record(offset=41), record(offset=42, value=None)))
    assert entry_keys.lane_of(cancel["key"]) == entry_keys.CANCEL
    assert entry_keys.name_of(put["key"]) == entry_keys.name_of(cancel["key"])
    assert entry_keys.read_version(cancel["key"]) > entry_keys.read_version(put["key"])
    assert entry_keys.due_at_ms(cancel["key"]) == NOW_MS + CANCELS_REMEMBERED_MS


def test_all_of_a_key_is_in_one_shard() -> None:
    result = prepare(*(record(key=b"k%d" % (n % 5), offset=n, value=None if n % 3 else b"x") for n in range(60)))
    shards = {}
    for shard, found in result.entries.items():
        for row in found:
            assert shards.setdefault(entry_keys.name_of(row["key"]), shard) == shard
    assert len(shards) == 5


def test_1_11_a_key_is_a_name_in_its_topic_whatever_its_partition() -> None:
    found = [record(), record(topic="schedules-2"), record(key=b"other")]
    assert len({entry_keys.name_of(only(prepare(each))[0]) for each in found}) == len(found)
    elsewhere = only(prepare(record(partition=3)))[0]
    assert entry_keys.name_of(elsewhere) == entry_keys.name_of(only(prepare(record()))[0])


def test_1_3_a_cancel_of_another_partition_is_of_the_same_name_and_later_by_its_timestamp() -> None:
    put = record(offset=900, partition=0, sent_ms=NOW_MS - 5_000)
    cancel = record(offset=3, partition=1, sent_ms=NOW_MS - 4_000, value=None)
    for messages in ([put, cancel], [cancel, put]):
        by_lane = {entry_keys.lane_of(row["key"]) == entry_keys.CANCEL: row["key"] for row in rows(prepare(*messages))}
        assert entry_keys.name_of(by_lane[True]) == entry_keys.name_of(by_lane[False])
        assert entry_keys.read_version(by_lane[True]) > entry_keys.read_version(by_lane[False])


def test_1_5_our_tombstone_read_back_writes_nothing() -> None:
    result = prepare(record(None, ("scheduler-done", b"7"), value=None))
    assert not rows(result)
    assert result.decided == {(TEAM, DONE): 1}


def test_what_is_no_schedule_replaces_what_waits_and_is_parked_whole_with_the_reason() -> None:
    (put,) = rows(prepare(record(offset=40)))
    cancel, parked = rows(prepare(record(None)))
    assert entry_keys.name_of(cancel["key"]) == entry_keys.name_of(put["key"])
    assert entry_keys.lane_of(cancel["key"]) == entry_keys.CANCEL
    entry = envelopes.decode_named(parked["value"])
    assert entry_keys.due_at_ms(parked["key"]) == NOW_MS
    assert (entry.destination, entry.key, entry.value) == ("parked", b"vid1-online", b"video 1")
    assert dict(entry.headers)["retry-parked-reason"] == b"no_epoch"
    assert dict(entry.headers)["scheduler-source"] == b"schedules/2/41"
    assert "retry-source" not in dict(entry.headers), "that would make it a letter, which `retry verify` looks for"
    assert dict(entry.headers)["scheduler-target-topic"] == b"online"
    assert entry.also == ()


def test_what_is_no_schedule_is_parked_even_where_the_same_key_comes_again_at_once() -> None:
    for key in (b"vid1-online", b"", b" ", None):
        bad = [record(None, key=key, offset=offset) for offset in (41, 42)]
        parked = [
            row for row in rows(prepare(*bad, record(key=key, offset=43))) if entry_keys.lane_of(row["key"]) != entry_keys.CANCEL
        ]
        assert len({entry_keys.name_of(row["key"]) for row in parked}) == 3


def test_probe_a_negative_epoch_is_ended_once_by_a_tombstone_that_is_known_when_read_back() -> None:
    _, entry = only(prepare(record(-5)))
    (tombstone,) = entry.also
    assert tombstone == Also("schedules", 2, b"vid1-online", None, False, [("scheduler-done", b"41")])
    read_back = MemoryRecord(Entry("schedules", tombstone.key, None, tombstone.headers, None, ""), 2, 42, NOW_MS)
    assert not rows(prepare(read_back))


def test_without_a_key_nothing_is_replaced_and_it_parks() -> None:
    found = rows(prepare(record(key=None), record(key=None, offset=42), record(key=b"schedules/2/41", offset=43)))
    assert {row["key"][0] for row in found} == {entry_keys.NAMED}
    assert len({entry_keys.name_of(row["key"]) for row in found}) == 3
    without = [envelope_codec.PLAIN.decode(row["key"], row["value"]) for row in found[:2]]
    assert {entry.destination for entry in without} >= {"parked"}


def test_no_entry_of_this_door_has_a_plain_key_which_would_be_read_without_what_goes_beside_it() -> None:
    odd = (None, b"", b" ", b"\0")
    epochs = (-5, None, 1_800_000_000)
    found = rows(prepare(*(record(epoch_s, key=key, offset=n) for n, key in enumerate(odd) for epoch_s in epochs)))
    assert len(found) == 3 * len(odd) + 1
    assert {row["key"][0] for row in found} == {entry_keys.NAMED}


def test_what_the_changelog_cannot_take_is_parked_by_reference() -> None:
    _, row = rows(prepare(record(value=b"x" * 5_000), bytes_max=2_000))
    entry = envelopes.decode_named(row["value"])
    assert (entry.destination, entry.value) == ("parked", None)
    assert dict(entry.headers)["retry-parked-reason"] == RefusedBecause.TOO_LARGE.value.encode()
    assert len(row["key"]) + len(row["value"]) <= 2_000


def test_1_13_everything_is_counted_once() -> None:
    result = prepare(record(), record(), record(value=None), record(-1), record(None, ("scheduler-done", b"1"), value=None))
    wanted = {PLANNED: 2, CANCELLED: 1, INVALID: 1, DONE: 1}
    assert result.decided == {(TEAM, what): count for what, count in wanted.items()}


def test_targets_are_asked_for_again_before_each_is_sent() -> None:
    source = SchedulesSource(
        ["schedules"], Rules(lambda topic: topic == "online"), "history", "parked", QueueLimits(SHARDS, 1 << 20, RecordVersions())
    )
    assert source.permits_target(TEAM, "online")
    assert not source.permits_target(TEAM, "elsewhere")
    assert not source.permits_target("payments", "online")


@pytest.mark.parametrize("target", ["__consumer_offsets", "__transaction_state", "app-changelog"])
def test_what_was_scheduled_to_an_internal_topic_before_that_was_refused_is_not_sent(target: str) -> None:
    rules = Rules(lambda _: True, own=frozenset({"app-changelog"}))
    source = SchedulesSource(["schedules"], rules, "history", "parked", QueueLimits(SHARDS, 1 << 20, RecordVersions()))
    assert not source.permits_target(TEAM, target)
