"""What a shard makes of changelog records that come once more: nothing, or delivered entries would live again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from retry import entry as entries
from retry.shard import Phase, Shard
from retry.sweep import Changelog
from retry.table.base import Identity
from retry.table.rocks import Memory, RocksTable

KEYS = [entries.key(100 + n, entries.key_stem("orders.DLT", 0), n) for n in range(3)]


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
    unused: Any = None  # Nothing is swept, nothing wiped.
    shard = Shard(Changelog("changelog", 0), table, unused, unused, end_offset=5)
    fold: Any = shard.fold
    fold(LOG)
    fold(LOG[:2])
    assert (table.get(KEYS[0]), table.waiting, table.next_offset) == (None, 2, 4)
    fold([*LOG[1:], Told(4, (KEYS[2], None))])
    assert [key for key, _ in table.page(b"", 9)] == [KEYS[1]]
    assert (table.waiting, table.next_offset, shard.phase) == (1, 5, Phase.READY)
    table.close()
