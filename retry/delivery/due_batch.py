"""Gathers a batch of what is due: from every lane that admission lets through, the teams in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, takewhile
from typing import NamedTuple

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.blocks import ENTRIES_MAX, count_entries, is_block, measure_entries
from retry.delay_queue.entry_keys import BLOCK, Lane
from retry.delay_queue.table.interface import Table
from retry.delivery.admission import Admission
from retry.errors import EntryForeign

# Where several teams have something due, now or soon, one gets at most this part of a batch: the next turn of the others is
# that much sooner.
_PARTS, _SOON_MS = 8, 1_000

_BYTES_MAX = 1 << 20
DueRow = tuple[bytes, bytes]


def select_due_batch(
    table: Table, admission: Admission, now_ms: int, rows_max: int, bytes_max: int, *, foreign: list[bytes],
    limited: list[DueRow],
) -> list[DueRow]:  # fmt: skip
    """Select the next batch: what admission lets through of every lane, the teams in turn; of blocks all entries, or none.

    Each team that has something due gets its part of entries and bytes, and one entry or block at least. HTTP calls are left out.

    Args:
      foreign: takes the prefixes of lanes of which nothing is known, since what comes first there is no entry.
      limited: takes blocks of which less than the whole may go, unless entries of the same letters without a block have been due
        for longer: these have the first turn.
    """
    due = [prefix for prefix in table.find_due_lanes(now_ms) if prefix not in entry_keys.UNDELIVERED]
    if not due:
        return []
    coming = [prefix for prefix in table.find_due_lanes(now_ms + _SOON_MS) if prefix not in entry_keys.UNDELIVERED]
    soon = {lane.team for prefix in coming if (lane := find_lane(table, admission, prefix))}
    lanes: dict[str, list[bytes]] = {}
    for prefix in due:
        lane = find_lane(table, admission, prefix)
        if lane is None:
            foreign.append(prefix)
        elif not lane.calls:
            lanes.setdefault(lane.team, []).append(prefix)
    parts = 1 if len(soon) < 2 else max(_PARTS, len(lanes))
    batch: list[DueRow] = []
    for of_team in lanes.values():
        rows_left, bytes_left = max(1, rows_max // parts), max(1, bytes_max // parts)
        # The lanes with the oldest entries come first.
        older = set[bytes]()
        for prefix in of_team:
            if rows_left <= 0 or bytes_left <= 0:
                break
            unfit = limited if entry_keys.build_plain_lane(prefix) not in older else None
            wanted = _Wanted(prefix, now_ms, rows_left, bytes_left)
            rows = _admit_blocks(table, admission, wanted, unfit) if prefix[0] == BLOCK else _admit_rows(table, admission, wanted)
            batch += rows
            rows_left -= sum(count_entries(key) for key, _ in rows)
            bytes_left -= sum(measure_entries(*row) for row in rows)
            older.add(prefix)
    return batch


class _Wanted(NamedTuple):
    """The first due rows of a lane, so many and so large at most."""

    prefix: bytes
    now_ms: int
    rows_max: int
    bytes_max: int


def _admit_rows(table: Table, admission: Admission, wanted: _Wanted) -> list[DueRow]:
    lane = admission.lanes[wanted.prefix]
    allowed = admission.acquire_permits(lane, wanted.rows_max, wanted.now_ms, table.controls)
    rows = table.find_due(wanted.now_ms, allowed, wanted.bytes_max, wanted.prefix) if allowed else []
    if len(rows) < allowed:
        admission.give_back(lane, allowed - len(rows))
    return rows


def _admit_blocks(table: Table, admission: Admission, wanted: _Wanted, limited: list[DueRow] | None) -> list[DueRow]:
    lane = admission.lanes[wanted.prefix]
    # One block more than asked for may come.
    allowed = admission.acquire_permits(lane, wanted.rows_max + ENTRIES_MAX, wanted.now_ms, table.controls)
    rows_max = max(0, allowed - ENTRIES_MAX)
    rows = table.find_due(wanted.now_ms, rows_max, wanted.bytes_max, wanted.prefix) if rows_max else []
    if not rows and allowed:
        rows = table.find_due(wanted.now_ms, 1, wanted.bytes_max, wanted.prefix)
        if rows and count_entries(rows[0][0]) > allowed:
            if limited is not None:
                limited += rows
            rows = []
    if unused := allowed - sum(count_entries(key) for key, _ in rows):
        admission.give_back(lane, unused)
    return rows


def find_lane(table: Table, admission: Admission, prefix: bytes) -> Lane | None:
    """Find the lane whose keys begin with a prefix, by its first entry; None where it has no entry, or a foreign one."""
    lane = admission.lanes.get(prefix)
    if lane is None:
        for cursor, key, envelope in table.scan_entries(prefix, 1)[:1]:
            if entry_keys.lane_of(cursor) == prefix:
                try:
                    entry = envelopes.decode_routing(envelope)
                except EntryForeign:
                    return None
                lane = Lane(entry.team, entry_keys.read_source(key).topic, entry.destination)
                admission.lanes[prefix] = admission.lanes[entry_keys.build_plain_lane(prefix)] = lane
    return lane


def find_foreign_rows(table: Table, prefixes: Iterable[bytes], now_ms: int, rows_max: int) -> list[DueRow]:
    """Find what is due and no entry at the front of some lanes; what lies behind it has its turn when that is out of the way."""
    rows = (takewhile(_is_foreign, table.find_due(now_ms, rows_max, _BYTES_MAX, prefix)) for prefix in prefixes)
    return list(chain.from_iterable(rows))


def _is_foreign(row: DueRow) -> bool:
    if is_block(row[0]):
        # What is no block is not folded.
        return False
    try:
        envelopes.decode_routing(row[1])
    except EntryForeign:
        return True
    return False


def give_back(admission: Admission, rows: list[DueRow]) -> None:
    """Release what admission let through for rows that were not sent, lane by lane."""
    taken = Counter[bytes]()
    for key, _ in rows:
        taken[entry_keys.lane_of(key)] += count_entries(key)
    for prefix, count in taken.items():
        admission.give_back(admission.lanes[prefix], count)
