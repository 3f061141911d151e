"""What an edit or a patch changes in a letter, as lines of a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import orjson

from retry.delay_queue.envelopes import Entry


def differences(before: Entry, after: Entry) -> list[str]:
    """Lines of headers and of the value that differ, with two around them; JSON is laid out, so that a field is a line."""
    return list(difflib.unified_diff(list(_lines(before)), list(_lines(after)), "before", "after", lineterm="", n=2))


def _lines(entry: Entry) -> Iterator[str]:
    for name, value in entry.headers:
        yield f"{name}: {_text(value)}"
    if entry.value is None:
        yield "no value"
        return
    try:
        yield from orjson.dumps(orjson.loads(entry.value), option=orjson.OPT_INDENT_2).decode().splitlines()
    except orjson.JSONDecodeError:
        yield from _text(entry.value).splitlines()


def _text(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"{len(raw)} bytes, hexadecimal: {raw.hex()}"
