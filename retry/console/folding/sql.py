"""SQLite as the console uses it: many rows as one, and what SQL is asked to do with texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from retry.operations.letter_filter.syntax import Glob

# What SQL is asked to do with texts, so that a filter means there exactly what it means of one letter in Python.
#
# SQLite's own functions do nearly all of it: one of Python's for each row waits for the interpreter each time.

_parts = msgspec.json.Decoder(tuple[str, ...]).decode
_SPECIAL = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


def encode_headers(headers: Sequence[tuple[str, str | None]]) -> str:
    return orjson.dumps(headers).decode()


def encode_glob(glob: Glob) -> str:
    return msgspec.json.encode(glob.parts).decode()


def translate_glob(parts: Sequence[str]) -> str:
    """Translate a glob, given as the parts between its stars, into the syntax of SQLite's GLOB."""
    return "*".join(part.translate(_SPECIAL) for part in parts)


def register_functions(connection: sqlite3.Connection) -> None:
    connection.create_function("like_glob", 2, _like_glob, deterministic=True)
    connection.create_function("has_glob", 2, _has_glob, deterministic=True)


def casefold_message(text: str | None) -> str | None:
    """Casefold a message as trigrams need it, and replace NUL, which would end the text there; None stays None."""
    return None if text is None else text.casefold().replace("\0", "\1")


@lru_cache(256)
def _compile_glob(glob: str) -> Callable[[str], bool]:
    return Glob(_parts(glob)).compile_whole()


@lru_cache(256)
def _anywhere(glob: str) -> Callable[[str], bool]:
    return Glob(_parts(glob)).anywhere()


def _like_glob(glob: str, text: str | None) -> bool:
    return text is not None and _compile_glob(glob)(text)


def _has_glob(glob: str, text: str | None) -> bool:
    return text is not None and _anywhere(glob)(text)


# Many rows of SQLite as one: between any two steps of SQLite another thread may take the interpreter, and keeps it for a while.
#
# So rows come out as JSON, all in one step, and SQLite works while others have the interpreter.

def select_rows(
    connection: sqlite3.Connection, columns: Sequence[str], rest: str, parameters: Sequence[object] = ()
) -> list[Any]:
    """Return the rows of `SELECT columns rest`, each as a list; columns are SQL expressions, and none may be a BLOB."""
    names = [f"c{n}" for n in range(len(columns))]
    inner = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
    statement = f"SELECT json_group_array(json_array({', '.join(names)})) FROM (SELECT {inner} {rest})"
    return list(orjson.loads(connection.execute(statement, parameters).fetchone()[0]))


def select_column(connection: sqlite3.Connection, name: str, rest: str, parameters: Sequence[object] = ()) -> list[Any]:
    """Return the values of one column, which must not be a BLOB, from `SELECT name rest`."""
    statement = f"SELECT json_group_array(c0) FROM (SELECT {name} AS c0 {rest})"
    return list(orjson.loads(connection.execute(statement, parameters).fetchone()[0]))


def insert_rows(connection: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]], conflict: str = "") -> None:
    """Insert rows `into` a table with its columns; for the process that folds, where JSON would take twice as long."""
    if rows:
        connection.executemany(f"INSERT INTO {into} VALUES ({', '.join('?' * len(rows[0]))}) {conflict}", rows)


def bind_ids(numbers: Iterable[object]) -> str:
    return orjson.dumps(list(numbers)).decode()
