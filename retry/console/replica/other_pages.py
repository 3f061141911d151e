"""Names to complete a filter with, entries that have a name, and the audit."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import orjson

from retry.console.replica import cursors, letter_rows
from retry.console.replica.rows import COUNT_MAX, AuditRow, LetterRow, Names, Page, Scope

_NAMES_MAX = 200
_TEXT_CHARS_MAX = 200
# What the audit can be asked for, and what holds of a row then.
AUDIT_FIELDS = {
    "action": "action = ?", "by": "by = ?", "kind": "kind = ?", "team": "team = ?",
    "letter": "id IN (SELECT audit FROM audit_letters WHERE letter = ?)",
}  # fmt: skip


def list_filter_names(connection: sqlite3.Connection, scope: Scope) -> Names:
    """List the names in a viewer's letters that can complete a filter; see `Replica.list_filter_names`."""
    columns = ("team", "topic", "exception", "target", "consumer_group")
    condition, teams = _of_teams("", scope)
    return Names(*(
        tuple(name for (name,) in connection.execute(
            f"SELECT DISTINCT {column} FROM cells WHERE letters > 0 AND {column} IS NOT NULL AND {column} != ''"
            f" AND state IN ('waiting', 'parked', 'discarded'){condition} ORDER BY 1 LIMIT {_NAMES_MAX}", teams,
        ))
        for column in columns
    ))  # fmt: skip


def named_entries(
    connection: sqlite3.Connection, file_id: str, scope: Scope, kind: str, text: str, after: str | None, limit: int
) -> Page[LetterRow]:
    """Return one page of schedules, tasks or timers that wait, soonest first; see `Replica.named_entries`."""
    question = f"named {kind} {text} {sorted(scope) if scope is not None else None}"
    position = cursors.decode(file_id, question, after) or (-(1 << 62), 0)
    of_teams, teams = _of_teams("c.", scope)
    # What only waits to be parked is none; it says why.
    condition = f"l.named IS NOT NULL AND c.kind = ? AND c.state = 'waiting' AND c.reason IS NULL{of_teams}"
    parameters: list[object] = [kind, *teams]
    if text:
        condition += " AND (instr(l.label, ?) OR instr(l.key, ?) OR instr(c.target, ?) OR instr(c.topic, ?))"
        parameters += [text[:_TEXT_CHARS_MAX]] * 4
    source = f"FROM letters l INDEXED BY letters_by_name CROSS JOIN cells c ON c.id = l.cell WHERE {condition}"
    page = f"SELECT l.sort, l.id {source} AND (l.sort, l.id) > (?, ?) ORDER BY l.sort, l.id LIMIT ?"
    found = connection.execute(page, (*parameters, *position, limit + 1)).fetchall()
    count = connection.execute(f"SELECT count(*) FROM (SELECT 1 {source} LIMIT {COUNT_MAX + 1})", parameters).fetchone()[0]
    following = found[limit - 1] if len(found) > limit else None
    rows = letter_rows.read_letters_at(connection, found[:limit])
    return Page(rows, cursors.encode(file_id, question, following), min(count, COUNT_MAX), count > COUNT_MAX)


def load_audit_page(
    connection: sqlite3.Connection, file_id: str, scope: Scope, after: str | None, limit: int, wanted: Mapping[str, str]
) -> Page[AuditRow]:
    """Return one page of the audit, newest first; see `Replica.list_audit_rows`."""
    question = f"audit {sorted(wanted.items())} {sorted(scope) if scope is not None else None}"
    position = cursors.decode(file_id, question, after) or ((1 << 62), 0)
    condition, parameters = _of_teams("", scope)
    for field, value in wanted.items():
        condition, parameters = f"{condition} AND {AUDIT_FIELDS[field]}", (*parameters, value)
    rows = connection.execute(
        "SELECT at_ms, id, action, kind, by, reason, shard, letters, done, results, examples, team FROM audit"
        f" WHERE (at_ms, id) < (?, ?){condition} ORDER BY at_ms DESC, id DESC LIMIT ?", (*position, *parameters, limit + 1),
    ).fetchall()  # fmt: skip
    count = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM audit WHERE 1{condition} LIMIT {COUNT_MAX + 1})", parameters
    ).fetchone()[0]
    shown = [
        AuditRow(
            at_ms, action=of, kind=kind, by=by, reason=reason, shard=shard, letters=letters, done=done,
            results=orjson.loads(results), examples=tuple(orjson.loads(examples)), team=team,
        )
        for at_ms, _, of, kind, by, reason, shard, letters, done, results, examples, team in rows[:limit]
    ]  # fmt: skip
    following = rows[limit - 1][:2] if len(rows) > limit else None
    return Page(shown, cursors.encode(file_id, question, following), min(count, COUNT_MAX), count > COUNT_MAX)


def _of_teams(prefix: str, scope: Scope) -> tuple[str, tuple[str, ...]]:
    if scope is None:
        return "", ()
    return f" AND {prefix}team IN ({','.join('?' * len(scope))})", tuple(sorted(scope))
