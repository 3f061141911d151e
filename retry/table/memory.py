"""A table in memory: for tests of users and our own. Passes the same contract suite as the one on disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from retry.entry import due_bound
from retry.table.base import Row


class MemoryTable:
    """A dict and a sorted list of its keys."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    @property
    def waiting(self) -> int:
        """How many entries wait."""
        return len(self._rows)

    def fold(self, rows: Sequence[Row], next_offset: int, now_ms: int) -> None:  # noqa: ARG002
        """See `Table.fold`."""
        for key, value in rows:
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
        self._keys = sorted(self._rows)
        self.next_offset = next_offset

    def due(self, now_ms: int, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.due`."""
        found: list[tuple[bytes, bytes]] = []
        for key in self._keys[: bisect_left(self._keys, due_bound(now_ms + 1))]:
            if len(found) == rows_max or bytes_max <= 0:
                break
            found.append((key, self._rows[key]))
            bytes_max -= len(self._rows[key])
        return found

    def forget(self, keys: Sequence[bytes]) -> None:
        """See `Table.forget`."""
        for key in keys:
            self._rows.pop(key, None)
        self._keys = sorted(self._rows)

    def page(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.page`."""
        start = bisect_right(self._keys, after)
        return [(key, self._rows[key]) for key in self._keys[start : start + rows_max]]

    def get(self, key: bytes) -> bytes | None:
        """See `Table.get`."""
        return self._rows.get(key)

    def close(self) -> None:
        """See `Table.close`."""
