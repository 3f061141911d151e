"""What an edit or a patch changes in a letter, as lines of a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

import orjson

from retry.delay_queue.envelopes import Entry


def differences(before: Entry, after: Entry, shown: Callable[[bytes], bytes | None] | None = None) -> list[str]:
    """Lines of headers and of the value that differ, with two around them; JSON is laid out, so that a field is a line.

    Args:
      shown: tells the JSON of values that are framed for a schema registry.
    """
    former, new = (list(_format_entry(each, shown)) for each in (before, after))
    return list(difflib.unified_diff(former, new, "before", "after", lineterm="", n=2))


def _format_entry(entry: Entry, shown: Callable[[bytes], bytes | None] | None) -> Iterator[str]:
    for name, value in entry.headers:
        yield f"{name}: {_format_value(value)}"
    if entry.value is None:
        yield "no value"
        return
    value = (shown(entry.value) if shown else None) or entry.value
    try:
        yield from orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2).decode().splitlines()
    except orjson.JSONDecodeError:
        yield from _format_value(value).splitlines()


def _format_value(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"{len(raw)} bytes, hexadecimal: {raw.hex()}"
