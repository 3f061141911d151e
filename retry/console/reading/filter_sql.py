"""A filter → a condition of SQL over letters `l` and their cells `c`, with bound parameters: it holds of the same letters as
`retry.operations.letter_filter.predicate`.

What is not known is null there, and then no term holds, so that its opposite does: a term is never null itself.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Sequence
from math import inf
from typing import NamedTuple

from retry.console.folding.letter_record import RESTING_SORT_MIN, is_kept
from retry.console.folding.regrouping import PART
from retry.console.folding.sql import casefold_message, encode_glob, encode_headers, select_column, translate_glob
from retry.console.reading.action_outcomes import select_failed_lineages
from retry.errors import FilterInvalid
from retry.operations.letter_filter.fields import FAILED_AGAIN, GROUP
from retry.operations.letter_filter.predicate import bound_at
from retry.operations.letter_filter.syntax import AllOf, AnyOf, Filter, Glob, Not, Range, Term

_CELL_COLUMNS: dict[str, tuple[str, ...]] = {
    "state": ("c.state",),
    "team": ("c.team",),
    "topic": ("c.topic",),
    "exception": ("c.exception", "c.thrown", "c.cause"),
    "cause": ("c.cause",),
    "consumer-group": ("c.consumer_group",),
    "fingerprint": ("c.fingerprint",),
    "version": ("c.version",),
    "attempt": ("c.attempt",),
    GROUP: ("c.group_id",),
}

# What is looked up in the records of letters.
OF_PAYLOAD = frozenset({"value", "header"})
# Of UTF-16; no text of SQLite has one.
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")

_AS_NUL = "\0\1"
_RANGE_COLUMNS = {"attempt": "c.attempt", "partition": "l.partition", "due": "l.sort", "failed": "l.failed_ms"}


class Condition(NamedTuple):
    """Part of a statement, and its parameters in their order."""

    sql: str
    parameters: tuple[object, ...] = ()


ALWAYS, NEVER = Condition("1"), Condition("0")


def build_condition(letter_filter: Filter, now_ms: int) -> Condition:
    """Whether a letter is meant, as of this moment."""
    if isinstance(letter_filter, Term):
        return _term(letter_filter, now_ms)
    if isinstance(letter_filter, Not):
        inner = build_condition(letter_filter.of, now_ms)
        return Condition(f"NOT {inner.sql}", inner.parameters)
    word = "AND" if isinstance(letter_filter, AllOf) else "OR"
    return join_conditions(word, [build_condition(each, now_ms) for each in letter_filter.of])


def build_cell_condition(letter_filter: Filter, now_ms: int, holds: bool = True) -> Condition:
    """Return the condition on cells whose letters may match a filter, or fail it; terms that cells do not decide count as met."""
    if isinstance(letter_filter, Term):
        if letter_filter.field not in _CELL_COLUMNS:
            return ALWAYS
        found = _term(letter_filter, now_ms)
        return found if holds else Condition(f"NOT {found.sql}", found.parameters)
    if isinstance(letter_filter, Not):
        return build_cell_condition(letter_filter.of, now_ms, not holds)
    word = "AND" if isinstance(letter_filter, AllOf) == holds else "OR"
    return join_conditions(word, [build_cell_condition(each, now_ms, holds) for each in letter_filter.of])


def is_of_cells(letter_filter: Filter) -> bool:
    return all(term.field in _CELL_COLUMNS for term in terms(letter_filter))


def is_of_cells_and_due(letter_filter: Filter) -> bool:
    """Whether cells decide, and besides when a letter is due: of each cell then all from one moment to another."""
    return all(_is_due_range(each) or is_of_cells(each) for each in conjuncts(letter_filter))


def _is_due_range(letter_filter: Filter) -> bool:
    return isinstance(letter_filter, Term) and letter_filter.field == "due" and isinstance(letter_filter.value, Range)


def terms(letter_filter: Filter) -> list[Term]:
    if isinstance(letter_filter, Term):
        return [letter_filter]
    parts = [letter_filter.of] if isinstance(letter_filter, Not) else letter_filter.of
    return [term for each in parts for term in terms(each)]


def asks_payload(letter_filter: Filter) -> bool:
    """Whether headers and values have to be read to tell which letters a filter means."""
    return any(term.field in OF_PAYLOAD for term in terms(letter_filter))


def conjuncts(letter_filter: Filter) -> Sequence[Filter]:
    return letter_filter.of if isinstance(letter_filter, AllOf) else (letter_filter,)


def refuse_unkept(letter_filter: Filter, long_headers: Collection[str]) -> None:
    """Refuse what only payloads and headers in Kafka tell; raises FilterInvalid, which names the term."""
    for term in terms(letter_filter):
        if term.field == "value":
            raise FilterInvalid(1, f"{term} asks for payloads, which stay in Kafka: look through the letters that the rest means")
        if term.field == "header" and (not is_kept(term.name) or term.name in long_headers):
            raise FilterInvalid(
                1, f"{term} asks for a header that stays in Kafka: look through the letters that the rest means; what "
                "frameworks say is found by exception, cause, message and consumer-group"
            )  # fmt: skip


def find_earliest_due_ms(letter_filter: Filter, now_ms: int) -> float:
    """Compute the earliest due time (ms) of all letters that a filter can select; minus infinity where it sets none.

    The counterpart is `predicate.find_latest_due_ms`.
    """
    if isinstance(letter_filter, AllOf):
        return max((find_earliest_due_ms(each, now_ms) for each in letter_filter.of), default=-inf)
    if isinstance(letter_filter, AnyOf):
        return min(find_earliest_due_ms(each, now_ms) for each in letter_filter.of)
    if isinstance(letter_filter, Not) or letter_filter.field != "due" or not isinstance(letter_filter.value, Range):
        return -inf
    low = bound_at(letter_filter.value.low, now_ms)
    return -inf if low is None else low


def _term(term: Term, now_ms: int) -> Condition:
    if isinstance(term.value, Range):
        return _range(term.field, term.value, now_ms)
    if any(map(_HALF_CHARACTER.search, (term.name, *term.value.parts))):
        return NEVER
    if term.field == "message":
        return _message(term.value)
    if term.field == GROUP:
        return _match_group(term.value.parts[0])
    if term.field == FAILED_AGAIN:
        query, parameters = select_failed_lineages(term.value.parts[0])
        return Condition(f"(l.lineage IS NOT NULL AND l.lineage IN ({query}))", parameters)
    if term.field == "header":
        return _header(term.name, term.value)
    return join_conditions("OR", [_glob(column, term.value) for column in _CELL_COLUMNS.get(term.field, ("l.key",))])


def _match_group(group: str) -> Condition:
    """A group, and what it was split into, whose ids begin with its own."""
    parts = group + PART, group + chr(ord(PART) + 1)
    return Condition("ifnull(c.group_id = ? OR (c.group_id >= ? AND c.group_id < ?), 0)", (group, *parts))


def _glob(column: str, value: Glob) -> Condition:
    if len(value.parts) == 1:
        return Condition(f"({column} IS ?)", (value.parts[0],))
    # To SQLite's own GLOB a NUL is the end of a text, and of a pattern.
    if any("\0" in part for part in value.parts):
        return Condition(f"like_glob(?, {column})", (encode_glob(value),))
    own = f"CASE WHEN instr({column}, char(0)) THEN like_glob(?, {column}) ELSE {column} GLOB ? END"
    return Condition(f"ifnull({own}, 0)", (encode_glob(value), translate_glob(value.parts)))


def _message(value: Glob) -> Condition:
    if any(char in part for part in value.parts for char in _AS_NUL):
        return Condition("has_glob(?, l.message)", (encode_glob(value),))
    folded = [part.casefold() for part in value.parts]
    return Condition("ifnull(coalesce(l.folded, lower(l.message)) GLOB ?, 0)", (translate_glob(("", *folded, "")),))


def _header(name: str, value: Glob) -> Condition:
    if len(value.parts) == 1:
        return Condition("ifnull(instr(l.headers, ?) > 0, 0)", (encode_headers([(name, value.parts[0])])[1:-1],))
    begin = encode_headers([(name, "")])[1:-3]
    of_one = _glob("json_extract(h.value, '$[1]')", value)
    one = f"EXISTS (SELECT 1 FROM json_each(l.headers) h WHERE json_extract(h.value, '$[0]') IS ? AND {of_one.sql})"
    return Condition(f"(ifnull(instr(l.headers, ?) > 0, 0) AND {one})", (begin, name, *of_one.parameters))


def _range(field: str, value: Range, now_ms: int) -> Condition:
    low, high = bound_at(value.low, now_ms), bound_at(value.high, now_ms)
    column = _RANGE_COLUMNS.get(field, "(? - l.first_failed_ms)")
    now = (now_ms,) if field == "age" else ()
    # What waits is sorted by when it is due, and indexes have that: its row need not be read. What rests is never due.
    found = [Condition("l.sort < ?", (RESTING_SORT_MIN,)) if field == "due" else Condition(f"{column} IS NOT NULL", now)]
    found += [Condition(f"{column} >= ?", (*now, low))] if low is not None else []
    found += [Condition(f"{column} <= ?", (*now, high))] if high is not None else []
    return join_conditions("AND", found)


def join_conditions(word: str, parts: Sequence[Condition]) -> Condition:
    """Join several conditions into one, with `AND` or `OR` between them; with none, `AND` is always true, `OR` never."""
    if not parts:
        return ALWAYS if word == "AND" else NEVER
    return Condition(f"({f' {word} '.join(part.sql for part in parts)})", tuple(p for part in parts for p in part.parameters))


# Letters that a term finds through an index of its own: by key, by what stands in the message, or by when they failed.

_TRIGRAMS_MAX = 24
# Whether most messages have a trigram is asked of so many letters that follow on each other, in so many places.
_SAMPLE, _SAMPLES = 128, 3
_LAST_CHAR, _EVER_MS = 0x10FFFF, 1 << 62


def find_candidate_ids(connection: sqlite3.Connection, letter_filter: Filter, most: int, now_ms: int) -> list[int] | None:
    """List the ids of all letters that a filter can select, at most `most`; None where no term leaves so few letters."""
    for part in conjuncts(letter_filter):
        if isinstance(part, Term) and isinstance(part.value, Range) and part.field == "failed":
            failed = _by_failure(connection, part.value, most, now_ms)
            if len(failed) <= most:
                return failed
        if isinstance(part, Term) and isinstance(part.value, Glob) and part.field in _INDEXED:
            found = _INDEXED[part.field](connection, part.value, most)
            if found is not None and len(found) <= most:
                return found
    return None


def _by_key(connection: sqlite3.Connection, value: Glob, most: int) -> list[int] | None:
    first = value.parts[0]
    if len(value.parts) == 1:
        return select_column(connection, "id", "FROM letters WHERE key = ? LIMIT ?", (first, most + 1))
    if first and (beyond := _successor(first)) is not None:
        return select_column(connection, "id", "FROM letters WHERE key >= ? AND key < ? LIMIT ?", (first, beyond, most + 1))
    return None


def _by_failure(connection: sqlite3.Connection, value: Range, most: int, now_ms: int) -> list[int]:
    low, high = (bound_at(bound, now_ms) for bound in (value.low, value.high))
    within = -_EVER_MS if low is None else low, _EVER_MS if high is None else high, most + 1
    rest = "FROM letters INDEXED BY letters_by_failure WHERE failed_ms >= ? AND failed_ms <= ? LIMIT ?"
    return select_column(connection, "id", rest, within)


def _by_message(connection: sqlite3.Connection, value: Glob, most: int) -> list[int] | None:
    folded = [casefold_message(part) or "" for part in value.parts if "\0" not in part]
    trigrams = dict.fromkeys(part[n : n + 3] for part in folded for n in range(len(part) - 2))
    if not trigrams:
        return None
    quoted = ['"' + trigram.replace('"', '""') + '"' for trigram in list(trigrams)[:_TRIGRAMS_MAX]]
    wanted = " AND ".join(_telling(connection, quoted))
    return select_column(connection, "rowid", "FROM message_text WHERE message_text MATCH ? LIMIT ?", (wanted, most + 1))


def _telling(connection: sqlite3.Connection, quoted: list[str]) -> list[str]:
    """Leave out trigrams that most messages have: each excludes little, and costs a walk over all. Keep all if all are so."""
    least, greatest = connection.execute("SELECT (SELECT min(id) FROM letters), (SELECT max(id) FROM letters)").fetchone()
    if least is None:
        return quoted
    begins = [least + (greatest - least) * n // _SAMPLES for n in range(_SAMPLES)]
    found = [trigram for trigram in quoted if not all(_is_common(connection, trigram, begin) for begin in begins)]
    return found or quoted


def _is_common(connection: sqlite3.Connection, trigram: str, begin: int) -> bool:
    """Whether half of some letters have a trigram."""
    statement = "SELECT count(*) FROM message_text WHERE message_text MATCH ? AND rowid BETWEEN ? AND ?"
    return connection.execute(statement, (trigram, begin, begin + _SAMPLE - 1)).fetchone()[0] > _SAMPLE // 2


def _by_lineage(connection: sqlite3.Connection, value: Glob, most: int) -> list[int] | None:
    query, parameters = select_failed_lineages(value.parts[0])
    return select_column(connection, "id", f"FROM letters WHERE lineage IN ({query}) LIMIT ?", (*parameters, most + 1))


_INDEXED = {"key": _by_key, "message": _by_message, FAILED_AGAIN: _by_lineage}


def _successor(prefix: str) -> str | None:
    """The least text that is greater than all that begin so."""
    last = ord(prefix[-1]) + 1
    if last > _LAST_CHAR:
        return None
    # Half characters of UTF-16 stand in no text of SQLite.
    return prefix[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)
