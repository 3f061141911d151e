"""Entries of which their topic has refused the record for what it is, while it takes others.

Such an entry is put back once, for half a minute. If its topic still refuses it then, it is parked: see
`retry.delivery.park_refused`. Kept in memory only: whoever owns its shard next puts it back once more.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from retry.delay_queue import entry_keys

_ENTRIES_MAX = 10_000
# An entry that was put back comes again long before that, unless its lane is held up.
_FORGET_MS = 600_000


class RefusedEntry(NamedTuple):
    """One entry whose topic does not take it.

    Attributes:
      letter: where it came from, `topic/partition/offset`.
      since_ms: when that was found first.
    """

    letter: str
    destination: str
    why: str
    since_ms: int


class RefusedEntries:
    """Remembers which entries were refused, at most 10,000 of them. For several threads."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), dict[bytes, RefusedEntry]()

    def __len__(self) -> int:
        return len(self._known)

    def note_refusal(self, key: bytes, destination: str, why: str, now_ms: int) -> None:
        """Remember that an entry was refused; the first time counts."""
        with self._lock:
            if len(self._known) < _ENTRIES_MAX:
                self._known.setdefault(entry_keys.identity(key), RefusedEntry(name_letter(key), destination, why, now_ms))

    def drop_entry(self, key: bytes) -> None:
        """An entry was taken, or was parked."""
        with self._lock:
            self._known.pop(entry_keys.identity(key), None)

    def select_known(self, rows: Sequence[tuple[bytes, bytes]], until_ms: int) -> list[tuple[bytes, bytes]]:
        """Select rows, keys and envelopes, whose entries were refused at this time or before."""
        if not self._known:
            return []
        known = ((row, self._known.get(entry_keys.identity(row[0]))) for row in rows)
        return [row for row, entry in known if entry is not None and entry.since_ms <= until_ms]

    def list_entries(self, now_ms: int) -> list[RefusedEntry]:
        """All that are remembered, the oldest first; what was refused long ago and never came again is forgotten."""
        with self._lock:
            for identity, entry in list(self._known.items()):
                if now_ms - entry.since_ms > _FORGET_MS:
                    del self._known[identity]
            return list(self._known.values())


def name_letter(key: bytes) -> str:
    """Coordinates of the record that an entry came from: `topic/partition/offset`."""
    _, topic, partition, offset = entry_keys.source(key)
    return f"{topic}/{partition}/{offset}"
