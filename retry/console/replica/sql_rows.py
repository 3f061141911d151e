"""Many rows of SQLite as one: between any two steps of SQLite another thread may take the interpreter, and keeps it for a while.

So rows come out as JSON, all in one step, and SQLite works while others have the interpreter.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import orjson


def select_rows(
    connection: sqlite3.Connection, columns: Sequence[str], rest: str, parameters: Sequence[object] = ()
) -> list[Any]:
    """Return the rows of `SELECT columns rest`, each as a list; none of the columns may be a BLOB.

    Args:
      columns: expressions of SQL.
      rest: from `FROM` on.
    """
    names = [f"c{n}" for n in range(len(columns))]
    inner = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
    statement = f"SELECT json_group_array(json_array({', '.join(names)})) FROM (SELECT {inner} {rest})"
    return list(orjson.loads(connection.execute(statement, parameters).fetchone()[0]))


def column(connection: sqlite3.Connection, name: str, rest: str, parameters: Sequence[object] = ()) -> list[Any]:
    """Return the values of one column, which must not be a BLOB, from `SELECT name rest`."""
    statement = f"SELECT json_group_array(c0) FROM (SELECT {name} AS c0 {rest})"
    return list(orjson.loads(connection.execute(statement, parameters).fetchone()[0]))


def insert(connection: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]], conflict: str = "") -> None:
    """Insert rows, for the process that folds: it has its interpreter for itself, and no need of JSON, which takes twice as long.

    Args:
      into: what stands behind `INSERT INTO`: a table, with its columns.
      conflict: what becomes of those that are there already.
    """
    if rows:
        connection.executemany(f"INSERT INTO {into} VALUES ({', '.join('?' * len(rows[0]))}) {conflict}", rows)


def ids(numbers: Iterable[object]) -> str:
    """Numbers, or texts, as a parameter for `json_each`."""
    return orjson.dumps(list(numbers)).decode()
