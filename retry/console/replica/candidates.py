"""Letters that a term finds through an index of its own: by key, or by what stands in the message."""

from __future__ import annotations

import sqlite3

from retry.console.replica import filter_sql
from retry.console.replica.sql_functions import casefold_message
from retry.console.replica.sql_rows import column
from retry.operations.letter_filter.glob import Glob
from retry.operations.letter_filter.syntax import Filter, Term

_TRIGRAMS_MAX = 24
# Whether most messages have a trigram is asked of so many letters that follow on each other, in so many places.
_SAMPLE, _SAMPLES = 128, 3
_LAST_CHAR = 0x10FFFF


def candidates(connection: sqlite3.Connection, meant: Filter, most: int) -> list[int] | None:
    """Ids of the letters that come into question; None where no term of the filter leaves so few of them."""
    for part in filter_sql.conjuncts(meant):
        if isinstance(part, Term) and isinstance(part.value, Glob) and part.field in ("key", "message"):
            found = (_by_key if part.field == "key" else _by_message)(connection, part.value, most)
            if found is not None and len(found) <= most:
                return found
    return None


def _by_key(connection: sqlite3.Connection, value: Glob, most: int) -> list[int] | None:
    first = value.parts[0]
    if len(value.parts) == 1:
        return column(connection, "id", "FROM letters WHERE key = ? LIMIT ?", (first, most + 1))
    if first and (beyond := _successor(first)) is not None:
        return column(connection, "id", "FROM letters WHERE key >= ? AND key < ? LIMIT ?", (first, beyond, most + 1))
    return None


def _by_message(connection: sqlite3.Connection, value: Glob, most: int) -> list[int] | None:
    folded = [casefold_message(part) or "" for part in value.parts if "\0" not in part]
    trigrams = dict.fromkeys(part[n : n + 3] for part in folded for n in range(len(part) - 2))
    if not trigrams:
        return None
    quoted = ['"' + trigram.replace('"', '""') + '"' for trigram in list(trigrams)[:_TRIGRAMS_MAX]]
    wanted = " AND ".join(_telling(connection, quoted))
    return column(connection, "rowid", "FROM message_text WHERE message_text MATCH ? LIMIT ?", (wanted, most + 1))


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
    count: int = connection.execute(statement, (trigram, begin, begin + _SAMPLE - 1)).fetchone()[0]
    return count > _SAMPLE // 2


def _successor(prefix: str) -> str | None:
    """The least text that is greater than all that begin so."""
    last = ord(prefix[-1]) + 1
    if last > _LAST_CHAR:
        return None
    # Half characters of UTF-16 stand in no text of SQLite.
    return prefix[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)
