"""What there is to be seen at one moment, from counts that are kept ready."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS, KNOWN_BACK, KNOWN_SENT, PENDING, SLOT_MS
from retry.console.folding.letter_record import RESTING_SORT
from retry.console.folding.notes import WORKER
from retry.console.folding.outcomes_fold import DAY_MS, MINUTE_MS
from retry.console.reading import lists
from retry.console.reading.groups import HOURS, list_new_groups, read_resolutions
from retry.console.rows import COUNT_MAX, BreakerState, DueBar, Held, Now, Recovery, Scope, ShardState, WorkerState
from retry.delay_queue import control_records
from retry.operations.act.overview import ActionOverview
from retry.policies.registry import Registry
from retry.telemetry import worker_records
from retry.telemetry.worker_records import BreakerRecord, WorkerRecord

_BARS, _BAR_MINUTES = 48, 30
_LATE_MS = 1_000


class NowQuery:
    """One query for all that the console shows of one moment to one viewer; see `Replica.load_now`.

    Args:
      retention_ms: how long Kafka keeps what rests, by topic; without those that it keeps for ever.
      as_of_ms: up to when all is in the replica that there was; None where that is now.
    """

    def __init__(
        self, connection: sqlite3.Connection, scope: Scope, registry: Registry, retention_ms: Mapping[str, int], now_ms: int,
        as_of_ms: int | None = None,
    ) -> None:
        self._connection, self._scope, self._registry = connection, scope, registry
        self._as_of_ms = now_ms if as_of_ms is None else as_of_ms
        self._retention_ms, self._now_ms = retention_ms, now_ms
        self._in_scope, self._teams = lists.select_teams(scope)

    def load_now(self, shards: Sequence[tuple[int, int, int]]) -> Now:
        """Read all counts and states; `shards`, see `FoldingProcess.list_shard_positions`, only go to viewers of every team."""
        by_state = dict(self._select_visible("SELECT state, sum(letters) FROM cells WHERE 1{} GROUP BY state"))
        named = self._one("SELECT sum(letters) FROM cells WHERE state = 'waiting' AND kind != 'letter'{}")
        new = list_new_groups(self._connection, self._scope, self._now_ms, read_resolutions(self._connection))
        overdue, oldest_ms = self._overdue()
        failed, sent, hours = self._by_hour()
        seen, (near, near_age_ms) = shards if self._scope is None else (), self._near_retention()
        controls = lists.read_controls(self._connection)
        actions = tuple(each for each in lists.list_visible_actions(controls, self._scope) if each.is_under_way)
        return Now(
            as_of_ms=self._now_ms, waiting=by_state.get("waiting", 0), parked=by_state.get("parked", 0),
            discarded=by_state.get("discarded", 0), named=named,
            new_groups=len(new), due=self._build_due_bars(), held=tuple(self._list_held(controls, actions)),
            overdue=overdue, oldest_overdue_ms=oldest_ms, recovery=self._recovery(),
            near_retention=near, shards=tuple(ShardState(*shard) for shard in seen), failed_by_hour=failed, retried_by_hour=sent,
            hours_from_ms=hours, workers=tuple(list_workers(self._connection, self._scope, self._as_of_ms)),
            breakers=tuple(list_breakers(self._connection, self._scope, self._registry, self._as_of_ms)),
            near_retention_age_ms=near_age_ms, actions=actions,
        )  # fmt: skip

    def _build_due_bars(self) -> tuple[DueBar, ...]:
        first = self._now_ms // MINUTE_MS
        counts = [0] * _BARS
        for bar, letters in self._select_visible(
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
        rows = self._select_visible(f"SELECT l.sort {condition} ORDER BY l.sort LIMIT 1", first * MINUTE_MS, late_ms)
        return count + within, rows[0][0] if rows else None

    def _recovery(self) -> tuple[Recovery, ...]:
        """Count the retries of the last 24 hours by attempt: with a known result, of these failed again, and pending."""
        first = self._now_ms // HOUR_MS - HOURS + 1
        known = self._select_visible(
            "SELECT attempt, sum(sent), sum(came_back) FROM outcome_hours JOIN outcome_cells ON id = cell"
            " WHERE hour >= ?{} GROUP BY attempt", first,
        )  # fmt: skip
        return sum_recoveries((*((*each, 0) for each in known), *self._pending("attempt", first)))

    def _by_hour(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Letters taken in, and retries that were sent, in each of the last hours; and when these began."""
        failed, sent, first = [0] * HOURS, [0] * HOURS, self._now_ms // HOUR_MS - HOURS + 1
        known = self._select_visible(
            "SELECT hour, sum(failed), sum(sent) FROM outcome_hours JOIN outcome_cells ON id = cell"
            " WHERE hour >= ? AND hour < ?{} GROUP BY hour", first, first + HOURS,
        )  # fmt: skip
        pending = self._pending(f"slot * {SLOT_MS} / {HOUR_MS}", first)
        for hour, n, m in (*known, *((hour, 0, sent + left) for hour, sent, _, left in pending)):
            failed[hour - first] += n
            sent[hour - first] += m
        starts = tuple((first + n) * HOUR_MS for n in range(HOURS))
        return tuple(failed), tuple(sent), starts

    def _pending(self, by: str, first_hour: int) -> list[tuple[int, int, int, int]]:
        """Count retries that were sent lately: those with a known result, of these failed again, and those without one."""
        return self._select_visible(
            f"SELECT {by}, {KNOWN_SENT}, {KNOWN_BACK}, {PENDING} FROM outcome_slots JOIN outcome_cells ON id = cell"
            " WHERE slot >= ? AND slot < ?{} GROUP BY 1",
            first_hour * HOUR_MS // SLOT_MS, (first_hour + HOURS) * HOUR_MS // SLOT_MS,
        )  # fmt: skip

    def _list_held(self, controls: Sequence[Mapping[bytes, bytes]], actions: Iterable[ActionOverview]) -> list[Held]:
        pauses = lists.list_pauses(controls, self._now_ms)
        paused = [each for (scope, name), pause in sorted(pauses.items()) if (each := self._pause(scope, name, pause))]
        return paused + [
            Held("action", each.action.kind, each.id.hex(), each.held.at_ms, None, each.held.reason, each.held.by)
            for each in actions if each.held is not None and each.status == "held"
        ]  # fmt: skip

    def _pause(self, scope: str, name: str, pause: control_records.Pause) -> Held | None:
        """A pause, where it concerns somebody whom the viewer may see."""
        column = {"team": " AND team = ?", "topic": " AND topic = ?", "target": " AND target = ?"}.get(scope, "")
        letters = self._one(f"SELECT sum(letters) FROM cells WHERE state = 'waiting'{column}{{}}", *((name,) if column else ()))
        of_team = name if scope == "team" else self._registry.route(name).team if scope == "topic" else None
        if self._scope is not None and scope != "all" and of_team not in self._scope and not letters:
            return None
        return Held(
            "pause", scope, name, since_ms=pause.since_ms, until_ms=pause.until_ms, reason=pause.reason, by=pause.by,
            letters=min(letters, COUNT_MAX),
        )  # fmt: skip

    def _near_retention(self) -> tuple[int, int | None]:
        """Letters that Kafka deletes within a day, by the times of their records, and how old the youngest of them may be."""
        count, ages_ms = 0, []
        for topic, kept_ms in self._retention_ms.items():
            rows = self._select_visible("SELECT id FROM cells WHERE state IN ('parked', 'discarded') AND target = ?{}", topic)
            for (cell,) in rows:
                found = count_failed_before(self._connection, cell, self._now_ms + DAY_MS - kept_ms)
                count += found
                ages_ms += [max(0, kept_ms - DAY_MS)] if found else []
        return count, min(ages_ms, default=None)

    def _select_visible(self, statement: str, *parameters: object) -> list[tuple]:  # type: ignore[type-arg]
        """Rows of what the viewer may see: `{}` stands for the condition on teams, the last with parameters."""
        return self._connection.execute(statement.format(self._in_scope), (*parameters, *self._teams)).fetchall()

    def _one(self, statement: str, *parameters: object) -> int:
        return int(self._select_visible(statement, *parameters)[0][0] or 0)


def sum_recoveries(counts: Iterable[Sequence[int]]) -> tuple[Recovery, ...]:
    """Sum by attempt, each row being an attempt, retries with a known result, those that came back, and those without one.

    >>> sum_recoveries([(1, 5, 2, 0), (2, 0, 0, 0), (1, 0, 0, 3)])
    (Recovery(attempt=1, sent=5, came_back=2, pending=3),)
    """
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for attempt, *of_attempt in counts:
        sums[attempt] = [a + b for a, b in zip(sums[attempt], of_attempt, strict=True)]
    found = (Recovery(attempt, *of) for attempt, of in sorted(sums.items()))
    return tuple(each for each in found if each.sent or each.pending)


def count_failed_before(connection: sqlite3.Connection, cell: int, before_ms: int) -> int:
    """Count the letters of a cell of resting ones that failed before a moment, up to 10,000."""
    found = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM letters WHERE cell = ? AND sort >= ? AND sort < ? LIMIT ?)",
        (cell, RESTING_SORT - before_ms, RESTING_SORT, COUNT_MAX),
    )
    return int(found.fetchone()[0])


# Workers, and circuit breakers of targets, as workers say of themselves in the notes.

# Whoever misses this many of the records that it is to write is silent; a worker that is restarted is not.
_MISSED, _SILENCE_MS = 2, 15_000
_HEARD_MS = 7 * 86_400_000
_SHOWN_MAX = 100
OPEN, HALF_OPEN, CLOSED = "open", "half-open", "closed"
_ORDER = (OPEN, HALF_OPEN, CLOSED)


def list_workers(connection: sqlite3.Connection, scope: Scope, as_of_ms: int) -> list[WorkerState]:
    """List at most 100 workers that were heard of within a week, the silent ones first, as of when the replica had everything."""
    found = [
        WorkerState(
            name if scope is None else "", told.host if scope is None else "", len(told.shards), told.began_ms, told.at_ms,
            _is_silent(told, as_of_ms), told.ended,
        ) for name, told in _read_workers(connection) if told.at_ms >= as_of_ms - _HEARD_MS
    ]  # fmt: skip
    return sorted(found, key=lambda each: (not each.is_silent, each.has_ended, -each.at_ms))[:_SHOWN_MAX]


def list_open_breakers(connection: sqlite3.Connection, as_of_ms: int) -> dict[str, list[BreakerRecord]]:
    """Return breakers that are not closed, by target, as workers say that are neither silent nor ended."""
    found: dict[str, list[BreakerRecord]] = {}
    for _, told in _read_workers(connection):
        if not told.ended and not _is_silent(told, as_of_ms):
            for each in told.breakers:
                found.setdefault(each.target, []).append(each)
    return found


def list_breakers(connection: sqlite3.Connection, scope: Scope, registry: Registry, as_of_ms: int) -> list[BreakerState]:
    """List the circuit breakers for targets of some teams: those not closed, and those that the policy file names."""
    said = list_open_breakers(connection, as_of_ms)
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
    in_scope, teams = lists.select_teams(scope)
    statement = f"SELECT total(letters) FROM cells WHERE state = 'waiting' AND target = ?{in_scope}"
    counts = {target: int(connection.execute(statement, (target, *teams)).fetchone()[0]) for target in targets}
    return {target: min(count, COUNT_MAX) for target, count in counts.items() if count}


def _is_silent(told: WorkerRecord, as_of_ms: int) -> bool:
    return not told.ended and as_of_ms - told.at_ms > _MISSED * told.every_ms + _SILENCE_MS


def _read_workers(connection: sqlite3.Connection) -> list[tuple[str, WorkerRecord]]:
    return [(key.removeprefix(WORKER), worker_records.read(value)) for key, value in notes.list_notes(connection, WORKER)]
