"""A path into a JSON value → the text that stands there. Only what the path passes through is looked at."""

from __future__ import annotations

import msgspec

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


def text_at(value: bytes | None, path: str) -> str | None:
    """A string without its quotes, or a number, true, false or null as it is written.

    None where the value is no JSON, has nothing at the path, or has an object or a list there.

    >>> text_at(b'{"items": [{"id": 17}]}', "$.items.0.id"), text_at(b'{"a": {}}', "$.a")
    ('17', None)
    """
    raw = value or b""
    try:
        for name in path.split(".")[1:]:
            raw = bytes(_elements(raw)[int(name)] if _is_list(raw) and name.isdecimal() else _members(raw)[name])
        # Whole, so that broken JSON is none.
        msgspec.json.decode(raw, type=msgspec.Raw)
        first = raw.strip()[:1]
        return None if first in (b"{", b"[") else _text(raw) if first == b'"' else raw.strip().decode()
    except (msgspec.MsgspecError, KeyError, IndexError, RecursionError, ValueError):
        return None


def _is_list(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"["
