"""Retries of which it is known whether they recovered, by the hour in which they were sent.

As analytics have it: a retry recovered where its consumer group has passed it and nothing came back within the settle time. Where
no sample tells what the group passes in that topic, it counts as passed when it was sent.
"""

from __future__ import annotations

import sqlite3

from retry.console.replica.attempts import HOUR_MS, KEPT_MS, SLOT_MS
from retry.telemetry import offset_records
from retry.telemetry.recovery_ratio import MINUTE_MS, SETTLE_MINUTES

SETTLE_MS = SETTLE_MINUTES * MINUTE_MS
_OF_PAIR = (
    "FROM outcome_slots JOIN outcome_cells ON id = cell WHERE slot < ?1 AND consumer_group IS ?2 AND target IS ?3"
)


class Settled:
    """The counts of retries, moved to `outcome_hours` once it is known whether they recovered; only for the thread that folds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def note_consumed(self, value: bytes) -> None:
        """Take in a sample of committed offsets, as far as it tells up to when all is passed.

        Raises:
          ValueError: it is none.
        """
        told = offset_records.read(value)
        if told.passed_ms is not None:
            row = told.group, told.topic, told.passed_ms, told.at_ms
            self._connection.execute("INSERT OR IGNORE INTO passed VALUES (?, ?, ?, ?)", row)

    def roll_up_slots(self, now_ms: int) -> bool:
        """Move what is known by now to its hour; says whether anything was."""
        last_ms = now_ms - SETTLE_MS
        pairs = self._connection.execute(
            "SELECT DISTINCT consumer_group, target FROM outcome_slots JOIN outcome_cells ON id = cell WHERE slot < ?",
            (last_ms // SLOT_MS,),
        ).fetchall()
        moved = False
        for group, target in pairs:
            # All of ten seconds that are over, or nothing of them.
            bound = self._known_ms(group, target, last_ms) // SLOT_MS, group, target
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

    def _known_ms(self, group: str | None, target: str, last_ms: int) -> int:
        """Up to when retries were sent that were passed a settle time ago."""
        of_pair = "FROM passed WHERE consumer_group = ? AND topic = ?"
        told = self._connection.execute(
            f"SELECT until_ms {of_pair} AND at_ms <= ? ORDER BY until_ms DESC LIMIT 1", (group, target, last_ms)
        ).fetchone()
        if told is not None:
            return int(told[0])
        is_sampled = self._connection.execute(f"SELECT 1 {of_pair} LIMIT 1", (group, target)).fetchone() is not None
        return 0 if is_sampled else last_ms

