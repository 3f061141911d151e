"""A payload as a person reads it: as JSON, by its Avro schema, as text, as hex. Of what is large, a part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from retry.printable import escape_unprintable, visible_json

# A value of this many bytes is shown whole, of a larger one the beginning.
WHOLE_BYTES_MAX = 1 << 20
_PART_BYTES, _HEX_BYTES = 64 << 10, 16 << 10
_HEX_LINE = 16
_LINE_CHARS_MAX = 10_000


class PayloadView(NamedTuple):
    """One way to read it.

    Attributes:
      name: `JSON`, `Avro`, `Text` or `Hex`.
      text: lines of what can be printed.
      cut_at: how many bytes are shown, where that is not all.
    """

    name: str
    text: str
    cut_at: int | None = None


def views(value: bytes | None, framed_json: bytes | None = None) -> list[PayloadView]:
    """The ways in which a value can be read, the best first.

    Args:
      framed_json: what the schema of a framed value makes of it.
    """
    if value is None:
        return []
    found = [PayloadView("Avro", _pretty(framed_json) or "")] if framed_json is not None else []
    if len(value) <= WHOLE_BYTES_MAX and (pretty := _pretty(value)) is not None:
        found.append(PayloadView("JSON", pretty))
    part = value if len(value) <= WHOLE_BYTES_MAX else value[:_PART_BYTES]
    text = "\n".join(escape_unprintable(line, _LINE_CHARS_MAX) for line in part.decode("utf-8", "backslashreplace").split("\n"))
    found.append(PayloadView("Text", text, len(part) if len(part) < len(value) else None))
    shown = value[:_HEX_BYTES]
    found.append(PayloadView("Hex", "\n".join(_hex(shown)), len(shown) if len(shown) < len(value) else None))
    return found


def _pretty(text: bytes) -> str | None:
    try:
        # Not by orjson, which makes a float of a whole number that is larger than 64 bits.
        return visible_json(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def _hex(value: bytes) -> Iterator[str]:
    for at in range(0, len(value), _HEX_LINE):
        line = value[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{at:08x}  {line.hex(' '):<{3 * _HEX_LINE - 1}}  {text}"
