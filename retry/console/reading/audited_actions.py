"""The audit as people read it: a row for each action, with all that was done of it, and one for each act in the console."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from retry.console.reading import letters
from retry.console.reading.lists import AUDIT_COLUMNS, build_page, read_audit_row, select_audit
from retry.console.rows import COUNT_MAX, AuditRow, Page, Scope

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
    question = f"audited {sorted(wanted.items())} {sorted(scope) if scope is not None else None}"
    position = letters.decode_cursor(file_id, question, after) or ((1 << 62), 0)
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
