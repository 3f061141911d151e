"""What was decided of each letter, when it left, and whether it came back: a row for each, of outcomes and changelog.

A retry is counted once it has left: as sent in the ten seconds in which it did, and there as come back once its lineage fails
again. `Settled` moves what is counted to where it does not change any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from retry.console.folding.sql import bind_ids, insert_rows, select_column
from retry.telemetry import offset_records
from retry.telemetry.recovery_ratio import MINUTE_MS, SETTLE_MINUTES

SLOT_MS, HOUR_MS = 10_000, 3_600_000
# A little more than is shown.
KEPT_MS = 26 * HOUR_MS
_ROWS_MAX = 1_000_000
_PLACE = '(topic, partition, "offset")'
_DECIDED = ("lineage", "attempt", "cell", "failed_ms", "taken_ms", "due_ms", "decision", "reason")
_LEFT = ("left_ms", "left_for", "lane", "action", "step", "lineage", "attempt", "team")
_OF_DECISION = ("lineage", "attempt", "team")


class DecidedLetter(NamedTuple):
    """An outcome; see the columns of `attempts`."""

    topic: str
    partition: int
    offset: int
    lineage: str
    attempt: int
    cell: int
    failed_ms: int
    taken_ms: int
    due_ms: int | None
    decision: str
    reason: str | None


class LeftLetter(NamedTuple):
    """A letter that waits no more, and was not moved.

    Attributes:
      left_for: the topic that it was sent to; None where it went where it rests, or was not known while it waited.
      lane: without its kind, as text: tells where a letter was sent that was not known.
      action, step: the action that moved it last, as hexadecimal, and the step of its ramp, from 0.
    """

    topic: str
    partition: int
    offset: int
    left_ms: int
    left_for: str | None
    lane: str
    action: str | None
    step: int | None
    lineage: str | None
    attempt: int | None
    team: str | None


def _format_assignments(columns: Iterable[str], form: str) -> str:
    return ", ".join(f"{name} = {form.format(name)}" for name in columns)


_INTO_DECIDED = f'attempts (topic, partition, "offset", {", ".join(_DECIDED)})'
_INTO_LEFT = f'attempts (topic, partition, "offset", {", ".join(_LEFT)})'
# An outcome says the same each time; of those that left the last counts.
_ON_DECIDED = f"ON CONFLICT {_PLACE} DO UPDATE SET {_format_assignments(_DECIDED, 'excluded.{0}')}"
_ON_LEFT = (
    f"ON CONFLICT {_PLACE} DO UPDATE SET {_format_assignments(_LEFT[:-3], 'excluded.{0}')},"
    f" {_format_assignments(_OF_DECISION, 'coalesce({0}, excluded.{0})')} WHERE left_ms IS NULL OR left_ms <= excluded.left_ms"
)
_OF_LINEAGES = "lineage IN (SELECT value FROM json_each(?1))"
# Retries that left for where they were to go; one that was discarded or parked meanwhile was not sent.
_SENT = "a.decision = 'retry' AND a.left_ms IS NOT NULL AND (a.left_for IS NOT NULL OR a.lane = c.lane)"
# Of several of one lineage and attempt the one that was taken in first comes back first: how many do is exact.
_CAME_BACK = (
    "UPDATE attempts SET came_back = 1 WHERE came_back = 0 AND id IN (SELECT p.id FROM"
    " (SELECT id, lineage, attempt, row_number() OVER (PARTITION BY lineage, attempt ORDER BY taken_ms, id) n FROM attempts"
    " WHERE decision = 'retry'{0}) p JOIN (SELECT lineage, attempt, count(*) failed FROM attempts WHERE attempt > 1"
    " AND decision IS NOT NULL{0} GROUP BY 1, 2) f ON f.lineage = p.lineage AND f.attempt = p.attempt + 1 WHERE n <= failed)"
)
_COUNT = (
    "INSERT INTO outcome_slots (cell, slot, sent, came_back, left_ms)"
    f" SELECT a.cell, coalesce(a.slot, a.left_ms / {SLOT_MS}), sum(a.slot IS NULL), sum(a.came_back - a.counted_back),"
    " max(a.left_ms)"
    f" FROM attempts a JOIN outcome_cells c ON c.id = a.cell WHERE {_SENT} AND (a.slot IS NULL OR a.came_back > a.counted_back)"
    "{0} GROUP BY 1, 2 ON CONFLICT (cell, slot) DO UPDATE SET sent = sent + excluded.sent,"
    " came_back = came_back + excluded.came_back, left_ms = max(left_ms, excluded.left_ms)"
)
_COUNTED = (
    f"UPDATE attempts SET slot = coalesce(slot, left_ms / {SLOT_MS}), counted_back = came_back WHERE id IN (SELECT a.id"
    f" FROM attempts a JOIN outcome_cells c ON c.id = a.cell WHERE {_SENT} AND (a.slot IS NULL OR a.came_back > a.counted_back)"
    "{0})"
)
_WAITS = (
    "FROM attempts a CROSS JOIN letters l ON l.lineage = a.lineage AND l.partition = a.partition AND l.\"offset\" = a.\"offset\""
    " CROSS JOIN cells c ON c.id = l.cell WHERE a.left_ms IS NOT NULL AND c.topic = a.topic AND c.state = 'waiting'"
)


class Attempts:
    """The table `attempts`, a row for each dead letter, and the counts made from it once all indexes are there."""

    def __init__(self, connection: sqlite3.Connection, *, is_live: bool) -> None:
        self._connection, self._is_live = connection, is_live
        self._lineages: set[str] = set()

    def put_decided(self, letters: Sequence[DecidedLetter]) -> None:
        insert_rows(self._connection, _INTO_DECIDED, [tuple(each) for each in letters], _ON_DECIDED)
        self._lineages.update(each.lineage for each in letters)

    def put_left(self, letters: Sequence[LeftLetter]) -> None:
        """Put when letters left; without those of the same dead letter that wait."""
        if not letters:
            return
        if self._is_live:
            waiting = self._find_waiting({each.lineage for each in letters if each.lineage is not None})
            letters = [each for each in letters if each[:3] not in waiting]
        insert_rows(self._connection, _INTO_LEFT, [tuple(each) for each in letters], _ON_LEFT)
        self._lineages.update(each.lineage for each in letters if each.lineage is not None)
        unknown = [each[:3] for each in letters if each.lineage is None] if self._is_live else []
        if unknown:
            self._lineages.update(select_column(
                self._connection, "lineage", "FROM json_each(?) j CROSS JOIN attempts ON topic = j.value ->> 0 AND"
                ' partition = j.value ->> 1 AND "offset" = j.value ->> 2 WHERE lineage IS NOT NULL', (bind_ids(unknown),),
            ))  # fmt: skip

    def write(self) -> None:
        if self._is_live and self._lineages:
            lineages, these = bind_ids(self._lineages), f" AND {_OF_LINEAGES}"
            self._connection.execute(_CAME_BACK.format(these), (lineages,))
            self._count(f" AND a.{_OF_LINEAGES}", (lineages,))
        self._lineages.clear()

    def count_indexed(self) -> None:
        self._is_live = True
        self._connection.execute(f"UPDATE attempts SET left_ms = NULL WHERE id IN (SELECT a.id {_WAITS})")
        self._connection.execute(_CAME_BACK.format(""))
        self._count("", ())

    def prune(self) -> None:
        self._connection.execute("DELETE FROM attempts WHERE id <= (SELECT max(id) FROM attempts) - ?", (_ROWS_MAX,))

    def _count(self, these: str, parameters: tuple[object, ...]) -> None:
        self._connection.execute(_COUNT.format(these), parameters)
        self._connection.execute(_COUNTED.format(these), parameters)

    def _find_waiting(self, lineages: Collection[str]) -> set[tuple[object, ...]]:
        rows = self._connection.execute(
            'SELECT c.topic, l.partition, l."offset" FROM json_each(?) j CROSS JOIN letters l ON l.lineage = j.value'
            " CROSS JOIN cells c ON c.id = l.cell WHERE c.state = 'waiting'", (bind_ids(lineages),),
        )  # fmt: skip
        return set(rows)


# Retries of which it is known whether they recovered, by the hour in which they were sent.
#
# A retry has recovered so far as soon as its consumer group has committed past it; where it fails again after that, it counts as
# failed again from then on. Where no sample tells what the group passes in that topic, silence for the settle time is enough.
# Analytics, which look back, wait for the settle time in both cases.

SETTLE_MS = SETTLE_MINUTES * MINUTE_MS
_OF_PAIR = "FROM outcome_slots JOIN outcome_cells ON id = cell WHERE left_ms <= ?1 AND consumer_group IS ?2 AND target IS ?3"
# Of what has not moved yet: what failed again is known at once, and the rest is not.
PENDING = "sum(max(sent - came_back, 0))"
KNOWN_SENT, KNOWN_BACK = "sum(min(sent, came_back))", "sum(came_back)"


class Settled:
    """The counts of retries, moved to `outcome_hours` once it is known whether they recovered; only for the thread that folds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note_consumed(self, value: bytes) -> None:
        """Take in a sample of committed offsets, as far as it tells up to when all is passed; raises ValueError."""
        told = offset_records.read(value)
        if told.passed_ms is not None:
            row = told.group, told.topic, told.passed_ms, told.at_ms
            self._connection.execute("INSERT OR IGNORE INTO passed VALUES (?, ?, ?, ?)", row)

    def roll_up_slots(self, now_ms: int) -> bool:
        """Move what is known by now to its hour; says whether anything was."""
        pairs = self._connection.execute(
            "SELECT DISTINCT consumer_group, target FROM outcome_slots JOIN outcome_cells ON id = cell"
        ).fetchall()
        moved = False
        for group, target in pairs:
            # All of ten seconds together, or nothing of them yet.
            bound = find_passed_ms(self._connection, [group], target, now_ms), group, target
            moved |= self._connection.execute(
                f"INSERT INTO outcome_hours (cell, hour, failed, sent, came_back) SELECT cell, slot * {SLOT_MS} / {HOUR_MS}, 0,"
                f" sum(sent), sum(came_back) {_OF_PAIR} GROUP BY 1, 2 ON CONFLICT (cell, hour) DO UPDATE"
                " SET sent = sent + excluded.sent, came_back = came_back + excluded.came_back", bound,
            ).rowcount > 0  # fmt: skip
            self._connection.execute(f"DELETE FROM outcome_slots WHERE (cell, slot) IN (SELECT cell, slot {_OF_PAIR})", bound)
        return moved

    def prune(self, now_ms: int) -> None:
        """Forget what is not shown any more; of each group and topic the last stays, so that it is known to be sampled."""
        oldest_ms = now_ms - KEPT_MS
        self._connection.execute("DELETE FROM outcome_slots WHERE slot < ?", (oldest_ms // SLOT_MS,))
        self._connection.execute(
            "DELETE FROM passed WHERE at_ms < ? AND EXISTS (SELECT 1 FROM passed p WHERE p.consumer_group = passed.consumer_group"
            " AND p.topic = passed.topic AND p.until_ms > passed.until_ms)", (oldest_ms,),
        )  # fmt: skip


def find_passed_ms(
    connection: sqlite3.Connection, groups: Iterable[str | None], target: str, now_ms: int, silence_ms: int = SETTLE_MS
) -> int:
    """Find up to when all of these groups have passed retries to a target, as samples tell, or else by silence."""
    of_pair = "SELECT max(until_ms) FROM passed WHERE consumer_group = ? AND topic = ?"
    found = [connection.execute(of_pair, (group, target)).fetchone()[0] for group in groups]
    return min((int(until_ms) for until_ms in found if until_ms is not None), default=now_ms - silence_ms)
