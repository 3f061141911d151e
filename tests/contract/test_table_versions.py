"""Records of the version before, and of one that is not there yet, in either table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retry import format_versions
from retry.delay_queue import action_records, entry_keys, envelopes, ramp_records
from retry.delay_queue.entry_keys import LANELESS
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delay_queue.table.read_only_table import open_stored
from retry.delivery import migrate_v1_keys
from retry.delivery.due_batch import select_due_batch
from retry.delivery.sweep import ChangelogPartition
from retry.errors import CommitInDoubt, EntryNewer, TransactionAborted
from retry.testing.kafka import Fault, MemoryLog, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from tests.support.blocks import block_of
from tests.support.tables import ALL, IDENTITY, MEMORY, NOW_MS, cancel, everything, named_key, ordered_key, plain_key, rocks

CHANGELOG = ChangelogPartition("changelog", 0)
TARGETS = ("orders.retry", "orders.slow", "orders.parked")
WRITTEN = json.loads((Path(__file__).parents[1] / "fixtures" / "versions.json").read_text())["before lanes"]
CAPTURED = bytes.fromhex(WRITTEN["key"]), bytes.fromhex(WRITTEN["envelope"])


def old_row(n: int) -> tuple[bytes, bytes]:
    """One of several entries of the version before lanes, of two teams and for three topics."""
    entry = Entry(TARGETS[n % 3], b"k", b"%d" % n, [], None, "ab"[n % 2])
    return entry_keys.without_lane(plain_key(NOW_MS + n, n)), envelopes.encode(entry)


def moved(key: bytes, envelope: bytes) -> bytes:
    entry = envelopes.decode(envelope)
    source = entry_keys.source(entry_keys.with_lane(key))
    return entry_keys.with_lane(key, entry_keys.lane(entry.team, source.topic, entry.destination))


OLD = [*map(old_row, range(20)), CAPTURED]


class Shard:
    """A changelog partition, the table of it, and whoever writes there."""

    def __init__(self, table: Table) -> None:
        self.table, self.log = table, MemoryLog()
        self.log.create(CHANGELOG.topic, 1)
        self.open()

    def open(self) -> None:
        self.writer = MemoryTransactionalProducer(self.log, "shard-0")
        self.writer.open()

    def write(self, rows: list[ChangelogRow]) -> None:
        """Put records into the changelog, and fold them."""
        self.writer.begin()
        self.writer.write(*CHANGELOG, [{"key": key, "value": value} for key, value in rows])
        self.writer.commit()
        self.fold()

    def fold(self) -> None:
        self.table.apply_records(self.rows()[self.table.next_offset :], len(self.rows()), NOW_MS)

    def rows(self) -> list[ChangelogRow]:
        return [(r.key() or b"", r.value()) for r in self.log.read(CHANGELOG.topic)]

    def live(self) -> dict[bytes, bytes]:
        return {key: value for key, value in dict(self.rows()).items() if value is not None}

    def move(self, rows_max: int = ALL) -> int:
        return migrate_v1_keys.migrate_batch(self.table, self.writer, CHANGELOG, rows_max, ALL)


@pytest.fixture
def shard(table: Table) -> Shard:
    return Shard(table)


class Open:
    """A gate that lets everything through."""

    def __init__(self) -> None:
        self.lanes: dict[bytes, Any] = {}

    def acquire_permits(self, lane: Any, wanted: int, now_ms: int, controls: Any) -> int:
        return wanted

    def give_back(self, lane: Any, entries: int) -> None: ...
    def note_refused(self, destination: str, why: str, now_ms: int) -> None: ...
    def note_delivered(self, destinations: Any) -> None: ...


def test_entries_without_a_lane_wait_in_one_and_none_is_delivered_from_there(shard: Shard) -> None:
    shard.write(list(OLD))
    assert shard.table.lanes() == [LANELESS]
    assert everything(shard.table) == {entry_keys.with_lane(key): envelope for key, envelope in OLD}
    assert shard.table.waiting == len(OLD)
    assert select_due_batch(shard.table, Open(), NOW_MS + 1_000, ALL, ALL) == []


def test_a_null_of_their_own_ends_them(shard: Shard) -> None:
    shard.write(list(OLD))
    shard.write([(key, None) for key, _ in OLD[:15]])
    assert everything(shard.table) == {entry_keys.with_lane(key): envelope for key, envelope in OLD[15:]}
    assert shard.table.waiting == len(OLD) - 15


@pytest.mark.parametrize("rows_max", [1, 7, ALL])
def test_they_are_moved_in_batches_and_end_under_the_keys_that_they_came_with(shard: Shard, rows_max: int) -> None:
    new = plain_key(NOW_MS, 99, entry_keys.lane("c", "orders.DLT", "orders.retry")), OLD[0][1]
    shard.write([*OLD, new])
    while shard.move(rows_max):
        shard.fold()
    expected = {moved(*row): row[1] for row in OLD} | dict([new])
    assert shard.live() == everything(shard.table) == expected
    assert shard.table.waiting == len(expected)
    assert LANELESS not in shard.table.lanes()
    due = select_due_batch(shard.table, Open(), NOW_MS + 1_000, ALL, ALL)
    assert dict(due) == expected
    assert len(due) == len(expected)


@pytest.mark.parametrize("read_back", [False, True])
def test_what_is_moved_is_forgotten_whether_it_was_read_back_or_not(shard: Shard, read_back: bool) -> None:
    shard.write(list(OLD))
    assert shard.move() == len(OLD)
    if read_back:
        shard.fold()
    assert shard.move() == 0
    shard.fold()
    assert everything(shard.table) == shard.live()


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_failed_move_leaves_each_entry_once(shard: Shard, fault: Fault, fresh: bool) -> None:
    shard.write(list(OLD))
    shard.log.faults = [fault]
    with pytest.raises((TransactionAborted, CommitInDoubt)):
        shard.move(rows_max=5)
    # The next owner has the same table, or none.
    again = Shard(MemoryTable()) if fresh else shard
    again.log = shard.log
    again.open()
    again.fold()
    while again.move(rows_max=5):
        again.fold()
    assert again.live() == everything(again.table) == {moved(*row): row[1] for row in OLD}


NEXT_ENVELOPE = b"\x92%c\xa1t" % (max(format_versions.ENVELOPE.reads) + 1)
NEWER = {
    "kind of key": (b"\x0a" + plain_key(NOW_MS)[1:], b"v"),
    "envelope": (plain_key(NOW_MS), NEXT_ENVELOPE),
    "envelope of an ordered entry": (ordered_key(NOW_MS, 0), NEXT_ENVELOPE),
    "envelope without a lane": (CAPTURED[0], NEXT_ENVELOPE),
    "kind of control": (b"\x10hold/team/a", b"{}"),
    "version of a control": (b"\x10pause/all/", b'{"v":2,"since_ms":1}'),
    "version of an action": (action_records.head_key(b"\x0a" * 8), b'{"v":3,"kind":"ramp"}'),
    "version of letters that are sent": (ramp_records.sending_key(b"\x0a" * 8, 0, 0, 0), b"\x92\x03\x01"),
    "version of a letter that failed again": (b"\x14" + b"\x0a" * 18, b"\x03" + bytes(8)),
    "version of a slice": (action_records.slice_key(b"\x0a" * 8, 0, 0), b"\x92\x03\x01"),
}


@pytest.mark.parametrize("newer", NEWER)
def test_of_a_fold_with_a_newer_record_nothing_is_taken_in(table: Table, newer: str) -> None:
    table.apply_records([(plain_key(100), b"v")], 1, NOW_MS)
    with pytest.raises(EntryNewer, match="upgrade this worker"):
        table.apply_records([(plain_key(100), None), (plain_key(200), b"v"), NEWER[newer]], 4, NOW_MS)
    assert (everything(table), table.waiting, table.controls, table.next_offset) == ({plain_key(100): b"v"}, 1, {}, 1)


@pytest.mark.parametrize("newer", NEWER)
def test_the_end_of_a_newer_record_is_no_trouble(table: Table, newer: str) -> None:
    key, value = NEWER[newer]
    table.apply_records([(plain_key(100), b"v"), (key, value), (key, None)], 3, NOW_MS)
    table.apply_records([(key, None)], 4, NOW_MS)
    assert (everything(table), table.next_offset) == ({plain_key(100): b"v"}, 4)


@pytest.mark.parametrize("format_", sorted(format_versions.TABLE.reads))
def test_a_table_on_disk_of_a_format_that_can_be_read_is_used_as_it_is(tmp_path: Path, format_: int) -> None:
    table = rocks(tmp_path / "table")
    table.apply_records([(plain_key(100), b"v")], 1, NOW_MS)
    table._db._handle[b"\0"] = msgspec.msgpack.encode([format_, IDENTITY, 1, 1, NOW_MS])
    table.close()
    again = type(table).open(tmp_path / "table", IDENTITY, MEMORY, NOW_MS, 1)
    assert (again.next_offset, everything(again), again.has_slices) == (1, {plain_key(100): b"v"}, False)
    again.close()


@pytest.mark.parametrize("format_", [min(format_versions.TABLE.reads) - 1, format_versions.TABLE.writes + 1])
def test_a_table_on_disk_of_another_format_is_emptied_to_be_restored(tmp_path: Path, format_: int) -> None:
    table = rocks(tmp_path / "table")
    table.apply_records([(plain_key(100), b"v")], 1, NOW_MS)
    state = [format_, IDENTITY, 1, 1, NOW_MS]
    table._db._handle[b"\0"] = msgspec.msgpack.encode(state)
    table.close()
    again = type(table).open(tmp_path / "table", IDENTITY, MEMORY, NOW_MS, 1)
    assert (again.next_offset, everything(again)) == (0, {})
    again.close()


def test_whoever_reads_a_table_on_disk_knows_every_kind_of_its_rows(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    entries = [(ordered_key(100, n), b"v") for n in (1, 2)] + [(named_key(100, n, b"m"), b"v") for n in (1, 2)]
    rows = [(plain_key(100), b"v"), block_of(3), *entries, cancel(3, until_ms=NOW_MS)]
    table.apply_records(rows, len(rows), NOW_MS)
    kinds = {bytes(key[:1]) for key in table._db.scan_keys(b"", b"\xff", ALL)}
    assert kinds == {bytes([kind]) for kind in range(10)}
    table.close()
    (tmp_path / "beside").mkdir()
    with open_stored(tmp_path / "table", tmp_path / "beside", MEMORY) as found:
        assert found is not None
        assert (list(found.strange), found.waiting, len(list(found.rows))) == ([], 7, 7)
