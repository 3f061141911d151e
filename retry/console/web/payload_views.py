"""A payload as a person reads it: as JSON, by its schema, by a decoder, as text, as hex. Of what is large, a part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from retry.clock import iso
from retry.console.reading.decoders import DecodedText
from retry.printable import escape_json, escape_lines
from retry.scheduling.tasks.framed_values import DecodedValue

# What a payload looks like without what it says: names, types and lengths.

_LINES_MAX, _DEPTH_MAX, _BYTES_MAX = 200, 12, 1 << 20


class ShapeLine(NamedTuple):
    """One part of a value: its path, such as `$.order.id`, where `$` is all of it, and its type and length."""

    path: str
    says: str


def list_value_parts(value: bytes | None, json_text: bytes | None = None) -> list[ShapeLine]:
    """List the parts of a value, at most 200; of a framed value those of the JSON that it reads as.

    >>> [tuple(line) for line in list_value_parts(b'{"id": 4711, "to": ["a", null]}')]
    [('$', 'object of 2'), ('$.id', 'number'), ('$.to', 'list of 2'), ('$.to[]', 'text of 1, null')]
    """
    if value is None:
        return [ShapeLine("$", "null: the record has no value")]
    text = value if json_text is None else json_text
    try:
        read = orjson.loads(text) if len(text) <= _BYTES_MAX else None
    except orjson.JSONDecodeError:
        read = None
    if read is None and text.strip() != b"null":
        kind = "text" if _is_text(value[:_BYTES_MAX]) else "bytes"
        return [ShapeLine("$", f"{kind} of {len(value):,} bytes")]
    lines = list(_describe_values("$", [read], 0))
    return lines if len(lines) <= _LINES_MAX else [*lines[:_LINES_MAX], ShapeLine("…", f"{len(lines) - _LINES_MAX:,} more parts")]


def _describe_values(path: str, values: list[Any], depth: int) -> Iterator[ShapeLine]:
    """Describe values that share a path in one line, then their members; all elements of a list share one path."""
    yield ShapeLine(path, ", ".join(dict.fromkeys(describe_type(value) for value in values[:_LINES_MAX])))
    if depth == _DEPTH_MAX:
        return
    members: dict[str, list[Any]] = {}
    elements: list[Any] = []
    for value in values:
        if isinstance(value, dict):
            for name, member in value.items():
                members.setdefault(name, []).append(member)
        elif isinstance(value, list):
            elements += value
    for name, held in members.items():
        yield from _describe_values(f"{path}.{name}", held, depth + 1)
    if elements:
        yield from _describe_values(f"{path}[]", elements, depth + 1)


def describe_type(value: Any) -> str:
    """Describe a value of JSON by its type and length, and nothing that it says."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "number"
        case str():
            return f"text of {len(value):,}"
        case list():
            return f"list of {len(value):,}"
    return f"object of {len(value):,}"


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable() or not any(byte < 9 for byte in value)
    except UnicodeDecodeError:
        return False


# A value of this many bytes is shown whole, of a larger one the beginning.
WHOLE_BYTES_MAX = 1 << 20
_PART_BYTES, _HEX_BYTES = 64 << 10, 16 << 10
_HEX_LINE = 16


class PayloadView(NamedTuple):
    """One way to read it.

    Attributes:
      name: `JSON`, `Text`, `Hex`, what its schema is of, as `Avro`, or the name of a decoder.
      text: lines of what can be printed.
      cut_at: how many bytes are shown, where that is not all.
    """

    name: str
    text: str
    cut_at: int | None = None


def list_views(value: bytes | None, schema: DecodedValue | None = None, own: DecodedText | None = None) -> list[PayloadView]:
    """List the ways in which a value can be read, the best first.

    Args:
      schema: what its schema makes of a framed value.
      own: what a decoder of the user's own makes of it.
    """
    if value is None:
        return []
    found = [_view_text(own.name, own.text.encode())] if own and not own.fault else []
    if schema is not None:
        found.append(_view_text(schema.name, schema.json))
    if len(value) <= WHOLE_BYTES_MAX and (pretty := _pretty(value)) is not None:
        found.append(PayloadView("JSON", pretty))
    part = value if len(value) <= WHOLE_BYTES_MAX else value[:_PART_BYTES]
    text = escape_lines(part.decode("utf-8", "backslashreplace"))
    found.append(PayloadView("Text", text, len(part) if len(part) < len(value) else None))
    shown = value[:_HEX_BYTES]
    found.append(PayloadView("Hex", "\n".join(_hex(shown)), len(shown) if len(shown) < len(value) else None))
    return found


def _view_text(name: str, text: bytes) -> PayloadView:
    """Text that may be JSON."""
    return PayloadView(name, _pretty(text) or escape_lines(text.decode("utf-8", "backslashreplace")))


def build_masked_view(masked: str) -> PayloadView:
    """Build the only view of a value that has some fields masked; `masked` is JSON with line breaks and indentation."""
    return PayloadView("JSON, some fields masked", escape_json(masked))


def format_header(name: str, value: bytes, *, is_known: bool) -> str:
    """Return the value of a header as text; as a number where a framework, such as Spring, wrote one as bytes.

    Args:
      is_known: whether a framework is known to write headers of this name.

    >>> format_header("kafka_dlt-original-offset", bytes([0, 0, 0, 0, 0, 0, 7, 94]), is_known=True)
    '1,886'
    """
    if is_known and len(value) in (4, 8) and not value.isalnum() and not value.decode("latin-1").isprintable():
        number = int.from_bytes(value, "big", signed=True)
        return f"{number:,}{f' ({iso(number)})' if 'timestamp' in name.lower() else ''}"
    return value.decode("utf-8", "backslashreplace")


def _pretty(text: bytes) -> str | None:
    try:
        # Not by orjson, which makes a float of a whole number that is larger than 64 bits.
        return escape_json(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def _hex(value: bytes) -> Iterator[str]:
    for at in range(0, len(value), _HEX_LINE):
        line = value[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{at:08x}  {line.hex(' '):<{3 * _HEX_LINE - 1}}  {text}"
