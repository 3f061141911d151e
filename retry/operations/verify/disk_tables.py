"""Tables on disk → rows, beside the workers that own them. Opened before the topics are, so that the changelog goes further."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from retry import clock
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import Stored, open_stored
from retry.errors import EntryUnreadable, TableUnreadable
from retry.kafka.topics import DELETE_RETENTION_MS
from retry.operations.verify.context import TABLE, Findings
from retry.operations.verify.records import RecordReader

_MEMORY_BYTES = 32 << 20


class DiskTables:
    """The tables of data directories; `compared` has number and next offset of each that is, by changelog partition."""

    def __init__(
        self, folders: list[Path], changelog: str, cluster_id: str, topic_id: str, scratch: Path, findings: Findings
    ) -> None:
        self._cluster_id, self._topic_id, self._scratch, self._findings = cluster_id, topic_id, scratch, findings
        self.compared: dict[int, list[tuple[int, int]]] = {}
        paths = [path for folder in folders for path in sorted((folder / "tables").glob(f"{changelog}-*"))]
        self._paths = [path for path in paths if path.is_dir() and path.name.rsplit("-", 1)[1].isdigit()]

    def read(self, reader: RecordReader) -> None:
        """Take in the rows of all tables that can be compared."""
        memory = Memory(_MEMORY_BYTES)
        for number, path in enumerate(self._paths):
            partition = int(path.name.rsplit("-", 1)[1])
            try:
                with open_stored(path, self._scratch / f"table-{number}", memory) as table:
                    why = self._why_not_used(table, partition)
                    if table is None or why:
                        self._findings.uncompared[str(path)] = why or "empty"
                        continue
                    self.compared.setdefault(partition, []).append((number, table.next_offset))
                    self._findings.tables += 1
                    for sentence in _read_rows(table, number, partition, reader):
                        self.add_finding(number, sentence)
            except TableUnreadable as error:
                self._findings.uncompared[str(path)] = f"cannot be read, and would be restored: {error}"

    def leave_out_beyond(self, changelog_ends: dict[int, int]) -> None:
        """Leave out tables that reach further than the changelog does."""
        for partition, tables in self.compared.items():
            for number, next_offset in list(tables):
                if next_offset > changelog_ends.get(partition, 0):
                    tables.remove((number, next_offset))
                    self._findings.tables -= 1
                    self._findings.uncompared[str(self._paths[number])] = "reaches beyond the changelog, and would be restored"

    def add_finding(self, number: int, sentence: str) -> None:
        self._findings.differing.add(str(self._paths[number]))
        self._findings.add_finding(TABLE, f"{self._paths[number]}: {sentence}")

    def _why_not_used(self, table: Stored | None, partition: int) -> str | None:
        """Why a worker would not use this table but restore it."""
        if table is None:
            return "empty"
        reasons = {
            "has another format": not table.usable,
            "is of another changelog": table.identity != Identity(self._cluster_id, self._topic_id, partition),
            "was last current too long ago": clock.wall_ms() - table.current_at_ms > DELETE_RETENTION_MS // 2,
        }
        return next((f"{why}, and would be restored" for why, holds in reasons.items() if holds), None)


def _read_rows(table: Stored, number: int, partition: int, reader: RecordReader) -> Iterator[str]:
    """Take in the rows, and say what is wrong with them by themselves."""
    count = 0
    for key, envelope in table.rows:
        count += 1
        try:
            reader.table_row(number, partition, key, envelope)
        except EntryUnreadable as error:
            yield str(error)
    for key in table.strange:
        yield f"has a row of no kind: {key.hex()[:100]}"
    if count != table.waiting:
        yield f"counts {table.waiting} entries and has {count}"
