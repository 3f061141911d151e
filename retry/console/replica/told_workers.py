"""Workers, and circuit breakers of targets, as workers say of themselves in the notes."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from retry.console.replica import note_records
from retry.console.replica.note_records import WORKER
from retry.console.replica.rows import COUNT_MAX, BreakerState, Scope, WorkerState
from retry.policies.registry import Registry
from retry.telemetry import worker_records
from retry.telemetry.worker_records import BreakerRecord, WorkerRecord

# Whoever misses this many of the records that it is to write is silent; a worker that is restarted is not.
_MISSED, _LATE_MS = 2, 15_000
_HEARD_MS = 7 * 86_400_000
_SHOWN_MAX = 100
OPEN, HALF_OPEN, CLOSED = "open", "half-open", "closed"
_ORDER = (OPEN, HALF_OPEN, CLOSED)


def workers(connection: sqlite3.Connection, scope: Scope, as_of_ms: int) -> list[WorkerState]:
    """List workers that were heard of within a week, the silent ones first; at most 100.

    Args:
      as_of_ms: up to when the replica has everything: one that is behind cannot tell who is silent since then.
    """
    found = [
        WorkerState(
            name if scope is None else "", told.host if scope is None else "", len(told.shards), told.began_ms, told.at_ms,
            _is_silent(told, as_of_ms), told.ended,
        ) for name, told in _read_workers(connection) if told.at_ms >= as_of_ms - _HEARD_MS
    ]  # fmt: skip
    return sorted(found, key=lambda each: (not each.is_silent, each.has_ended, -each.at_ms))[:_SHOWN_MAX]


def open_breakers(connection: sqlite3.Connection, as_of_ms: int) -> dict[str, list[BreakerRecord]]:
    """Return breakers that are not closed, by target, as workers say that are neither silent nor ended."""
    found: dict[str, list[BreakerRecord]] = {}
    for _, told in _read_workers(connection):
        if not told.ended and not _is_silent(told, as_of_ms):
            for each in told.breakers:
                found.setdefault(each.target, []).append(each)
    return found


def breakers(connection: sqlite3.Connection, scope: Scope, registry: Registry, as_of_ms: int) -> list[BreakerState]:
    """Breakers of targets of some teams: those that are not closed, and those that the policy file names."""
    said = open_breakers(connection, as_of_ms)
    waiting = _count_waiting(connection, scope, said.keys() | registry.breakers.keys())
    theirs = _list_team_targets(registry, scope) | waiting.keys()
    found = [
        _merge_breaker_state(target, said.get(target, ()), waiting.get(target, 0))
        for target in sorted(said.keys() | registry.breakers.keys()) if scope is None or target in theirs
    ]  # fmt: skip
    return sorted(found, key=lambda each: (_ORDER.index(each.state), each.since_ms or 0))[:_SHOWN_MAX]


def _merge_breaker_state(target: str, said: Collection[BreakerRecord], letters: int) -> BreakerState:
    if not said:
        return BreakerState(target, CLOSED, "", None, 0, letters)
    first = min(said, key=lambda each: (each.state != OPEN, each.since_ms))
    state = OPEN if first.state == OPEN else HALF_OPEN
    return BreakerState(target, state, first.why, min(each.since_ms for each in said), len(said), letters)


def _list_team_targets(registry: Registry, scope: Scope) -> set[str]:
    of_teams = (route.retry_targets() for route in registry.list_routes() if scope is not None and route.team in scope)
    return set[str]().union(*of_teams)


def _count_waiting(connection: sqlite3.Connection, scope: Scope, targets: Iterable[str]) -> dict[str, int]:
    """How many letters of some teams wait for each of these targets."""
    found = {}
    teams = "" if scope is None else f" AND team IN ({','.join('?' * len(scope))})"
    for target in targets:
        count = connection.execute(
            f"SELECT total(letters) FROM cells WHERE state = 'waiting' AND target = ?{teams}", (target, *sorted(scope or ()))
        ).fetchone()[0]
        if count:
            found[target] = min(int(count), COUNT_MAX)
    return found


def _is_silent(told: WorkerRecord, as_of_ms: int) -> bool:
    return not told.ended and as_of_ms - told.at_ms > _MISSED * told.every_ms + _LATE_MS


def _read_workers(connection: sqlite3.Connection) -> list[tuple[str, WorkerRecord]]:
    return [(key.removeprefix(WORKER), worker_records.read(value)) for key, value in note_records.list_under(connection, WORKER)]
