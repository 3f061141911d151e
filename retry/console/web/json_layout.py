"""JSON laid out for people, and written back token by token: no number is rounded, and no member is lost or moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from retry.printable import visible_json

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENS, _CLOSES, _SEPARATES = ("{", "["), ("}", "]"), (",",)


class Style(NamedTuple):
    """How JSON is spaced: what stands behind a comma and a colon, and how far lines are indented; None is one line."""

    comma: str
    colon: str
    indent: int | None = None


LAID_OUT, COMPACT = Style(",", ": ", 2), Style(",", ":")
# As serializers write it, the most usual first.
_STYLES = (COMPACT, Style(", ", ": "), LAID_OUT, Style(",", ": ", 4), Style(", ", ":"), Style(",", ": "))


def lay_out(text: str) -> str:
    """Write valid JSON a member a line; what is not printable in its texts is escaped.

    >>> print(lay_out('{"a":1.10,"b":[],"c":[12345678901234567890123]}'))
    {
      "a": 1.10,
      "b": [],
      "c": [
        12345678901234567890123
      ]
    }
    """
    return _write(list(map(visible_json, _TOKEN.findall(text))), LAID_OUT)


def write_back(text: str, former: str) -> str:
    """Write valid JSON as the former text was spaced, or compact where that had no style; unchanged texts stay as they were.

    >>> write_back('{"a": 1, "b": [2]}', '{"a":1}'), write_back('{"a":2}', '{"a": 1, "b": 2}')
    ('{"a":1,"b":[2]}', '{"a": 2}')
    """
    tokens, body = _TOKEN.findall(former), former.strip()
    style = next((each for each in _STYLES if _write(tokens, each) == body), COMPACT)
    # What was escaped to be read.
    raw = {visible_json(token): token for token in tokens if not token.isprintable()}
    begins = former.index(body) if body else 0
    written = _write([raw.get(token, token) for token in _TOKEN.findall(text)], style)
    return former[:begins] + written + former[begins + len(body) :]


def _write(tokens: list[str], style: Style) -> str:
    return "".join(_write_tokens(tokens, style))


def _write_tokens(tokens: list[str], style: Style) -> Iterator[str]:
    depth = 0
    for token, following in pairwise([*tokens, ""]):
        opens, is_empty = token in _OPENS, following in _CLOSES
        yield {",": style.comma, ":": style.colon}.get(token, token)
        if opens and not is_empty:
            depth += 1
        if is_empty and not opens:
            depth -= 1
        breaks = token in _SEPARATES or (opens and not is_empty) or (is_empty and not opens)
        if style.indent is not None and breaks:
            yield "\n" + " " * (style.indent * depth)
