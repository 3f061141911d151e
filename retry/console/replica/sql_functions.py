"""What SQL is asked to do with texts, so that a filter means there exactly what it means of one letter in Python."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import lru_cache

import msgspec

from retry.operations.letter_filter.glob import Glob

_headers = msgspec.msgpack.Decoder(list[tuple[str, str | None]]).decode
_parts = msgspec.json.Decoder(tuple[str, ...]).decode
encode_headers = msgspec.msgpack.Encoder().encode


def encode_glob(glob: Glob) -> str:
    """A glob as these functions take it."""
    return msgspec.json.encode(glob.parts).decode()


def register(connection: sqlite3.Connection) -> None:
    """Make the functions known to a connection."""
    connection.create_function("like_glob", 2, _like_glob, deterministic=True)
    connection.create_function("has_glob", 2, _has_glob, deterministic=True)
    connection.create_function("header_like", 3, _header_like, deterministic=True)
    connection.create_function("casefolded", 1, casefolded, deterministic=True)


def casefolded(text: str | None) -> str | None:
    """A message as its trigrams are kept: to these a NUL would be the end."""
    return None if text is None else text.casefold().replace("\0", "\1")


@lru_cache(256)
def _whole(glob: str) -> Callable[[str], bool]:
    return Glob(_parts(glob)).whole()


@lru_cache(256)
def _anywhere(glob: str) -> Callable[[str], bool]:
    return Glob(_parts(glob)).anywhere()


def _like_glob(glob: str, text: str | None) -> bool:
    return text is not None and _whole(glob)(text)


def _has_glob(glob: str, text: str | None) -> bool:
    return text is not None and _anywhere(glob)(text)


def _header_like(glob: str, name: str, headers: bytes | None) -> bool:
    if not headers:
        return False
    fits = _whole(glob)
    return any(value is not None and fits(value) for each, value in _headers(headers) if each == name)
