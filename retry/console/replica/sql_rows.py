"""Many rows of SQLite as one: between any two rows another thread may take the interpreter, and keeps it for a while."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson


def rows(connection: sqlite3.Connection, columns: Sequence[str], rest: str, parameters: Sequence[object] = ()) -> list[Any]:
    """What `SELECT columns rest` gives, as lists; none of the columns is a BLOB.

    Args:
      columns: expressions of SQL.
      rest: from `FROM` on.
    """
    names = [f"c{n}" for n in range(len(columns))]
    inner = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
    statement = f"SELECT json_group_array(json_array({', '.join(names)})) FROM (SELECT {inner} {rest})"
    return list(orjson.loads(connection.execute(statement, parameters).fetchone()[0]))


def column(connection: sqlite3.Connection, name: str, rest: str, parameters: Sequence[object] = ()) -> list[Any]:
    """The same of one column, as they are."""
    statement = f"SELECT json_group_array(c0) FROM (SELECT {name} AS c0 {rest})"
    return list(orjson.loads(connection.execute(statement, parameters).fetchone()[0]))
