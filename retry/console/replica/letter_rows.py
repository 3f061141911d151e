"""Rows of SQLite → letters as pages show them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from retry.console.replica.letter_record import WAITING, LogPlace, resting_place
from retry.console.replica.letter_search import Position
from retry.console.replica.rows import LetterRow
from retry.console.replica.sql_rows import select_rows
from retry.delay_queue.entry_keys import source_from_text
from retry.operations.explain.search import parse_location

_BEHIND = (
    "l.ordered IS NOT NULL AND EXISTS (SELECT 1 FROM letters o WHERE o.ordered >= substr(l.ordered, 1, 16)"
    " AND o.ordered < l.ordered)"
)
_COLUMNS = (
    "l.id", "l.sort", "c.state", "c.kind", "c.team", "c.topic", "l.partition", 'l."offset"', "c.target", "l.key",
    "hex(l.key_bytes)", "c.attempt", "l.due_ms", "l.failed_ms", "l.first_failed_ms", "c.exception", "c.cause", "l.message",
    "c.frames", "c.fingerprint", "c.group_id", "c.policy", "c.reason", "l.lineage", "c.consumer_group", "l.size", "l.action",
    "l.label", "l.log", "l.log_partition", "l.log_offset", "t.name",
    _BEHIND, "l.key_bytes IS NOT NULL",
)  # fmt: skip
_FROM = "FROM letters l JOIN cells c ON c.id = l.cell JOIN topics t ON t.number = l.log"
_CHARS_MAX, _MS_MAX = 400, 1 << 62


class LogRecord(NamedTuple):
    """The place of a letter's record in Kafka: name of the topic, partition and offset."""

    topic: str
    partition: int
    offset: int


def read_letters_at(connection: sqlite3.Connection, positions: Sequence[Position]) -> list[LetterRow]:
    """The letters at these positions, in their order."""
    return [row for row, _ in with_records(connection, positions)]


def with_records(connection: sqlite3.Connection, positions: Sequence[Position]) -> list[tuple[LetterRow, LogRecord]]:
    """Return the letters at these positions, in their order, each with the place of its record in Kafka."""
    ids = orjson.dumps([letter for _, letter in positions]).decode()
    found = select_rows(connection, _COLUMNS, f"{_FROM} WHERE l.id IN (SELECT value FROM json_each(?))", (ids,))
    ordered = sorted(found, key=lambda row: (row[1], row[0]))
    return [(_build_letter_row(row), LogRecord(row[31], row[29], row[30])) for row in ordered]


def find_letter(connection: sqlite3.Connection, name: str) -> tuple[LetterRow, LogRecord] | None:
    """The letter of a name, and where its record lies; None where there is none."""
    if not name.isascii():
        return None
    try:
        row = _find_resting(connection, name) if name.count("/") == 2 else _find_waiting(connection, name)
    except ValueError:
        return None
    return None if row is None else (_build_letter_row(row), LogRecord(row[31], row[29], row[30]))


def _find_waiting(connection: sqlite3.Connection, name: str) -> Any:
    where = source_from_text(name[:_CHARS_MAX])
    condition = 'l.sort = ? AND c.state = \'waiting\' AND c.topic = ? AND l.partition = ? AND l."offset" = ?'
    found = select_rows(connection, _COLUMNS, f"{_FROM} WHERE {condition}", where) if abs(where.due_at_ms) < _MS_MAX else []
    return found[0] if found else None


def _find_resting(connection: sqlite3.Connection, name: str) -> Any:
    where = parse_location(name[:_CHARS_MAX])
    number = connection.execute("SELECT number FROM topics WHERE name = ?", (where.topic,)).fetchone()
    if number is None:
        return None
    log = LogPlace(number[0], where.partition, where.offset)
    found = select_rows(connection, _COLUMNS, f"{_FROM} WHERE l.place = ?", (resting_place(log),))
    return found[0] if found else None


def _build_letter_row(row: list[Any]) -> LetterRow:
    (
        _, _, state, kind, team, topic, partition, offset, target, key, key_bytes, attempt, due_ms, failed_ms, first_failed_ms,
        exception, cause, message, frames, fingerprint, group, policy, reason, lineage, consumer_group, size, action, label,
        _, log_partition, log_offset, log_topic, behind, is_raw,
    ) = row  # fmt: skip
    is_waiting = state == WAITING
    name = f"{due_ms}/{topic}/{partition}/{offset}" if is_waiting else f"{log_topic}/{log_partition}/{log_offset}"
    raw = bytes.fromhex(key_bytes) if is_raw else None if key is None else key.encode()
    return LetterRow(
        name, state, kind, team=team, topic=topic, partition=partition, offset=offset, target=target, key=raw, attempt=attempt,
        due_at_ms=due_ms, failed_ms=failed_ms, first_failed_ms=first_failed_ms, exception=exception, cause=cause, message=message,
        frames=frames, fingerprint=fingerprint, group=group, policy=policy, reason=reason, lineage=lineage,
        consumer_group=consumer_group, size_bytes=size, behind=bool(behind), action=action, label=label,
    )  # fmt: skip
