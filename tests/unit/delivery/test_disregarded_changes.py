"""Changes by name that have no effect, or come too late: each is counted and said, and no other is."""

from __future__ import annotations

from collections import Counter

import pytest

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import VERSIONS_OF_MS
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.disregarded_changes import DisregardedChanges, SentNames, find_overruled
from retry.testing.memory_table import MemoryTable
from tests.support.bench import Bench

NOW_MS = 1_700_000_000_000
NAME, LANE = entry_keys.hash_name("schedules", "schedules", b"a"), entry_keys.build_named_lane("schedules", "schedules", "online")


def entry_key(written_ms: int, due_ms: int, partition: int = 0, offset: int = 7) -> bytes:
    stem = entry_keys.build_key_stem("schedules", partition)
    return entry_keys.build_named_key(due_ms, NAME, written_ms * VERSIONS_OF_MS, stem, offset, LANE)


def cancel(written_ms: int, partition: int = 0, offset: int = 9) -> ChangelogRow:
    stem = entry_keys.build_key_stem("schedules", partition)
    return envelopes.build_cancel(NAME, written_ms * VERSIONS_OF_MS | 1, stem, offset, NOW_MS + 900_000)


@pytest.fixture
def counted_changes() -> Counter[str]:
    return Counter()


@pytest.fixture
def disregarded_changes(counted_changes: Counter[str]) -> DisregardedChanges:
    return DisregardedChanges(lambda kind, changes: counted_changes.update({kind: changes}))


@pytest.fixture
def table() -> Table:
    return MemoryTable()


def fold(table: Table, *rows: ChangelogRow) -> None:
    table.apply_records(rows, table.next_offset + len(rows), NOW_MS)


def tell_overruled(table: Table, disregarded: DisregardedChanges) -> None:
    disregarded.tell_overruled(find_overruled(table, table.list_superseded(100)))


def test_a_cancel_that_is_older_than_the_schedule_of_another_partition_is_told_of(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    fold(table, (entry_key(NOW_MS - 10, NOW_MS + 60_000), b"v"), cancel(NOW_MS - 3_600_000, partition=1))
    tell_overruled(table, disregarded_changes)
    assert counted_changes == {"older_cancel": 1}
    assert "the cancel of schedules/1/9, written at 2023-11-14T21:13:20.000+00:00, has no effect" in caplog.text
    assert "older than schedules/0/7, which was written at 2023-11-14T22:13:19.990+00:00 in another partition" in caplog.text


def test_a_schedule_that_another_partition_replaces_or_cancels_is_told_of(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str]
) -> None:
    fold(table, (entry_key(NOW_MS - 10, NOW_MS + 60_000), b"v"), cancel(NOW_MS - 5, partition=1))
    tell_overruled(table, disregarded_changes)
    assert counted_changes == {"ended_elsewhere": 1}


def test_what_is_replaced_and_cancelled_in_its_own_partition_is_nobody_told_of(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str]
) -> None:
    fold(table, *((entry_key(NOW_MS - n, NOW_MS, offset=9 - n), b"v") for n in range(3)), cancel(NOW_MS))
    assert len(table.list_superseded(100)) == 3
    tell_overruled(table, disregarded_changes)
    assert not counted_changes


@pytest.mark.parametrize(
    ("late", "kind"),
    [(cancel(NOW_MS - 3_000), "late_cancel"), ((entry_key(NOW_MS - 3_000, NOW_MS + 9, offset=8), b"v"), "late_replacement")],
)
def test_a_change_in_time_that_is_taken_in_when_the_message_was_sent_is_told_of_once(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str], late: ChangelogRow, kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    sent = SentNames(disregarded_changes)
    sent.note_sent([entry_key(NOW_MS - 60_000, NOW_MS)], table)
    sent.check([(entry_key(NOW_MS - 60_000, NOW_MS), None), late])
    sent.check([cancel(NOW_MS - 1)])
    assert counted_changes == {kind: 1}
    assert "was written before schedules/0/7 was due, and taken in after that had been sent" in caplog.text


@pytest.mark.parametrize(
    "row",
    [cancel(NOW_MS), (entry_key(NOW_MS + 5, NOW_MS + 90), b"v"), cancel(NOW_MS - 70_000), (entry_key(NOW_MS - 60_000, 0), b"")],
)
def test_what_is_asked_for_after_the_due_time_or_before_the_schedule_is_nobody_told_of(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str], row: ChangelogRow
) -> None:
    sent = SentNames(disregarded_changes)
    sent.note_sent([entry_key(NOW_MS - 60_000, NOW_MS)], table)
    sent.check([row])
    assert not counted_changes


def test_a_schedule_that_is_older_than_what_was_sent_and_comes_later_is_told_of(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str]
) -> None:
    sent = SentNames(disregarded_changes)
    sent.note_sent([entry_key(NOW_MS - 10, NOW_MS)], table)
    sent.check([(entry_key(NOW_MS - 20, NOW_MS + 60_000, partition=1), b"v")])
    assert counted_changes == {"older_than_sent": 1}


def test_a_cancel_that_is_folded_while_its_schedule_is_being_sent_is_told_of_once(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str]
) -> None:
    key, sent = entry_key(NOW_MS - 60_000, NOW_MS), SentNames(disregarded_changes)
    fold(table, (key, b"v"))
    table.find_due(NOW_MS, 10, 1 << 20, LANE)
    fold(table, late := cancel(NOW_MS - 3_000))
    table.delete_scanned_rows([key])
    sent.note_sent([key], table)
    sent.check([late])
    assert counted_changes == {"late_cancel": 1}


def test_a_sweep_says_which_named_entries_it_has_sent_and_what_was_overruled() -> None:
    bench = Bench()
    first, second = entry_key(NOW_MS - 20, NOW_MS), entry_key(NOW_MS - 10, NOW_MS, partition=1)
    envelope = envelopes.encode(envelopes.Named("retry", b"k", b"v", [], None, "door"))
    bench.write([(first, envelope), (second, envelope)])
    swept = bench.sweep(NOW_MS)
    assert (list(swept.named), list(swept.overruled)) == ([second], [(first, second)])
    bench.put(NOW_MS)
    assert list(bench.sweep(NOW_MS).named) == []


def test_only_so_many_names_are_remembered_and_the_log_does_not_flood(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("retry.delivery.disregarded_changes._NAMES_MAX", 50)
    names = [entry_keys.hash_name("schedules", "schedules", b"%d" % n) for n in range(60)]
    stem, sent = entry_keys.build_key_stem("schedules", 0), SentNames(disregarded_changes)
    written = (NOW_MS - 9) * VERSIONS_OF_MS
    sent.note_sent([entry_keys.build_named_key(NOW_MS, name, written, stem, n, LANE) for n, name in enumerate(names)], table)
    sent.check([envelopes.build_cancel(name, (NOW_MS - 1) * VERSIONS_OF_MS, stem, 99) for name in names])
    assert counted_changes == {"late_cancel": 50}
    assert len(caplog.records) == 20


def test_versions_that_are_no_times_are_nobody_told_of(
    table: Table, disregarded_changes: DisregardedChanges, counted_changes: Counter[str]
) -> None:
    stem, sent = entry_keys.build_key_stem("timers", 0), SentNames(disregarded_changes)
    fold(
        table,
        (entry_keys.build_named_key(NOW_MS, NAME, NOW_MS, stem, 1, LANE), b"v"),
        envelopes.build_cancel(NAME, NOW_MS + 1, stem, 2),
    )
    tell_overruled(table, disregarded_changes)
    sent.note_sent([entry_keys.build_named_key(NOW_MS, NAME, NOW_MS, stem, 1, LANE)], table)
    sent.check([envelopes.build_cancel(NAME, NOW_MS + 1, stem, 2)])
    assert not counted_changes
