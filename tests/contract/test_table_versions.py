"""Records of a version that is not there yet in either table, and tables of another format on disk."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from retry import format_versions
from retry.delay_queue import action_records, ramp_records
from retry.delay_queue.table.interface import Table
from retry.delay_queue.table.table_directory import open_stored
from retry.errors import EntryNewer
from tests.support.blocks import block_of
from tests.support.tables import ALL, IDENTITY, MEMORY, NOW_MS, cancel, everything, named_key, ordered_key, plain_key, rocks

NEXT_ENVELOPE = b"\x92%c\xa1t" % (max(format_versions.ENVELOPE.reads) + 1)
NEWER = {
    "kind of key": (b"\x0a" + plain_key(NOW_MS)[1:], b"v"),
    "envelope": (plain_key(NOW_MS), NEXT_ENVELOPE),
    "envelope of an ordered entry": (ordered_key(NOW_MS, 0), NEXT_ENVELOPE),
    "block": (block_of(3)[0], b"\x92%c\xa1t" % (max(format_versions.BLOCK.reads) + 1)),
    "kind of control": (b"\x10hold/team/a", b"{}"),
    "version of a control": (b"\x10pause/all/", b'{"v":2,"since_ms":1}'),
    "version of an action": (action_records.build_head_key(b"\x0a" * 8), b'{"v":2,"kind":"ramp"}'),
    "version of letters that are sent": (ramp_records.build_sending_key(b"\x0a" * 8, 0, 0, 0), b"\x92\x02\x01"),
    "version of a letter that failed again": (b"\x14" + b"\x0a" * 18, b"\x02" + bytes(8)),
    "version of a slice": (action_records.build_slice_key(b"\x0a" * 8, 0, 0), b"\x92\x02\x01"),
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
