"""A page of letters: rows, count, cursor, and where there is nothing, which term excludes all."""

from __future__ import annotations

import sqlite3

from retry.console.replica import cursors, filter_sql, letter_rows
from retry.console.replica.letter_search import LetterSearch
from retry.console.replica.rows import LetterRow, Page, Scope
from retry.operations.letter_filter.syntax import Filter, all_of

PAGE_MAX = 1_000


def list_letters(
    connection: sqlite3.Connection, file_id: str, scope: Scope, meant: Filter, after: str | None, limit: int, now_ms: int
) -> Page[LetterRow]:
    """Letters soonest first, then those that rest, the newest first.

    Raises:
      CursorStale: `after` is of another list.
      FilterInvalid: it asks for what stays in Kafka.
    """
    question = f"letters {meant} {sorted(scope) if scope is not None else None}"
    position = cursors.decode(file_id, question, after)
    search = LetterSearch(connection, scope, meant, now_ms)
    found = search.find_page(position, max(1, min(limit, PAGE_MAX)))
    rows = letter_rows.read_letters_at(connection, found.letters)
    # Whoever has looked at all has counted them.
    is_whole = position is None and found.looked_to is None
    count, is_capped = (len(rows), False) if is_whole else search.count(found if position is None else None)
    is_partial = found.looked_to is not None and len(found.letters) < limit
    nothing = None if rows or position or is_partial else excluding(connection, scope, meant, now_ms)
    return Page(rows, cursors.encode(file_id, question, found.looked_to), count, is_capped, nothing, is_partial)


def excluding(connection: sqlite3.Connection, scope: Scope, meant: Filter, now_ms: int) -> str | None:
    """The term without which something would be found, where nothing is; of several one that means nothing by itself."""
    parts = filter_sql.conjuncts(meant)
    if len(parts) < 2:
        return str(meant) if parts and _means_any(connection, scope, all_of([]), now_ms) else None
    if alone := next((each for each in parts if not _means_any(connection, scope, each, now_ms)), None):
        return str(alone)
    for n, each in enumerate(parts):
        if _means_any(connection, scope, all_of([*parts[:n], *parts[n + 1 :]]), now_ms):
            return str(each)
    return None


def _means_any(connection: sqlite3.Connection, scope: Scope, meant: Filter, now_ms: int) -> bool:
    search = LetterSearch(connection, scope, meant, now_ms)
    if search.by_cells:
        return search.total > 0
    found = search.find_page(None, 1)
    return bool(found.letters) or found.looked_to is not None
