"""Letters that teams are told of while they stand: those that are overdue, and those near the end of their retention."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from retry.console.folding.outcomes_fold import DAY_MS, MINUTE_MS
from retry.console.reading import lists
from retry.console.reading.now import count_failed_before
from retry.console.rows import COUNT_MAX


class OverdueLetters(NamedTuple):
    """Letters of one team, empty where it is not known, that were due and wait; `since_ms` is when the first of them was due."""

    team: str
    letters: int
    since_ms: int


class FadingLetters(NamedTuple):
    """Parked letters of one team, empty where it is not known, that Kafka deletes from a topic within a day."""

    team: str
    topic: str
    letters: int


def list_overdue(connection: sqlite3.Connection, before_ms: int, now_ms: int) -> list[OverdueLetters]:
    """List by team the letters that were due before a moment and that nobody has paused; at most 10,000 of them are counted."""
    minute = before_ms // MINUTE_MS
    late = connection.execute("SELECT 1 FROM due_minutes WHERE minute < ? AND letters > 0 LIMIT 1", (minute,)).fetchone()
    paused = lists.list_pauses(lists.read_controls(connection), now_ms)
    if not late or ("all", "") in paused:
        return []
    names = {scope: [name for each, name in paused if each == scope] for scope in ("team", "topic", "target")}
    unpaused = "".join(
        f" AND (c.{column} IS NULL OR c.{column} NOT IN ({','.join('?' * len(these))}))"
        for column, these in names.items() if these
    )  # fmt: skip
    found = connection.execute(
        "SELECT team, count(*), min(sort) FROM (SELECT c.team AS team, l.sort AS sort FROM letters l INDEXED BY letters_by_sort"
        f" CROSS JOIN cells c ON c.id = l.cell WHERE l.sort < ? AND c.state = 'waiting'{unpaused} ORDER BY l.sort LIMIT ?)"
        " GROUP BY team", (minute * MINUTE_MS, *(name for these in names.values() for name in these), COUNT_MAX),
    )  # fmt: skip
    return [OverdueLetters(team or "", letters, since_ms) for team, letters, since_ms in found]


def list_fading(connection: sqlite3.Connection, retention_ms: Mapping[str, int], now_ms: int) -> list[FadingLetters]:
    """List by team and topic the parked letters that Kafka deletes within a day: it goes by the time of each record, which is
    that of its failure. Discarded ones are meant to go."""
    found: dict[tuple[str, str], int] = {}
    for topic, kept_ms in retention_ms.items():
        rows = connection.execute("SELECT id, team FROM cells WHERE state = 'parked' AND target = ? AND letters > 0", (topic,))
        for cell, team in rows.fetchall():
            place = team or "", topic
            found[place] = found.get(place, 0) + count_failed_before(connection, cell, now_ms + DAY_MS - kept_ms)
    return [FadingLetters(team, topic, min(letters, COUNT_MAX)) for (team, topic), letters in sorted(found.items()) if letters]
