"""Gathers a batch of what is due: from every lane that the gate lets through, the teams in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from retry.delay_queue import entry as entries
from retry.delay_queue.table.interface import Table
from retry.delay_queue.lane import Lane

# Where several teams have something due, now or soon, one gets at most this part of a batch: the next turn of the others is
# that much sooner.
_PARTS, _SOON_MS = 8, 1_000

Row = tuple[bytes, bytes]


class Gate(Protocol):
    """Says what may go just now; see `retry.delivery.admission`.

    Attributes:
      known: whose each lane is, as far as anybody has looked.
    """

    known: dict[bytes, Lane]

    def take(self, lane: Lane, wanted: int, now_ms: int, controls: Mapping[bytes, bytes]) -> int:
        """How many entries of a lane may go, at most `wanted`; they are counted as gone."""
        ...

    def give_back(self, lane: Lane, entries: int) -> None:
        """So many of what was taken did not go."""
        ...

    def refused(self, destination: str, why: str, now_ms: int) -> None:
        """A destination took nothing."""
        ...

    def delivered(self, destinations: Iterable[str]) -> None:
        """These destinations took what they were given."""
        ...


def gathered(
    table: Table, gate: Gate, now_ms: int, rows_max: int, bytes_max: int, *, calls: bool = False
) -> list[Row]:
    """The next batch: what the gate lets through of every lane, the teams in turn.

    Each team that has something due gets its part of rows and bytes, and one entry at least.

    Args:
      calls: whether HTTP calls are asked for, which a transaction cannot deliver; else all but these.
    """
    due = [lane for lane in table.due_lanes(now_ms) if lane != entries.LANELESS]
    if not due:
        return []
    soon = {whose.team for lane in table.due_lanes(now_ms + _SOON_MS) if (whose := whose_lane(table, gate, lane))}
    lanes: dict[str, list[tuple[bytes, Lane]]] = {}
    for lane in due:
        if (whose := whose_lane(table, gate, lane)) is not None and whose.calls is calls:
            lanes.setdefault(whose.team, []).append((lane, whose))
    parts = 1 if len(soon) < 2 else max(_PARTS, len(lanes))
    found: list[Row] = []
    for of_team in lanes.values():
        rows_left, bytes_left = max(1, rows_max // parts), max(1, bytes_max // parts)
        for lane, whose in of_team:
            rows = _taken(table, gate, lane, whose, now_ms, rows_left, bytes_left) if rows_left > 0 and bytes_left > 0 else []
            found += rows
            rows_left -= len(rows)
            bytes_left -= sum(len(envelope) for _, envelope in rows)
    return found


def _taken(
    table: Table, gate: Gate, lane: bytes, whose: Lane, now_ms: int, rows_max: int, bytes_max: int
) -> list[Row]:
    allowed = gate.take(whose, rows_max, now_ms, table.controls)
    rows = table.due(now_ms, allowed, bytes_max, lane) if allowed else []
    if len(rows) < allowed:
        gate.give_back(whose, allowed - len(rows))
    return rows


def whose_lane(table: Table, gate: Gate, lane: bytes) -> Lane | None:
    """What the first entry of a lane says of all; None where it has none."""
    known = gate.known.get(lane)
    if known is None:
        for key, envelope in table.page(lane, 1):
            if entries.lane_of(key) == lane:
                entry = entries.decode(envelope)
                known = gate.known[lane] = Lane(entry.team, entries.source(key).topic, entry.destination)
    return known


def give_back(gate: Gate, rows: list[Row]) -> None:
    """What the gate let through and did not go is let through again."""
    for lane, count in Counter(entries.lane_of(key) for key, _ in rows).items():
        gate.give_back(gate.known[lane], count)
