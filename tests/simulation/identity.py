"""Which letter a record or an entry is of: its coordinates as text, as long as no other letter has them.

Some letters failed before their topic was deleted and made anew. They rest, and share their coordinates with letters that are
written now; those alone have another lineage.
"""

from __future__ import annotations

from collections.abc import Iterable

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys
from retry.record import Header
from retry.telemetry.outcomes import Outcome
from retry.testing.kafka import MemoryRecord
from tests.simulation.keys import OBSERVER


class Identities:
    """The names by which letters of the same coordinates are told apart."""

    def __init__(self) -> None:
        self._former: set[tuple[str, bytes]] = set()

    def former(self, source: str, lineage: bytes) -> str:
        """A letter that failed at these coordinates, of a topic that is no more; what it is called."""
        self._former.add((source, lineage))
        return self._called(source, lineage)

    def of_record(self, record: MemoryRecord) -> str:
        """Say whose letter rests, or is sent."""
        headers = select_own_headers(record.headers() or ())
        return self._called((headers.get(names.SOURCE) or b"").decode(), headers.get(names.ID))

    def of_entry(self, key: bytes, envelope: bytes) -> str:
        """Say whose entry waits under a key."""
        lineage = select_own_headers(OBSERVER.decode_to_show(key, envelope).headers).get(names.ID) if self._former else None
        return self._called(coordinates(key), lineage)

    def of_outcome(self, told: Outcome) -> str:
        """Say whose decision an outcome is."""
        return self._called(told["source"], told["id"].encode())

    def _called(self, source: str, lineage: bytes | None) -> str:
        return f"{source} of before, {lineage.decode()}" if lineage and (source, lineage) in self._former else source


def coordinates(key: bytes) -> str:
    """Say where a letter failed, by the key of its entry."""
    where = entry_keys.read_source(key)
    return f"{where.topic}/{where.partition}/{where.offset}"


def select_own_headers(headers: Iterable[Header]) -> dict[str, bytes | None]:
    return {name: value for name, value in headers if name in (names.SOURCE, names.ID)}
