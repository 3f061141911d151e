"""What a shard makes of changelog records that come once more: nothing, or delivered entries would live again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retry import clock, format_versions
from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable
from retry.delivery.sweep import ChangelogPartition
from retry.telemetry.unreadable_records import UNREADABLE
from retry.worker.shards.restore import Phase
from retry.worker.shards.shard import Shard

KEYS = [entry_keys.build_key(100 + n, entry_keys.build_key_stem("orders.DLT", 0), n) for n in range(3)]


class Told(NamedTuple):
    """A consumed changelog record."""

    at: int
    row: tuple[bytes, bytes | None]

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self.row[0]

    def value(self) -> bytes | None:
        return self.row[1]

    def error(self) -> None:
        return None


# Three puts, then the delete of the first.
LOG = [*(Told(n, (key, b"%d" % n)) for n, key in enumerate(KEYS)), Told(3, (KEYS[0], None))]


def test_records_that_were_folded_already_are_not_folded_again(tmp_path: Path) -> None:
    table = RocksTable.open(tmp_path / "table", Identity("cluster", "topic", 0), Memory(8 << 20), 0, 1)
    unused: Any = object()  # Nothing is swept, nothing wiped.
    shard = Shard(ChangelogPartition("changelog", 0), table, unused, end_offset=5)
    fold: Any = shard.apply_messages
    fold(LOG)
    fold(LOG[:2])
    assert (table.get(KEYS[0]), table.waiting, table.next_offset) == (None, 2, 4)
    fold([*LOG[1:], Told(4, (KEYS[2], None))])
    assert [key for _, key, _ in table.scan_entries(b"", 9)] == [KEYS[1]]
    assert (table.waiting, table.next_offset, shard.phase) == (1, 5, Phase.READY)
    table.close()


def test_how_much_of_a_restore_is_done_is_told(tmp_path: Path) -> None:
    table = RocksTable.open(tmp_path / "table", Identity("cluster", "topic", 0), Memory(8 << 20), 0, 1)
    unused: Any = object()
    shard = Shard(ChangelogPartition("changelog", 0), table, unused, end_offset=5)
    fold: Any = shard.apply_messages
    assert (shard.measure_restore(), shard.to_restore()) == (0.0, 5)
    fold(LOG)
    assert (shard.measure_restore(), shard.to_restore()) == (0.8, 1)
    fold([Told(4, (KEYS[2], None))])
    assert (shard.measure_restore(), shard.to_restore()) == (1.0, 0)
    assert Shard(ChangelogPartition("changelog", 0), table, unused, end_offset=5).measure_restore() == 1.0
    table.close()


def open_shard(path: Path, end_offset: int) -> Shard:
    """A shard over a table that may be there already."""
    table = RocksTable.open(path, Identity("cluster", "topic", 0), Memory(8 << 20), clock.wall_ms(), 60_000)
    unused: Any = object()
    return Shard(ChangelogPartition("changelog", 0), table, unused, end_offset)


NEWER = {
    "envelope": (KEYS[1], b"\x91%c" % (max(format_versions.ENVELOPE.reads) + 1)),
    "kind of key": (b"\x0a" + KEYS[1][1:], b"v"),
    "control": (b"\x10hold/all/", b"{}"),
}


@pytest.mark.parametrize("newer", [*NEWER, "nothing"])
def test_a_shard_stops_before_the_first_record_of_a_newer_version_and_goes_on_from_there(tmp_path: Path, newer: str) -> None:
    first, last = Told(10, (KEYS[0], b"first")), Told(13, (KEYS[2], b"last"))
    # Offsets have gaps where compaction or the ends of transactions lie.
    log: list[Any] = [first, Told(12, NEWER.get(newer, (KEYS[1], b"second"))), last, Told(15, (KEYS[0], None))]
    shard = open_shard(tmp_path / "table", end_offset=16)
    shard.apply_messages(log)
    shard.apply_messages([Told(16, (KEYS[2], None))])  # type: ignore[list-item]
    if newer == "nothing":
        assert (shard.phase, shard.trouble, shard.table.next_offset) == (Phase.READY, "", 17)
    else:
        assert (shard.phase, shard.table.next_offset, shard.table.waiting) == (Phase.READ_ONLY, 12, 1)
        assert shard.table.get(KEYS[0]) == b"first"
        assert shard.trouble.startswith("offset 12: ")
        assert "written by a newer version of this service; upgrade this worker" in shard.trouble
        assert shard.to_restore() == 0
    shard.table.close()
    # As an upgraded worker would find it: here, one for which the record is none of its business.
    again = open_shard(tmp_path / "table", end_offset=16)
    assert again.table.next_offset == (17 if newer == "nothing" else 12)
    if newer != "nothing":
        again.apply_messages([Told(12, (KEYS[1], b"known now")), *log[2:]])
        assert (again.phase, again.table.waiting, again.table.next_offset) == (Phase.READY, 2, 16)
        assert [key for _, key, _ in again.table.scan_entries(b"", 9)] == KEYS[1:]
    again.table.close()


def test_a_strangers_record_is_passed_over_and_counted_and_not_called_newer(tmp_path: Path) -> None:
    shard = open_shard(tmp_path / "table", end_offset=3)
    log: list[Any] = [Told(0, (KEYS[0], b"v")), Told(1, (b"stranger", b"v")), Told(2, (KEYS[1], b"v"))]
    shard.apply_messages(log)
    assert (shard.phase, shard.table.next_offset, shard.table.waiting) == (Phase.READY, 3, 2)
    (told,) = UNREADABLE.list_topics()
    assert (told.topic, told.records, shard.trouble) == (shard.changelog.topic, 1, "")
    assert told.first.startswith(f"{shard.changelog.topic}/{shard.changelog.partition}/1: ") and "upgrade" not in told.first
    shard.table.close()
