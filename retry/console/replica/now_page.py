"""What there is to be seen at one moment, from counts that are kept ready."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from retry.console.replica import groups_page
from retry.console.replica.groups_page import HOURS
from retry.console.replica.letter_record import RESTING_SORT
from retry.console.replica.outcomes_fold import DAY_MS, HOUR_MS, SLOT_MS
from retry.console.replica.rows import COUNT_MAX, DueBar, Held, Now, Recovery, Scope, ShardState
from retry.delay_queue import action_state, control_records
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.control_records import Pause
from retry.policies.registry import Registry

MINUTE_MS = 60_000
_BARS, _BAR_MINUTES = 48, 30
_LATE_MS = 1_000


class NowQuery:
    """One look.

    Args:
      registry: tells whose topics are.
      retention_ms: how long Kafka keeps what rests, by topic; without those that it keeps for ever.
    """

    def __init__(
        self, connection: sqlite3.Connection, scope: Scope, registry: Registry, retention_ms: Mapping[str, int], now_ms: int
    ) -> None:
        self._connection, self._scope, self._registry = connection, scope, registry
        self._retention_ms, self._now_ms = retention_ms, now_ms
        teams = "" if scope is None else f" AND team IN ({','.join('?' * len(scope))})"
        self._in_scope, self._teams = teams, tuple(sorted(scope or ()))

    def answer(self, shards: Sequence[tuple[int, int, int]]) -> Now:
        """All of it."""
        by_state = dict(self._rows("SELECT state, sum(letters) FROM cells WHERE 1{} GROUP BY state"))
        named = self._one("SELECT sum(letters) FROM cells WHERE state = 'waiting' AND kind != 'letter'{}")
        overdue, oldest_ms = self._overdue()
        failed, due, hours = self._by_hour()
        seen = shards if self._scope is None else ()
        return Now(
            self._now_ms, by_state.get("waiting", 0), by_state.get("parked", 0), by_state.get("discarded", 0), named,
            groups_page.open_groups_since(self._connection, self._scope, self._now_ms - DAY_MS), self._due(), overdue, oldest_ms,
            self._recovery(), tuple(self._held()), self._near_retention(),
            tuple(ShardState(*shard) for shard in seen), failed, due, hours,
        )  # fmt: skip

    def _due(self) -> tuple[DueBar, ...]:
        first = self._now_ms // MINUTE_MS
        counts = [0] * _BARS
        for bar, letters in self._rows(
            "SELECT (minute - ?) / ?, sum(letters) FROM due_minutes WHERE minute >= ? AND minute < ?{} GROUP BY 1",
            first, _BAR_MINUTES, first, first + _BARS * _BAR_MINUTES,
        ):  # fmt: skip
            counts[bar] = letters
        starts = [(first + n * _BAR_MINUTES) * MINUTE_MS for n in range(_BARS + 1)]
        return tuple(DueBar(*bar) for bar in zip(starts[:-1], starts[1:], counts, strict=True))

    def _overdue(self) -> tuple[int, int | None]:
        """How many letters were due a second ago, and since when the first of them is."""
        late_ms = self._now_ms - _LATE_MS
        minute = late_ms // MINUTE_MS
        count = self._one("SELECT sum(letters) FROM due_minutes WHERE minute < ?{}", minute)
        condition = (
            "FROM letters l INDEXED BY letters_by_sort CROSS JOIN cells c ON c.id = l.cell"
            " WHERE l.sort >= ? AND l.sort <= ? AND c.state = 'waiting'{}"
        )
        first = self._one("SELECT min(minute) FROM due_minutes WHERE minute <= ?{}", minute)
        if not first:
            return 0, None
        within = self._one(f"SELECT count(*) FROM (SELECT 1 {condition} LIMIT {COUNT_MAX})", minute * MINUTE_MS, late_ms)
        rows = self._rows(f"SELECT l.sort {condition} ORDER BY l.sort LIMIT 1", first * MINUTE_MS, late_ms)
        return count + within, rows[0][0] if rows else None

    def _recovery(self) -> tuple[Recovery, ...]:
        """By attempt, of what was due within 24 hours: in those that are over, and in this one until now."""
        this_hour, found = self._now_ms // HOUR_MS, Counter[tuple[int, str]]()
        past = self._rows(
            "SELECT attempt, sum(due), sum(came_back) FROM outcome_hours JOIN outcome_cells ON id = cell"
            " WHERE hour > ? AND hour < ?{} GROUP BY attempt", this_hour - HOURS, this_hour,
        )  # fmt: skip
        present = self._rows(
            "SELECT attempt, sum(due), sum(came_back) FROM outcome_slots JOIN outcome_cells ON id = cell"
            " WHERE slot >= ? AND slot < ?{} GROUP BY attempt", this_hour * HOUR_MS // SLOT_MS, self._now_ms // SLOT_MS,
        )  # fmt: skip
        for attempt, due, back in (*past, *present):
            found.update({(attempt, "due"): due, (attempt, "back"): back})
        attempts = sorted({attempt for attempt, _ in found})
        return tuple(Recovery(n, found[n, "due"], found[n, "back"]) for n in attempts if found[n, "due"])

    def _by_hour(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Letters taken in, and retries that were due, in each of the last hours; and when these began."""
        failed, due, first = [0] * HOURS, [0] * HOURS, self._now_ms // HOUR_MS - HOURS + 1
        for hour, n, m in self._rows(
            "SELECT hour, sum(failed), sum(due) FROM outcome_hours JOIN outcome_cells ON id = cell"
            " WHERE hour >= ? AND hour < ?{} GROUP BY hour", first, first + HOURS,
        ):  # fmt: skip
            failed[hour - first], due[hour - first] = n, m
        due[-1] = self._one(
            "SELECT sum(due) FROM outcome_slots JOIN outcome_cells ON id = cell WHERE slot >= ? AND slot < ?{}",
            (first + HOURS - 1) * HOUR_MS // SLOT_MS, self._now_ms // SLOT_MS,
        )  # fmt: skip
        return tuple(failed), tuple(due), tuple((first + n) * HOUR_MS for n in range(HOURS))

    def _held(self) -> list[Held]:
        controls: dict[bytes, bytes] = dict(self._connection.execute("SELECT key, value FROM controls ORDER BY shard DESC"))
        pauses = control_records.pauses(controls, self._now_ms)
        found = [each for (scope, name), pause in sorted(pauses.items()) if (each := self._pause(scope, name, pause))]
        if self._scope is not None:
            return found
        held: dict[bytes, ActionState] = {}
        for shard in {shard for (shard,) in self._connection.execute("SELECT DISTINCT shard FROM controls")}:
            rows = self._connection.execute("SELECT key, value FROM controls WHERE shard = ?", (shard,))
            held.update({state.id: state for state in action_state.states(dict(rows)) if state.held and not state.cancelled})
        return found + [
            Held("action", state.action.kind, state.id.hex(), order.at_ms, None, order.reason, order.by)
            for state in held.values() if (order := state.held) is not None
        ]  # fmt: skip

    def _pause(self, scope: str, name: str, pause: Pause) -> Held | None:
        """A pause, where it concerns somebody whom the viewer may see."""
        column = {"team": " AND team = ?", "topic": " AND topic = ?", "target": " AND target = ?"}.get(scope, "")
        letters = self._one(
            f"SELECT sum(letters) FROM cells WHERE state = 'waiting'{column}{{}}", *((name,) if column else ())
        )
        of_team = name if scope == "team" else self._registry.route(name).team if scope == "topic" else None
        if self._scope is not None and scope != "all" and of_team not in self._scope and not letters:
            return None
        return Held("pause", scope, name, pause.since_ms, pause.until_ms, pause.reason, pause.by, min(letters, COUNT_MAX))

    def _near_retention(self) -> int:
        """Letters that Kafka deletes within a day: it goes by the time of each record, which is that of its failure."""
        count = 0
        for topic, kept_ms in self._retention_ms.items():
            rows = self._rows("SELECT id FROM cells WHERE state IN ('parked', 'discarded') AND target = ?{}", topic)
            oldest = RESTING_SORT - (self._now_ms + DAY_MS - kept_ms)
            for (cell,) in rows:
                count += self._connection.execute(
                    "SELECT count(*) FROM (SELECT 1 FROM letters WHERE cell = ? AND sort >= ? AND sort < ? LIMIT ?)",
                    (cell, oldest, RESTING_SORT, COUNT_MAX),
                ).fetchone()[0]
        return count

    def _rows(self, statement: str, *parameters: object) -> list[tuple]:  # type: ignore[type-arg]
        """Rows of what the viewer may see: `{}` stands for the condition on teams, the last with parameters."""
        teams = self._in_scope
        return self._connection.execute(statement.format(teams), (*parameters, *self._teams)).fetchall()

    def _one(self, statement: str, *parameters: object) -> int:
        return int(self._rows(statement, *parameters)[0][0] or 0)
