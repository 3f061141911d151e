"""What happened to one original record: from outcomes, from what left the changelog, from where it is now, and from the audit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from retry.console.replica import letter_rows
from retry.console.replica.letter_record import WAITING
from retry.console.replica.rows import LetterRow, LineageEvent, Scope
from retry.delivery.act_audit import DONE

_EVENTS_MAX = 1_000
_ORDER = ("failed", "came back", "due", "action", "sent", "waiting", "parked", "discarded")


def events(connection: sqlite3.Connection, scope: Scope, lineage: str) -> list[LineageEvent]:
    """The oldest first; what is due or waits in the future comes last."""
    letters = _letters(connection, scope, lineage)
    found = [*_outcomes(connection, scope, lineage), *_sent(connection, scope, lineage, letters), *map(_present, letters)]
    places = {event.place for event in found if event.what in ("failed", "came back")}
    places |= {f"{letter.topic}/{letter.partition}/{letter.offset}" for letter in letters if letter.topic}
    found += [event for place in sorted(places) for event in _actions(connection, place)]
    return sorted(found, key=lambda each: (each.at_ms or 0, _ORDER.index(each.what)))[:_EVENTS_MAX]


def _letters(connection: sqlite3.Connection, scope: Scope, lineage: str) -> list[LetterRow]:
    rows = connection.execute("SELECT sort, id FROM letters WHERE lineage = ? LIMIT ?", (lineage, _EVENTS_MAX)).fetchall()
    shown = letter_rows.at(connection, rows)
    return [letter for letter in shown if letter.state in _ORDER and (scope is None or letter.team in scope)]


def _outcomes(connection: sqlite3.Connection, scope: Scope, lineage: str) -> Iterator[LineageEvent]:
    """Failures, and when each was to be retried."""
    for attempt, team, topic, partition, offset, failed_ms, due_ms, reason in connection.execute(
        'SELECT r.attempt, team, topic, partition, "offset", failed_ms, due_ms, reason FROM recent r JOIN outcome_cells c'
        " ON c.id = r.cell WHERE lineage = ? LIMIT ?", (lineage, _EVENTS_MAX),
    ):  # fmt: skip
        if scope is None or team in scope:
            what = "failed" if attempt == 1 else "came back"
            yield LineageEvent(failed_ms, what, attempt - 1, f"{topic}/{partition}/{offset}", reason or "")
            if due_ms is not None:
                yield LineageEvent(due_ms, "due", attempt)


def _sent(
    connection: sqlite3.Connection, scope: Scope, lineage: str, letters: list[LetterRow]
) -> Iterator[LineageEvent]:
    """Retries that left the changelog. Of a letter that was moved, and so left more than once, the last time counts."""
    rows = connection.execute(
        'SELECT letter, at_ms, attempt, target, team FROM "left" WHERE lineage = ? ORDER BY id LIMIT ?', (lineage, _EVENTS_MAX)
    )
    last = {
        letter: (at_ms, attempt, target)
        for letter, at_ms, attempt, target, team in rows
        if scope is None or team in scope
    }
    here = {f"{letter.topic}/{letter.partition}/{letter.offset}" for letter in letters}
    for letter, (at_ms, attempt, target) in last.items():
        if letter not in here:
            yield LineageEvent(at_ms, "sent", attempt, target)


def _present(letter: LetterRow) -> LineageEvent:
    """Where it is now."""
    at_ms = letter.due_at_ms if letter.state == WAITING else letter.failed_ms
    place = letter.target if letter.state == WAITING else letter.name
    return LineageEvent(at_ms, letter.state, letter.attempt, place, letter.reason or "", action=letter.action or "")


def _actions(connection: sqlite3.Connection, place: str) -> Iterator[LineageEvent]:
    for at_ms, action, kind, by, reason, result in connection.execute(
        "SELECT at_ms, action, kind, by, reason, result FROM audit_letters JOIN audit ON id = audit WHERE letter = ? LIMIT ?",
        (place, _EVENTS_MAX),
    ):
        told = kind if result == DONE else f"{kind}: {result}"
        yield LineageEvent(at_ms, "action", None, place, f"{told}: {reason}" if reason else told, by, action)
