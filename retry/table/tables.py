"""The tables of one worker on disk, a directory for each changelog partition."""

from __future__ import annotations

from pathlib import Path

from retry.table.base import Identity
from retry.table.database import Memory, wipe
from retry.table.rocks import RocksTable


class RocksTables:
    """See `retry.table.base.Tables`.

    Args:
      folder: holds a directory for each table, named after topic and partition.
      cluster_id, topic_id: of the changelog.
      memory: shared by all of them.
      age_ms_max: a table that was not current for longer is wiped.
    """

    def __init__(self, folder: Path, topic: str, cluster_id: str, topic_id: str, memory: Memory, age_ms_max: int) -> None:
        self._folder, self._topic, self._memory, self._age_ms_max = folder, topic, memory, age_ms_max
        self._cluster_id, self._topic_id = cluster_id, topic_id

    def open(self, partition: int, now_ms: int) -> RocksTable:
        """See `Tables.open`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity = Identity(self._cluster_id, self._topic_id, partition)
        return RocksTable.open(self._path(partition), identity, self._memory, now_ms, self._age_ms_max)

    def wipe(self, partition: int) -> None:
        """See `Tables.wipe`."""
        wipe(self._path(partition))

    def _path(self, partition: int) -> Path:
        return self._folder / f"{self._topic}-{partition}"
