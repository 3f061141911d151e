"""Tables on disk → rows, beside the workers that own them. Opened before the topics are, so that the changelog goes further."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from retry import clock
from retry.errors import EntryUnreadable, TableUnreadable
from retry.kafka.topics import DELETE_RETENTION_MS
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.read_only_table import Stored, stored
from retry.delay_queue.table.rocksdb import Memory
from retry.operations.verify.findings import TABLE, Findings
from retry.operations.verify.records import Reading

_MEMORY_BYTES = 32 << 20


class Tables:
    """The tables of some data directories.

    Attributes:
      at: by changelog partition, number and next offset of each table that is compared.
    """

    def __init__(self, folders: list[Path], changelog: str, cluster_id: str, topic_id: str, scratch: Path) -> None:
        self._changelog, self._cluster_id, self._topic_id, self._scratch = changelog, cluster_id, topic_id, scratch
        self.at: dict[int, list[tuple[int, int]]] = {}
        self.paths = [path for folder in folders for path in sorted((folder / "tables").glob(f"{changelog}-*")) if _number(path)]

    def read(self, reading: Reading, found: Findings) -> None:
        """Take in the rows of all tables that can be compared.

        Args:
          spans: by changelog partition, the first offset and the end.
        """
        memory = Memory(_MEMORY_BYTES)
        for number, path in enumerate(self.paths):
            partition = int(path.name.rsplit("-", 1)[1])
            try:
                with stored(path, self._scratch / f"table-{number}", memory) as table:
                    why = self._unfit(table, partition)
                    if table is None or why:
                        found.uncompared[str(path)] = why or "empty"
                        continue
                    self.at.setdefault(partition, []).append((number, table.next_offset))
                    found.tables += 1
                    for says in _rows(table, number, partition, reading):
                        self.differs(found, number, says)
            except TableUnreadable as error:
                found.uncompared[str(path)] = f"cannot be read, and would be restored: {error}"

    def end(self, ends: dict[int, int], found: Findings) -> None:
        """Leave out tables that reach further than the changelog does."""
        for partition, of_partition in self.at.items():
            for number, next_offset in list(of_partition):
                if next_offset > ends.get(partition, 0):
                    of_partition.remove((number, next_offset))
                    found.tables -= 1
                    found.uncompared[str(self.paths[number])] = "reaches beyond the changelog, and would be restored"

    def differs(self, found: Findings, table: int | str, says: str) -> None:
        """Note that a table, named by its number, is not the fold."""
        number = int(table)
        found.differing.add(str(self.paths[number]))
        found.add(TABLE, f"{self.paths[number]}: {says}")

    def _unfit(self, table: Stored | None, partition: int) -> str | None:
        """Why a worker would not use this table but restore it."""
        if table is None:
            return "empty"
        reasons = {
            "has another format": not table.usable,
            "is of another changelog": table.identity != Identity(self._cluster_id, self._topic_id, partition),
            "was last current too long ago": clock.wall_ms() - table.folded_at_ms > DELETE_RETENTION_MS // 2,
        }
        return next((f"{why}, and would be restored" for why, holds in reasons.items() if holds), None)


def _rows(table: Stored, number: int, partition: int, reading: Reading) -> Iterator[str]:
    """Take in the rows; what is wrong with them by themselves."""
    count = 0
    for key, envelope in table.rows:
        count += 1
        try:
            reading.stored(number, partition, key, envelope)
        except EntryUnreadable as error:
            yield str(error)
    for key in table.strange:
        yield f"has a row of no kind: {key.hex()[:100]}"
    if count != table.waiting:
        yield f"counts {table.waiting} entries and has {count}"


def _number(path: Path) -> bool:
    return path.is_dir() and path.name.rsplit("-", 1)[1].isdigit()
