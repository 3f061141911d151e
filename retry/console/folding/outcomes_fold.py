"""Records of the outcomes topic → failures by hour and cell, decisions for `attempts`, what groups have passed for `settled`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_128_digest

from retry import clock, format_versions
from retry.console.folding.attempts import HOUR_MS, KEPT_MS, Attempts, DecidedLetter, Settled
from retry.console.folding.regrouping import Regrouping
from retry.console.folding.sql import insert_rows
from retry.delay_queue import entry_keys
from retry.kafka.interface import Message
from retry.telemetry import outcomes
from retry.telemetry.offset_records import KEY as POSITION_KEY
from retry.telemetry.unreadable_records import UNREADABLE

DAY_MS, MINUTE_MS = 86_400_000, 60_000
_HEARD_MS = 30 * DAY_MS
# A little more than is shown: failures by the hour, and by the minute.
_HOURS_KEPT_MS, _MINUTES_KEPT_MS = 7 * DAY_MS + 2 * HOUR_MS, HOUR_MS + 10 * MINUTE_MS


class OutcomeCell(NamedTuple):
    """The values that many outcomes share, as one row of the table `outcome_cells` has them; see its columns."""

    team: str | None
    topic: str | None
    attempt: int
    cause: str | None
    fingerprint: str | None
    consumer_group: str | None
    target: str | None

    @property
    def frames(self) -> None:
        """Nothing of a stack is told with an outcome."""
        return

    @property
    def lane(self) -> str:
        """Return the lane that retries of this cell wait in, as 16 hexadecimal digits: without the byte of its kind."""
        return entry_keys.lane(self.team or "", self.topic or "", self.target or "")[1:].hex()


_COLUMNS = ", ".join(OutcomeCell._fields)
_INSERT = f"INSERT INTO outcome_cells (digest, group_id, lane, {_COLUMNS}) VALUES (?, ?, ?{', ?' * len(OutcomeCell._fields)})"


class OutcomesFold:
    """The fold of the outcomes topic: failures by hour, decisions and consumer positions; only for the thread that folds."""

    def __init__(self, connection: sqlite3.Connection, grouping: Regrouping, attempts: Attempts, settled: Settled) -> None:
        self._connection, self._grouping, self._attempts, self._settled = connection, grouping, attempts, settled
        self._ids: dict[OutcomeCell, int] = {}
        self._failed: Counter[tuple[int, int]] = Counter()
        self._failed_lately: Counter[tuple[int, int]] = Counter()
        self._times: dict[int, tuple[int, int]] = {}

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        # What is not heard of for long is pruned.
        self._ids.clear()
        self._failed.clear()
        self._failed_lately.clear()
        self._times.clear()
        now_ms, decided = clock.wall_ms(), list[DecidedLetter]()
        for message in messages:
            value = message.value() or b""
            try:
                if message.key() == POSITION_KEY:
                    self._settled.note_consumed(value)
                    continue
                record = _read(value)
            except ValueError as error:
                UNREADABLE.pass_over(message.topic(), partition, message.offset(), error)
                continue
            # What operators decide is no failure, and what came of it the changelog says.
            for alike in record.letters if record.action is None else ():
                decided += self._count_taken(alike, record.taken_ms, now_ms)
        self._attempts.put_decided(decided)
        self._write()

    def regroup(self) -> None:
        cells = self._connection.execute(f"SELECT id, {_COLUMNS} FROM outcome_cells").fetchall()
        groups = [(self._grouping.group_of(OutcomeCell(*cell[1:])), cell[0]) for cell in cells]
        self._connection.executemany("UPDATE outcome_cells SET group_id = ?1 WHERE id = ?2 AND group_id IS NOT ?1", groups)

    def prune(self) -> None:
        now_ms = clock.wall_ms()
        self._connection.execute("DELETE FROM outcome_hours WHERE hour < ?", ((now_ms - _HOURS_KEPT_MS) // HOUR_MS,))
        minute = (now_ms - _MINUTES_KEPT_MS) // MINUTE_MS
        self._connection.execute("DELETE FROM outcome_minutes WHERE minute < ?", (minute,))
        self._connection.execute("DELETE FROM outcome_cells WHERE last_ms < ?", (now_ms - _HEARD_MS,))

    def _count_taken(self, alike: outcomes.AlikeLetters, taken_ms: int, now_ms: int) -> list[DecidedLetter]:
        """Count letters that have much in common; what was decided of each, as far as anybody still asks for it."""
        if not alike.id:
            return []
        topic, partition, attempt, failed_ms = alike.topic, alike.partition, alike.attempt, alike.failed_ms
        cause = alike.cause or alike.exception
        cell = OutcomeCell(alike.team, topic, attempt, cause, alike.fingerprint, alike.group, alike.target)
        number = self._id_of(cell)
        self._note_times(number, min(alike.first_failed_ms), max(failed_ms))
        if taken_ms >= now_ms - _HOURS_KEPT_MS:
            self._failed.update((number, at // HOUR_MS) for at in failed_ms)
        if taken_ms >= (lately_ms := now_ms - _MINUTES_KEPT_MS):
            self._failed_lately.update((number, at // MINUTE_MS) for at in failed_ms if at >= lately_ms)
        oldest_ms = now_ms - KEPT_MS
        decision, reason = alike.decision, alike.reason
        each = zip(alike.id, alike.offset, failed_ms, alike.due_ms, strict=True)
        return [
            DecidedLetter(
                topic, partition, offset, lineage=id_, attempt=attempt, cell=number, failed_ms=failed, taken_ms=taken_ms,
                due_ms=due_ms, decision=decision, reason=reason,
            )
            for id_, offset, failed, due_ms in each
            if taken_ms >= oldest_ms or (due_ms is not None and due_ms >= oldest_ms)
        ]  # fmt: skip

    def _note_times(self, number: int, first_ms: int, last_ms: int) -> None:
        first, last = self._times.get(number, (first_ms, last_ms))
        self._times[number] = min(first, first_ms), max(last, last_ms)

    def _id_of(self, cell: OutcomeCell) -> int:
        if (found := self._ids.get(cell)) is not None:
            return found
        digest = xxh3_128_digest(repr(tuple(cell)).encode("utf-8", "surrogatepass"))
        row = self._connection.execute("SELECT id FROM outcome_cells WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            made = self._connection.execute(_INSERT, (digest, self._grouping.group_of(cell), cell.lane, *cell))
            row = (made.lastrowid,)
        self._ids[cell] = int(row[0])
        return self._ids[cell]

    def _write(self) -> None:
        insert_rows(
            self._connection, "outcome_hours", [(*at, failed, 0, 0) for at, failed in self._failed.items()],
            "ON CONFLICT (cell, hour) DO UPDATE SET failed = failed + excluded.failed",
        )  # fmt: skip
        insert_rows(
            self._connection, "outcome_minutes", [(*at, failed) for at, failed in self._failed_lately.items()],
            "ON CONFLICT (cell, minute) DO UPDATE SET failed = failed + excluded.failed",
        )  # fmt: skip
        self._connection.executemany(
            "UPDATE outcome_cells SET first_ms = min(coalesce(first_ms, ?1), ?1), last_ms = max(coalesce(last_ms, ?2), ?2)"
            " WHERE id = ?3", ((first, last, number) for number, (first, last) in self._times.items()),
        )  # fmt: skip


def _read(value: bytes) -> outcomes.OutcomeRecord:
    """Read a record; raises ValueError where no version of this service wrote it, or a newer one did."""
    record = outcomes.read_record(value)
    format_versions.OUTCOME.refuse_newer(record.v, ValueError)
    return record
