"""What happened to one original record: from outcomes, from what left the changelog and who has passed it, from where it is now,
and from the audit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from retry.console.replica import letter_rows
from retry.console.replica.letter_record import WAITING
from retry.console.replica.rows import LetterRow, LineageEvent, Scope
from retry.delivery.act_audit import DONE

_EVENTS_MAX = 1_000
_ORDER = ("failed", "came back", "due", "action", "sent", "passed", "waiting", "parked", "discarded")


def events(connection: sqlite3.Connection, scope: Scope, lineage: str) -> list[LineageEvent]:
    """The oldest first; what is due or waits in the future comes last."""
    letters = _read_letters(connection, scope, lineage)
    here = {f"{letter.topic}/{letter.partition}/{letter.offset}" for letter in letters}
    found = [*_list_attempt_events(connection, scope, lineage, here), *map(_describe_present, letters)]
    places = {event.place for event in found if event.what in ("failed", "came back")}
    places |= {f"{letter.topic}/{letter.partition}/{letter.offset}" for letter in letters if letter.topic}
    found += [event for place in sorted(places) for event in _list_action_events(connection, place)]
    return sorted(found, key=lambda each: (each.at_ms or 0, _ORDER.index(each.what)))[:_EVENTS_MAX]


def _read_letters(connection: sqlite3.Connection, scope: Scope, lineage: str) -> list[LetterRow]:
    rows = connection.execute("SELECT sort, id FROM letters WHERE lineage = ? LIMIT ?", (lineage, _EVENTS_MAX)).fetchall()
    shown = letter_rows.read_letters_at(connection, rows)
    return [letter for letter in shown if letter.state in _ORDER and (scope is None or letter.team in scope)]


def _list_attempt_events(connection: sqlite3.Connection, scope: Scope, lineage: str, here: set[str]) -> Iterator[LineageEvent]:
    """Failures, when each was to be retried, when that was sent, and when its consumer group had passed it.

    Args:
      here: letters that wait or rest: what left before was not the last of them.
    """
    for (
        attempt, team, topic, partition, offset, failed_ms, due_ms, reason, left_ms, target, group,
    ) in connection.execute(
        'SELECT a.attempt, coalesce(c.team, a.team), a.topic, a.partition, a."offset", failed_ms, due_ms, reason, left_ms,'
        " coalesce(left_for, iif(decision = 'retry' AND a.lane = c.lane, c.target, NULL)), consumer_group FROM attempts a"
        " LEFT JOIN outcome_cells c ON c.id = a.cell WHERE lineage = ? ORDER BY a.id LIMIT ?", (lineage, _EVENTS_MAX),
    ):  # fmt: skip
        if scope is not None and team not in scope:
            continue
        place = f"{topic}/{partition}/{offset}"
        if failed_ms is not None:
            yield LineageEvent(failed_ms, "failed" if attempt == 1 else "came back", attempt - 1, place, reason or "")
        if due_ms is not None:
            yield LineageEvent(due_ms, "due", attempt)
        if left_ms is not None and target is not None and place not in here:
            yield LineageEvent(left_ms, "sent", attempt, target)
            if (passed_ms := _passed_ms(connection, group, target, left_ms)) is not None:
                yield LineageEvent(max(left_ms, passed_ms), "passed", attempt, group)


def _passed_ms(connection: sqlite3.Connection, group: str | None, target: str, left_ms: int) -> int | None:
    """When it was seen first that a group had passed what left then."""
    row = connection.execute(
        "SELECT at_ms FROM passed WHERE consumer_group = ? AND topic = ? AND until_ms >= ? ORDER BY until_ms LIMIT 1",
        (group, target, left_ms),
    ).fetchone()  # fmt: skip
    return None if row is None else int(row[0])


def _describe_present(letter: LetterRow) -> LineageEvent:
    """Return the event that says where a letter waits or rests now."""
    at_ms = letter.due_at_ms if letter.state == WAITING else letter.failed_ms
    place = letter.target if letter.state == WAITING else letter.name
    return LineageEvent(at_ms, letter.state, letter.attempt, place, letter.reason or "", action=letter.action or "")


def _list_action_events(connection: sqlite3.Connection, place: str) -> Iterator[LineageEvent]:
    for at_ms, action, kind, by, reason, result in connection.execute(
        "SELECT at_ms, action, kind, by, reason, result FROM audit_letters JOIN audit ON id = audit WHERE letter = ? LIMIT ?",
        (place, _EVENTS_MAX),
    ):
        told = kind if result == DONE else f"{kind}: {result}"
        yield LineageEvent(at_ms, "action", None, place, f"{told}: {reason}" if reason else told, by, action)
