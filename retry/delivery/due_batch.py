"""Gathers a batch of what is due: from every lane that the gate lets through, the teams in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.lane import Lane
from retry.delay_queue.table.interface import Table
from retry.delivery.refused_entries import RefusedEntries
from retry.kafka.record_limits import RecordLimits

# Where several teams have something due, now or soon, one gets at most this part of a batch: the next turn of the others is
# that much sooner.
_PARTS, _SOON_MS = 8, 1_000

DueRow = tuple[bytes, bytes]


class Admitting(Protocol):
    """Says what may go just now; see `retry.delivery.admission`.

    Attributes:
      lanes: by its prefix of keys, what each lane that has been read is.
      record_limits: which records their topics do not take.
      refused_entries: those that single topics have refused for what they are.
    """

    lanes: dict[bytes, Lane]
    record_limits: RecordLimits
    refused_entries: RefusedEntries

    def take(self, lane: Lane, wanted: int, now_ms: int, controls: Mapping[bytes, bytes]) -> int:
        """How many entries of a lane may go, at most `wanted`; they are counted as gone."""
        ...

    def renews_timestamp(self, lane: Lane) -> bool:
        """Whether an entry of a lane that is too old for its topic is sent with the time of now; else it is parked."""
        ...

    def give_back(self, lane: Lane, entries: int) -> None:
        """So many of what was taken did not go."""
        ...

    def look(self, destinations: set[str]) -> dict[str, str]:
        """Those that cannot be written to, and why, asked of the cluster just now."""
        ...

    def doubt(self, now_ms: int) -> None:
        """A transaction failed so that its producer had to be given up, and nobody knows for whose fault."""
        ...

    def doubts(self, now_ms: int) -> bool:
        """Whether that was not long ago."""
        ...

    def refused(self, destination: str, why: str, now_ms: int) -> None:
        """A destination took nothing."""
        ...

    def delivered(self, destinations: Iterable[str]) -> None:
        """These destinations took what they were given."""
        ...


def select_due_batch(
    table: Table, gate: Admitting, now_ms: int, rows_max: int, bytes_max: int, *, calls: bool = False
) -> list[DueRow]:
    """The next batch: what the gate lets through of every lane, the teams in turn.

    Each team that has something due gets its part of rows and bytes, and one entry at least.

    Args:
      calls: whether HTTP calls are asked for, which a transaction cannot deliver; else all but these.
    """
    due = [prefix for prefix in table.due_lanes(now_ms) if prefix not in entry_keys.UNDELIVERED]
    if not due:
        return []
    coming = [prefix for prefix in table.due_lanes(now_ms + _SOON_MS) if prefix not in entry_keys.UNDELIVERED]
    soon = {lane.team for prefix in coming if (lane := lane_at(table, gate, prefix))}
    lanes: dict[str, list[tuple[bytes, Lane]]] = {}
    for prefix in due:
        if (lane := lane_at(table, gate, prefix)) is not None and lane.calls is calls:
            lanes.setdefault(lane.team, []).append((prefix, lane))
    parts = 1 if len(soon) < 2 else max(_PARTS, len(lanes))
    batch: list[DueRow] = []
    for of_team in lanes.values():
        rows_left, bytes_left = max(1, rows_max // parts), max(1, bytes_max // parts)
        for prefix, lane in of_team:
            if rows_left <= 0 or bytes_left <= 0:
                break
            rows = _admitted(table, gate, prefix, lane, now_ms, rows_left, bytes_left)
            batch += rows
            rows_left -= len(rows)
            bytes_left -= sum(len(envelope) for _, envelope in rows)
    return batch


def _admitted(
    table: Table, gate: Admitting, prefix: bytes, lane: Lane, now_ms: int, rows_max: int, bytes_max: int
) -> list[DueRow]:
    allowed = gate.take(lane, rows_max, now_ms, table.controls)
    rows = table.due(now_ms, allowed, bytes_max, prefix) if allowed else []
    if len(rows) < allowed:
        gate.give_back(lane, allowed - len(rows))
    return rows


def lane_at(table: Table, gate: Admitting, prefix: bytes) -> Lane | None:
    """The lane whose keys begin with a prefix, as its first entry tells; None where it has none."""
    lane = gate.lanes.get(prefix)
    if lane is None:
        for key, envelope in table.page(prefix, 1):
            if entry_keys.lane_of(key) == prefix:
                entry = envelopes.routing(envelope)
                lane = gate.lanes[prefix] = Lane(entry.team, entry_keys.source(key).topic, entry.destination)
    return lane


def give_back(gate: Admitting, rows: list[DueRow]) -> None:
    """What the gate let through and did not go is let through again."""
    for prefix, count in Counter(entry_keys.lane_of(key) for key, _ in rows).items():
        gate.give_back(gate.lanes[prefix], count)
