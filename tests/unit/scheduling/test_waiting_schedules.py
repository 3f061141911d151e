"""What waits in a schedules topic, by its records alone: the same that a scheduler has after it has read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.record import Headers, Record
from retry.scheduling.messages.migrate import WaitingSchedules, read_last_writes

NOW_MS = 1_700_000_000_000
DONE, MIGRATED = "scheduler-done", "scheduler-migrated"


def record(offset: int, key: bytes | None, value: bytes | None, *headers: tuple[str, bytes], partition: int = 0) -> Record:
    told: Headers = list(headers)
    return Record(("schedules", partition, offset), key, value, told, (1, NOW_MS - 1_000 + offset))


def waits(*records: Record) -> dict[tuple[int, bytes], int]:
    found = WaitingSchedules()
    found.add_records(records, NOW_MS)
    return found.offsets


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ([record(0, b"k", b"a"), record(1, b"k", b"b")], 1),  # an update
        ([record(0, b"k", b"a"), record(1, b"k", None)], None),  # cancelled, or sent by the Go scheduler
        ([record(0, b"k", b"a"), record(1, b"k", None, (DONE, b"0"))], None),  # sent by ours
        ([record(0, b"k", b"a"), record(1, b"k", b"b"), record(2, b"k", None, (DONE, b"0"))], 1),  # scheduled anew meanwhile
        ([record(0, b"k", b"a"), record(1, b"k", b"b"), record(2, b"k", None, (MIGRATED, b"0"))], 1),
        ([record(0, b"k", b"a"), record(2, b"k", None, (MIGRATED, b"x"))], None),  # no number: cancels as any null
        ([record(0, b"k", b"")], 0),  # an empty value is a schedule
        ([record(3, b"k", None, (MIGRATED, b"0")), record(4, b"k", b"c")], 4),
    ],
)
def test_the_newest_record_of_a_key_waits_unless_it_was_ended(records: list[Record], left: int | None) -> None:
    assert waits(*records) == ({} if left is None else {(0, b"k"): left})


def test_a_key_waits_once_the_newest_of_its_partitions_and_none_is_no_schedule() -> None:
    found = WaitingSchedules()
    records = [record(0, b"k", b"a"), record(1, None, b"a"), record(2, b" ", b"a"), record(3, b"k", b"b", partition=1)]
    found.add_records(records, NOW_MS)
    assert found.offsets == {(1, b"k"): 3}
    assert found.without_key == [("schedules", 0, 1), ("schedules", 0, 2)]
    assert found.is_waiting(records[3]) and not found.is_waiting(records[0]) and not found.is_waiting(records[1])


@pytest.mark.parametrize("backwards", [False, True])
def test_a_cancel_of_another_partition_ends_what_is_older_whichever_is_read_first(backwards: bool) -> None:
    records = [record(900, b"k", b"a"), record(901, b"other", b"a"), record(950, b"k", None, partition=1)]
    assert waits(*(reversed(records) if backwards else records)) == {(0, b"other"): 901}
    assert waits(*records, record(990, b"k", b"anew")) == {(0, b"other"): 901, (0, b"k"): 990}


def test_what_was_sent_from_one_partition_does_not_bring_back_what_it_replaced_in_another() -> None:
    replaced, sent = record(1, b"k", b"a"), record(2, b"k", b"b", partition=1)
    assert waits(replaced, sent, record(3, b"k", None, (DONE, b"2"), partition=1)) == {}


def test_what_was_asked_for_last_counts_but_not_what_a_scheduler_or_a_move_has_ended() -> None:
    into: dict[bytes, int] = {}
    read_last_writes([record(0, b"k", b"a"), record(5, b"k", None, (DONE, b"0")), record(6, b"k", None, (MIGRATED, b"0"))], into)
    assert into == {b"k": NOW_MS - 1_000}
    read_last_writes([record(7, b"k", None, partition=1)], into)
    assert into == {b"k": NOW_MS - 993}


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.booleans()), max_size=30))
def test_after_each_schedule_was_moved_nothing_waits_whatever_came_before(asked: list[tuple[bytes, bool]]) -> None:
    records = [record(n, key, b"v" if there else None) for n, (key, there) in enumerate(asked)]
    left = waits(*records)
    moved = [record(100 + n, key, None, (MIGRATED, b"%d" % offset)) for n, ((_, key), offset) in enumerate(left.items())]
    assert waits(*records, *moved) == {}
    late = [record(200 + n, key, b"later") for n, (_, key) in enumerate(left)]
    assert waits(*records, *late, *moved) == {(0, key): 200 + n for n, (_, key) in enumerate(left)}
