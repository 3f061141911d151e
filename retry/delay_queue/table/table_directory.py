"""The tables of one worker on disk, a directory for each changelog partition."""

from __future__ import annotations

from pathlib import Path

from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb import Memory, destroy_database
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.errors import DataDirUnusable


class RocksTables:
    """The tables of one worker in RocksDB; see `retry.delay_queue.table.interface.TableDirectory`.

    Args:
      folder: holds a directory for each table, named after topic and partition.
      cluster_id, topic_id: of the changelog.
      memory: shared by all of them.
      age_ms_max: a table that was not current for longer is wiped.
      adopt: whether tables of another changelog of this name are wiped, and not refused.
    """

    def __init__(
        self, folder: Path, topic: str, cluster_id: str, topic_id: str, memory: Memory, age_ms_max: int, *, adopt: bool = False
    ) -> None:
        self._folder, self._topic, self._memory, self._age_ms_max = folder, topic, memory, age_ms_max
        self._cluster_id, self._topic_id, self._adopt = cluster_id, topic_id, adopt

    def open(self, partition: int, now_ms: int) -> RocksTable:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirUnusable(str(self._folder), str(error)) from error
        identity, path = Identity(self._cluster_id, self._topic_id, partition), self._path(partition)
        return RocksTable.open(path, identity, self._memory, now_ms, self._age_ms_max, adopt=self._adopt)

    def refuse_foreign(self, now_ms: int) -> None:
        """Open and close one of the tables that are there, before anything else begins.

        Raises:
          ChangelogReplaced: it is of another changelog than ours.
        """
        partitions = [path.name.removeprefix(f"{self._topic}-") for path in self._folder.glob(f"{self._topic}-*")]
        for partition in sorted(int(name) for name in partitions if name.isdecimal())[:1]:
            self.open(partition, now_ms).close()

    def delete_table(self, partition: int) -> None:
        destroy_database(self._path(partition))

    def _path(self, partition: int) -> Path:
        return self._folder / f"{self._topic}-{partition}"
