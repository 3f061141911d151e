"""Letters as pages show them: rows, a page of them and where it goes on, and what happened to one original record."""

from __future__ import annotations

import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVarTuple

import msgspec
from xxhash import xxh3_64_hexdigest

from retry.console.folding.letter_record import WAITING, LogPlace, build_resting_place
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading import filter_sql
from retry.console.reading.letter_search import LetterSearch, Position
from retry.console.rows import DepartedLetter, LetterRow, LineageEvent, Page, Scope
from retry.delay_queue.entry_keys import parse_source
from retry.delivery.act_records import DONE
from retry.errors import CursorStale
from retry.operations.explain.search import is_location, parse_location, parse_place
from retry.operations.letter_filter.syntax import Filter, all_of

_Fields = TypeVarTuple("_Fields")

# Where a page goes on, as text that says which list it belongs to.

_CURSOR_CHARS_MAX, _POSITION_MAX = 1_000, 1 << 63
_decode_position = msgspec.msgpack.Decoder(tuple[str, int, int]).decode


def encode_cursor(file_id: str, question: str, position: tuple[int | float | str, ...] | None) -> str | None:
    """Encode the position behind a page of a list as a cursor; None where the list ends there.

    The cursor is of use only for the same replica file and the same question.
    """
    if position is None:
        return None
    return urlsafe_b64encode(msgspec.msgpack.encode((_hash_list(file_id, question), *position))).decode().rstrip("=")


def decode_cursor(file_id: str, question: str, cursor: str | None) -> tuple[int, int] | None:
    """Decode a cursor into its position; None for the beginning. Raises CursorStale where the cursor is of another list."""
    if cursor is None:
        return None
    first, second = unpack_cursor(file_id, question, cursor, _decode_position)
    if not all(-_POSITION_MAX < each < _POSITION_MAX for each in (first, second)):
        raise CursorStale
    return first, second


def unpack_cursor(file_id: str, question: str, cursor: str, decode: Callable[[bytes], tuple[str, *_Fields]]) -> tuple[*_Fields]:
    """Read what `encode_cursor` was given, of whichever form; raises CursorStale where it is of another list."""
    try:
        found = decode(urlsafe_b64decode((cursor[:_CURSOR_CHARS_MAX] + "==").encode()))
    except (ValueError, msgspec.MsgspecError) as error:
        raise CursorStale from error
    if found[0] != _hash_list(file_id, question):
        raise CursorStale
    return found[1:]


def _hash_list(file_id: str, question: str) -> str:
    return xxh3_64_hexdigest(f"{file_id}\0{question}".encode("utf-8", "surrogatepass"))


# Rows of SQLite → letters as pages show them.

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
_NAME_CHARS_MAX, _MS_MAX = 400, 1 << 62


class LogRecord(NamedTuple):
    """The place of a letter's record in Kafka: name of the topic, partition and offset."""

    topic: str
    partition: int
    offset: int


def read_letters_at(connection: sqlite3.Connection, positions: Sequence[Position]) -> list[LetterRow]:
    """Read the letters at some positions; return their rows in the order of the positions."""
    return [row for row, _ in add_records(connection, positions)]


def add_records(connection: sqlite3.Connection, positions: Sequence[Position]) -> list[tuple[LetterRow, LogRecord]]:
    ids = bind_ids(letter for _, letter in positions)
    found = select_rows(connection, _COLUMNS, f"{_FROM} WHERE l.id IN (SELECT value FROM json_each(?))", (ids,))
    ordered = sorted(found, key=lambda row: (row[1], row[0]))
    return [(_build_letter_row(row), LogRecord(row[31], row[29], row[30])) for row in ordered]


def find_letter(connection: sqlite3.Connection, name: str) -> tuple[LetterRow, LogRecord] | None:
    if not name.isascii():
        return None
    try:
        row = _find_resting(connection, name) if is_location(name) else _find_waiting(connection, name)
    except ValueError:
        return None
    return None if row is None else (_build_letter_row(row), LogRecord(row[31], row[29], row[30]))


def _find_waiting(connection: sqlite3.Connection, name: str) -> Any:
    where = parse_source(name[:_NAME_CHARS_MAX])
    condition = 'l.sort = ? AND c.state = \'waiting\' AND c.topic = ? AND l.partition = ? AND l."offset" = ?'
    found = select_rows(connection, _COLUMNS, f"{_FROM} WHERE {condition}", where) if abs(where.due_at_ms) < _MS_MAX else []
    return found[0] if found else None


def _find_resting(connection: sqlite3.Connection, name: str) -> Any:
    where = parse_location(name[:_NAME_CHARS_MAX])
    number = connection.execute("SELECT number FROM topics WHERE name = ?", (where.topic,)).fetchone()
    if number is None:
        return None
    log = LogPlace(number[0], where.partition, where.offset)
    found = select_rows(connection, _COLUMNS, f"{_FROM} WHERE l.place = ?", (build_resting_place(log),))
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


# A page of letters: rows, count, cursor, and where there is nothing, which term excludes all.

PAGE_MAX = 1_000


def list_letters(
    connection: sqlite3.Connection, file_id: str, scope: Scope, letter_filter: Filter, after: str | None, limit: int, now_ms: int
) -> Page[LetterRow]:
    """List a page of waiting letters, soonest due first, then of resting (parked, discarded) ones, newest first.

    Raises CursorStale, or FilterInvalid where the filter asks for what is only in Kafka.
    """
    question = f"letters {letter_filter} {sorted(scope) if scope is not None else None}"
    position = decode_cursor(file_id, question, after)
    search = LetterSearch(connection, scope, letter_filter, now_ms)
    found = search.find_page(position, max(1, min(limit, PAGE_MAX)))
    rows = read_letters_at(connection, found.letters)
    # Whoever has looked at all has counted them.
    is_whole = position is None and found.looked_to is None
    count, is_capped = (len(rows), False) if is_whole else search.count(found if position is None else None)
    is_partial = found.looked_to is not None and len(found.letters) < limit
    nothing = None if rows or position or is_partial else find_excluding_term(connection, scope, letter_filter, now_ms)
    return Page(rows, encode_cursor(file_id, question, found.looked_to), count, is_capped, nothing, is_partial)


def find_excluding_term(connection: sqlite3.Connection, scope: Scope, letter_filter: Filter, now_ms: int) -> str | None:
    """Find the filter term that excludes all letters: without it letters would be found; None where no single term does.

    Ask only where nothing is found. Of several terms, one that selects no letter by itself comes first.
    """
    parts = filter_sql.conjuncts(letter_filter)
    if len(parts) < 2:
        return str(letter_filter) if parts and _means_any(connection, scope, all_of([]), now_ms) else None
    if alone := next((each for each in parts if not _means_any(connection, scope, each, now_ms)), None):
        return str(alone)
    for n, each in enumerate(parts):
        if _means_any(connection, scope, all_of([*parts[:n], *parts[n + 1 :]]), now_ms):
            return str(each)
    return None


def _means_any(connection: sqlite3.Connection, scope: Scope, letter_filter: Filter, now_ms: int) -> bool:
    search = LetterSearch(connection, scope, letter_filter, now_ms)
    if search.by_cells:
        return search.total > 0
    found = search.find_page(None, 1)
    return bool(found.letters) or found.looked_to is not None


# What happened to one original record: from outcomes, from what left the changelog and who has passed it, from where it is now,
# and from the audit.

_EVENTS_MAX = 1_000
_ORDER = ("failed", "came back", "due", "action", "sent", "passed", "waiting", "parked", "discarded")


def list_events(connection: sqlite3.Connection, scope: Scope, lineage: str) -> list[LineageEvent]:
    """List the events of a lineage, the oldest first; what is due or waits in the future comes last.

    A lineage is one original failure over all its retries.
    """
    letters = read_lineage_letters(connection, scope, lineage)
    here = {letter.letter for letter in letters if letter.letter}
    found = [*_list_attempt_events(connection, scope, lineage, here), *map(_describe_present, letters)]
    places = here | {event.place for event in found if event.what in ("failed", "came back")}
    found += [event for place in sorted(places) for event in _list_action_events(connection, place)]
    return sorted(found, key=lambda each: (each.at_ms or 0, _ORDER.index(each.what)))[:_EVENTS_MAX]


def find_departed(connection: sqlite3.Connection, scope: Scope, name: str) -> DepartedLetter | None:
    """Find what outcomes tell of a letter, by where it failed or the name with which it waited.

    Return None where no outcome tells of it, or it is another team's.
    """
    if not name.isascii():
        return None
    try:
        where = parse_place(name[:_NAME_CHARS_MAX])
    except ValueError:
        return None
    row = connection.execute(
        "SELECT a.lineage, coalesce(c.team, a.team), c.cause, c.group_id FROM attempts a LEFT JOIN outcome_cells c"
        ' ON c.id = a.cell WHERE a.topic = ? AND a.partition = ? AND a."offset" = ? AND a.lineage IS NOT NULL', where,
    ).fetchone()  # fmt: skip
    if row is None or (scope is not None and row[1] not in scope):
        return None
    lineage, _, cause, group = row
    return DepartedLetter(str(where), lineage, cause, group, read_lineage_letters(connection, scope, lineage))


def read_lineage_letters(connection: sqlite3.Connection, scope: Scope, lineage: str) -> tuple[LetterRow, ...]:
    """Read the letters of a lineage that wait or rest now, as far as they are of these teams."""
    rows = connection.execute("SELECT sort, id FROM letters WHERE lineage = ? LIMIT ?", (lineage, _EVENTS_MAX)).fetchall()
    shown = read_letters_at(connection, rows)
    return tuple(letter for letter in shown if letter.state in _ORDER and (scope is None or letter.team in scope))


def _list_attempt_events(connection: sqlite3.Connection, scope: Scope, lineage: str, here: set[str]) -> Iterator[LineageEvent]:
    """Failures, when each was to be retried, was sent, and was passed by its group; `here` are letters that wait or rest."""
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
