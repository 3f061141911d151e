"""Lists beside those of letters: names to complete filters, named entries, actions, and the audit, by rows and by action."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson

from retry.console.reading import letters
from retry.console.rows import COUNT_MAX, AuditRow, LetterRow, Names, Page, Scope
from retry.delay_queue import control_records
from retry.delay_queue.action_records import Action
from retry.delay_queue.control_records import Pause
from retry.operations.act import overview

# Names to complete a filter with, entries that have a name, and the audit.

_NAMES_MAX = 200
_Row = TypeVar("_Row")
AUDIT_COLUMNS = "at_ms, action, kind, by, reason, shard, letters, done, results, examples, team"
# What the audit can be asked for, and what holds of a row then.
AUDIT_FIELDS = {
    "action": "action = ?", "by": "by = ?", "kind": "kind = ?", "team": "team = ?",
    "letter": "id IN (SELECT audit FROM audit_letters WHERE letter = ?)",
}  # fmt: skip


def select_teams(scope: Scope, column: str = "team") -> tuple[str, tuple[str, ...]]:
    """Return a condition of SQL that begins with AND, and its parameters, for rows of the teams of a scope."""
    if scope is None:
        return "", ()
    return f" AND {column} IN ({','.join('?' * len(scope))})", tuple(sorted(scope))


def list_filter_names(connection: sqlite3.Connection, scope: Scope) -> Names:
    columns = ("team", "topic", "exception", "target", "consumer_group")
    condition, teams = select_teams(scope)
    return Names(*(
        tuple(name for (name,) in connection.execute(
            f"SELECT DISTINCT {column} FROM cells WHERE letters > 0 AND {column} IS NOT NULL AND {column} != ''"
            f" AND state IN ('waiting', 'parked', 'discarded'){condition} ORDER BY 1 LIMIT {_NAMES_MAX}", teams,
        ))
        for column in columns
    ))  # fmt: skip


def list_named_entries(
    connection: sqlite3.Connection, file_id: str, scope: Scope, kind: str, after: str | None, limit: int
) -> Page[LetterRow]:
    """Return one page of schedules, tasks or timers that wait, soonest first; see `Replica.named_entries`."""
    question = f"named {kind} {sorted(scope) if scope is not None else None}"
    position = letters.decode_cursor(file_id, question, after) or (-(1 << 62), 0)
    of_teams, teams = select_teams(scope, "c.team")
    # What only waits to be parked is none; it says why.
    condition = f"l.named IS NOT NULL AND c.kind = ? AND c.state = 'waiting' AND c.reason IS NULL{of_teams}"
    parameters = kind, *teams
    source = f"FROM letters l INDEXED BY letters_by_name CROSS JOIN cells c ON c.id = l.cell WHERE {condition}"
    page = f"SELECT l.sort, l.id {source} AND (l.sort, l.id) > (?, ?) ORDER BY l.sort, l.id LIMIT ?"
    found = connection.execute(page, (*parameters, *position, limit + 1)).fetchall()
    count = connection.execute(f"SELECT count(*) FROM (SELECT 1 {source} LIMIT {COUNT_MAX + 1})", parameters).fetchone()[0]
    rows = letters.read_letters_at(connection, found[:limit])
    return build_page(rows, found, file_id=file_id, question=question, limit=limit, count=count)


def _find_audit_place(
    page: str, file_id: str, scope: Scope, after: str | None, wanted: Mapping[str, str]
) -> tuple[str, tuple[int, int]]:
    """Find what a page of the audit asks, and behind which row it begins, newest first."""
    question = f"{page} {sorted(wanted.items())} {sorted(scope) if scope is not None else None}"
    return question, letters.decode_cursor(file_id, question, after) or (1 << 62, 0)


def load_audit_page(
    connection: sqlite3.Connection, file_id: str, scope: Scope, after: str | None, limit: int, wanted: Mapping[str, str]
) -> Page[AuditRow]:
    """Return one page of the audit, newest first; see `Replica.list_audit_rows`."""
    question, position = _find_audit_place("audit", file_id, scope, after, wanted)
    condition, parameters = select_audit(wanted, scope)
    rows = connection.execute(
        f"SELECT id, {AUDIT_COLUMNS} FROM audit WHERE (at_ms, id) < (?, ?){condition} ORDER BY at_ms DESC, id DESC LIMIT ?",
        (*position, *parameters, limit + 1),
    ).fetchall()
    count = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM audit WHERE 1{condition} LIMIT {COUNT_MAX + 1})", parameters
    ).fetchone()[0]
    shown = [read_audit_row(row) for _, *row in rows[:limit]]
    places = [(at_ms, number) for number, at_ms, *_ in rows]
    return build_page(shown, places, file_id=file_id, question=question, limit=limit, count=count)


def select_audit(wanted: Mapping[str, str], scope: Scope) -> tuple[str, tuple[str, ...]]:
    """Return a condition of SQL that begins with AND, and its parameters, for what is wanted of the audit of a scope's teams."""
    condition, parameters = select_teams(scope)
    for field, value in wanted.items():
        condition, parameters = f"{condition} AND {AUDIT_FIELDS[field]}", (*parameters, value)
    return condition, parameters


def read_audit_row(row: Sequence[Any]) -> AuditRow:
    at_ms, action, kind, by, reason, shard, about, done, results, examples, team = row
    return AuditRow(
        at_ms, action=action, kind=kind, by=by, reason=reason, shard=shard, letters=about, done=done,
        results=orjson.loads(results), examples=tuple(orjson.loads(examples)), team=team,
    )  # fmt: skip


def build_page(
    rows: list[_Row], places: Sequence[tuple[int, int]], *, file_id: str, question: str, limit: int, count: int
) -> Page[_Row]:
    """Put a page together; `places` are those of its rows, and of one more where the list goes on."""
    following = places[limit - 1] if len(places) > limit else None
    return Page(rows, letters.encode_cursor(file_id, question, following), min(count, COUNT_MAX), count > COUNT_MAX)


# Actions as the replica has them, and who may see them: by the teams whose letters they are about.

class CopiedControls(NamedTuple):
    """Control records by shard, copied from the replica; implements `retry.operations.act.overview.ShardRecords`."""

    controls: Sequence[Mapping[bytes, bytes]]

    def list_records(self, *prefixes: bytes) -> list[dict[bytes, bytes]]:
        """Return the records whose keys begin with one of the prefixes, one dictionary for each shard."""
        return [{key: value for key, value in each.items() if key.startswith(prefixes)} for each in self.controls]


def sees_action(scope: Scope, action: Action) -> bool:
    """Whether all letters of an action are of teams in a scope; of older ones, and of letters of no known team, nobody knows."""
    return scope is None or (bool(action.teams) and scope.issuperset(action.teams))


def read_controls(connection: sqlite3.Connection) -> list[Mapping[bytes, bytes]]:
    """Read the records of pauses and actions: one mapping of keys to values for each shard, from shard 0 on.

    `action_state.read_states` and `control_records.read_pauses` read the mappings. A shard is a partition of the changelog.
    """
    by_shard: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
    for shard, key, value in connection.execute("SELECT shard, key, value FROM controls"):
        by_shard[shard][key] = value
    # What is asked of one shard is asked of all; right after a start the follower does not know yet how many there are.
    return [by_shard[shard] for shard in range(max(by_shard, default=-1) + 1)]


def merge_controls(by_shard: Sequence[Mapping[bytes, bytes]]) -> dict[bytes, bytes]:
    """Merge the control records of all shards: each has the same pauses, and while they differ the first that has one counts."""
    return {key: value for controls in reversed(by_shard) for key, value in controls.items()}


def list_pauses(by_shard: Sequence[Mapping[bytes, bytes]], now_ms: int) -> dict[tuple[str, str], Pause]:
    """List the pauses that stand, by scope and name."""
    return control_records.read_pauses(merge_controls(by_shard), now_ms)


def list_visible_actions(standing: Sequence[Mapping[bytes, bytes]], scope: Scope) -> list[overview.ActionOverview]:
    """List the actions of the last 30 days in these controls that a scope may see, the newest first."""
    return [each for each in overview.list_overviews(CopiedControls(standing)) if sees_action(scope, each.action)]


# Of one action; the others are counted.
_PARTS_MAX = 50
# An action stands where its newest row does.
_IS_HEAD = (
    "(a.action = '' OR NOT EXISTS (SELECT 1 FROM audit n WHERE n.action = a.action AND (n.at_ms, n.id) > (a.at_ms, a.id){0}))"
)


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """An action, or something that somebody did in the console.

    Attributes:
      what: all of it together, with the time of the newest part.
      parts: what was written of it, the oldest first, at most 50; `more` is how many there are besides.
    """

    what: AuditRow
    since_ms: int
    teams: tuple[str, ...]
    parts: tuple[AuditRow, ...]
    more: int = 0


def load_audited_actions(
    connection: sqlite3.Connection, file_id: str, scope: Scope, after: str | None, limit: int, wanted: Mapping[str, str]
) -> Page[AuditedAction]:
    """Return one page of the audit, newest first; see `Replica.list_audited_actions`."""
    question, position = _find_audit_place("audited", file_id, scope, after, wanted)
    condition, parameters = select_audit(wanted, scope)
    heads = f"FROM audit a WHERE {_IS_HEAD.format(condition)}{condition}"
    rows = connection.execute(
        f"SELECT at_ms, id, action {heads} AND (a.at_ms, a.id) < (?, ?) ORDER BY a.at_ms DESC, a.id DESC LIMIT ?",
        (*parameters, *parameters, *position, limit + 1),
    ).fetchall()
    count = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 {heads} LIMIT {COUNT_MAX + 1})", (*parameters, *parameters)
    ).fetchone()[0]
    shown = [_load_action(connection, row, action, condition, parameters) for _, row, action in rows[:limit]]
    places = [(at_ms, number) for at_ms, number, _ in rows]
    return build_page(shown, places, file_id=file_id, question=question, limit=limit, count=count)


def _load_action(
    connection: sqlite3.Connection, row: int, action: str, condition: str, parameters: tuple[str, ...]
) -> AuditedAction:
    of_action, given = (f"action = ?{condition}", (action, *parameters)) if action else ("id = ?", (row,))
    count, since_ms, at_ms, about, done = connection.execute(
        f"SELECT count(*), min(at_ms), max(at_ms), sum(letters), sum(done) FROM audit WHERE {of_action}", given
    ).fetchone()
    teams = connection.execute(
        f"SELECT DISTINCT team FROM audit WHERE {of_action} AND team IS NOT NULL ORDER BY 1", given
    ).fetchall()
    results = Counter[str]()
    for (text,) in connection.execute(f"SELECT DISTINCT results FROM audit WHERE {of_action} AND results != '{{}}'", given):
        times = connection.execute(f"SELECT count(*) FROM audit WHERE {of_action} AND results = ?", (*given, text)).fetchone()[0]
        results.update({why: n * times for why, n in orjson.loads(text).items()})
    # What workers did comes before orders to them: it says what was asked for, and by whom.
    first = connection.execute(
        f"SELECT {AUDIT_COLUMNS} FROM audit WHERE {of_action} ORDER BY shard < 0, at_ms, id LIMIT 1", given
    ).fetchone()
    parts = connection.execute(
        f"SELECT {AUDIT_COLUMNS} FROM audit WHERE {of_action} ORDER BY at_ms, id LIMIT ?", (*given, _PARTS_MAX)
    ).fetchall()
    head = read_audit_row(first)
    what = AuditRow(
        at_ms, action=action, kind=head.kind, by=head.by, reason=head.reason, shard=head.shard, letters=about, done=done,
        results=dict(results), examples=head.examples, team=head.team,
    )  # fmt: skip
    return AuditedAction(what, since_ms, tuple(team for (team,) in teams), tuple(map(read_audit_row, parts)), count - len(parts))
