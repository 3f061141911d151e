"""What a table is, whichever way it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Row = tuple[bytes, bytes | None]


class Identity(NamedTuple):
    """The changelog partition that a table is the fold of. A table of another one is foreign, whatever its path."""

    cluster_id: str
    topic_id: str
    partition: int


class Table(Protocol):
    """Rows of one changelog partition and the offset up to which it is folded."""

    @property
    def next_offset(self) -> int:
        """Offset of the first changelog record that is not folded in yet."""
        ...

    @property
    def waiting(self) -> int:
        """How many entries wait.

        Exact where no key is put while it waits, which intake never does; asking before each put would cost a read.
        """
        ...

    def fold(self, rows: Sequence[Row], next_offset: int, now_ms: int) -> None:
        """Take in committed changelog records in their order; a null value deletes its key.

        Rows and `next_offset` move together, or not at all.
        """
        ...

    def due(self, now_ms: int, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """The first entries due at or before `now_ms`, in key order; nothing changes.

        At most `rows_max`, and no more once `bytes_max` bytes of envelopes are reached.

        Raises:
          TableUnreadable: the store is corrupt. A short answer is never given in its place.
        """
        ...

    def forget(self, keys: Sequence[bytes]) -> None:
        """Drop what `due` returned last and a committed transaction has delivered and deleted from the changelog."""
        ...

    def page(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """At most `rows_max` entries whose keys are greater than `after`, in key order."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """The envelope of one entry."""
        ...

    def close(self) -> None:
        """Let go of files and locks; the table can be opened again."""
        ...
