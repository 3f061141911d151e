"""What SQL is asked to do with texts, so that a filter means there exactly what it means of one letter in Python.

SQLite's own functions do nearly all of it: one of Python's for each row waits for the interpreter each time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
import orjson

from retry.operations.letter_filter.glob import Glob

_parts = msgspec.json.Decoder(tuple[str, ...]).decode
_SPECIAL = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


def encode_headers(headers: Sequence[tuple[str, str | None]]) -> str:
    """Headers as the replica keeps them: no text in them reads as one of the pairs."""
    return orjson.dumps(headers).decode()


def encode_glob(glob: Glob) -> str:
    """A glob as these functions take it."""
    return msgspec.json.encode(glob.parts).decode()


def own_glob(parts: Sequence[str]) -> str:
    """A glob as SQLite's GLOB takes it."""
    return "*".join(part.translate(_SPECIAL) for part in parts)


def register(connection: sqlite3.Connection) -> None:
    """Make the functions known to a connection."""
    connection.create_function("like_glob", 2, _like_glob, deterministic=True)
    connection.create_function("has_glob", 2, _has_glob, deterministic=True)


def casefold_message(text: str | None) -> str | None:
    """A message as its trigrams are kept: to these a NUL would be the end."""
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
