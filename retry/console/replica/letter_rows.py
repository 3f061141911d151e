"""Rows of SQLite → letters as pages show them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from retry.console.replica.letter_record import WAITING, LogPlace, resting_place
from retry.console.replica.letter_search import Position
from retry.console.replica.rows import LetterRow

_COLUMNS = """
    l.id, l.sort, c.state, c.kind, c.team, c.topic, l.partition, l."offset", c.target, l.key, l.key_bytes, c.attempt, l.due_ms,
    l.failed_ms, l.first_failed_ms, c.exception, c.cause, l.message, c.frames, c.fingerprint, c.group_id, c.policy, c.reason,
    l.lineage, c.consumer_group, l.size, l.action, l.label, l.log, l.log_partition, l.log_offset, t.name,
    l.ordered IS NOT NULL AND EXISTS (
        SELECT 1 FROM letters o WHERE o.ordered >= substr(l.ordered, 1, 8) AND o.ordered < l.ordered) AS behind"""
_DIGITS_MAX = 19
_SELECT = f"SELECT {_COLUMNS} FROM letters l JOIN cells c ON c.id = l.cell JOIN topics t ON t.number = l.log"


class LogRecord(NamedTuple):
    """Where the record of a letter lies."""

    topic: str
    partition: int
    offset: int


def at(connection: sqlite3.Connection, positions: Sequence[Position]) -> list[LetterRow]:
    """The letters at these positions, in their order."""
    return [row for row, _ in with_records(connection, positions)]


def with_records(connection: sqlite3.Connection, positions: Sequence[Position]) -> list[tuple[LetterRow, LogRecord]]:
    """The same, and where the record of each lies."""
    ids = orjson.dumps([letter for _, letter in positions]).decode()
    rows = connection.execute(f"{_SELECT} WHERE l.id IN (SELECT value FROM json_each(?))", (ids,)).fetchall()
    return [(_row(row), LogRecord(row[31], row[29], row[30])) for row in sorted(rows, key=lambda row: (row[1], row[0]))]


def named(connection: sqlite3.Connection, name: str) -> tuple[LetterRow, LogRecord] | None:
    """The letter of a name, and where its record lies; None where there is none."""
    *due, topic, partition, offset = name.split("/")
    numbers = [*due, partition, offset]
    if len(due) > 1 or not all(number.removeprefix("-").isdecimal() and len(number) < _DIGITS_MAX for number in numbers):
        return None
    if due:
        condition = 'l.sort = ? AND c.state = \'waiting\' AND c.topic = ? AND l.partition = ? AND l."offset" = ?'
        row = connection.execute(f"{_SELECT} WHERE {condition}", (int(due[0]), topic, int(partition), int(offset))).fetchone()
    else:
        number = connection.execute("SELECT number FROM topics WHERE name = ?", (topic,)).fetchone()
        place = None if number is None else resting_place(LogPlace(number[0], int(partition), int(offset)))
        row = connection.execute(f"{_SELECT} WHERE l.place = ?", (place,)).fetchone()
    return None if row is None else (_row(row), LogRecord(row[31], row[29], row[30]))


def _row(row: tuple[Any, ...]) -> LetterRow:
    (
        _, _, state, kind, team, topic, partition, offset, target, key, key_bytes, attempt, due_ms, failed_ms, first_failed_ms,
        exception, cause, message, frames, fingerprint, group, policy, reason, lineage, consumer_group, size, action, label,
        _, log_partition, log_offset, log_topic, behind,
    ) = row  # fmt: skip
    is_waiting = state == WAITING
    name = f"{due_ms}/{topic}/{partition}/{offset}" if is_waiting else f"{log_topic}/{log_partition}/{log_offset}"
    raw = key_bytes if key_bytes is not None else None if key is None else key.encode()
    return LetterRow(
        name, state, kind, team, topic, partition, offset, target, raw, attempt, due_ms, failed_ms, first_failed_ms, exception,
        cause, message, frames, fingerprint, group, policy, reason, lineage, consumer_group, size, bool(behind), action, label,
    )  # fmt: skip
