"""Rows of actions that belong to none: slices of whoever ended before the head was written, and what is told of actions that are
forgotten. The owner of their shard removes them after an hour."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from retry.delay_queue import action_records, ramp_records
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.table.interface import Table

# Slices whose head did not come in this time never had one.
ORPHAN_MS = 3_600_000
_ROWS_MAX = 20
_EVERY_MS = 60_000


class Orphans:
    """When they were last looked for in one shard."""

    def __init__(self) -> None:
        self._next_ms = 0

    def find_orphans(self, table: Table, shard: int, states: Sequence[ActionState], now_ms: int) -> list[bytes]:
        """Find the keys of some orphans by the states of all known actions; none where they were looked for just now."""
        if now_ms < self._next_ms or not (table.has_slices or shard == ramp_records.HOME):
            return []
        begun = {state.id for state in states if not state.has_ended(shard)}
        climbing, known = {state.id for state in states if state.climbs}, {state.id for state in states}
        orphans = _find_unknown(table, action_records.SLICE, begun, now_ms)
        orphans = orphans or _find_unknown(table, ramp_records.SENDING, climbing, now_ms)
        orphans = orphans or _find_unknown(table, ramp_records.FAILED, known, now_ms)
        self._next_ms = 0 if orphans else now_ms + _EVERY_MS
        return orphans


def _find_unknown(table: Table, kind: bytes, known: Collection[bytes], now_ms: int) -> list[bytes]:
    written_at_ms = ramp_records.failed_at_ms if kind == ramp_records.FAILED else _written_at_ms
    orphans, at = list[bytes](), b""
    while len(orphans) < _ROWS_MAX and (found := table.list_slices(kind, 1, at)):
        (at, value), action = found[0], action_records.action_of(found[0][0])
        if action not in known and now_ms - written_at_ms(value) > ORPHAN_MS:
            orphans.append(at)
        else:
            at = action_records.beyond(at)
    return orphans


def _written_at_ms(value: bytes) -> int:
    return action_records.decode_slice(value).written_at_ms
