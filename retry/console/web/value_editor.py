"""The value of a letter as a person edits it: the text to begin with, what is wrong with what was typed, and the difference.

JSON is laid out for people, and written back token by token: no number is rounded, and no member is lost or moved.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import orjson

from retry.errors import ActionRefused, SchemaUnavailable
from retry.printable import escape_json
from retry.scheduling.tasks.framed_values import FramedValues

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
    return _write(list(map(escape_json, _TOKEN.findall(text))), LAID_OUT)


def write_back(text: str, former: str) -> str:
    """Write valid JSON as the former text was spaced, or compact where that had no style; unchanged texts stay as they were.

    >>> write_back('{"a": 1, "b": [2]}', '{"a":1}'), write_back('{"a":2}', '{"a": 1, "b": 2}')
    ('{"a":1,"b":[2]}', '{"a": 2}')
    """
    tokens, body = _TOKEN.findall(former), former.strip()
    style = next((each for each in _STYLES if _write(tokens, each) == body), COMPACT)
    # What was escaped to be read.
    raw = {escape_json(token): token for token in tokens if not token.isprintable()}
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


# What a form carries: typed text is up to three times as long there.
_VALUE_BYTES_MAX, _HEX_BYTES_MAX, _LINES_MAX = 128 << 10, 16 << 10, 5_000
_HEX_LINE, _CONTEXT_LINES = 16, 3
JSON, SCHEMA, TEXT, HEX = "JSON", "JSON by its schema", "text", "bytes, hexadecimal"


class ValueInvalid(ValueError):
    """Text that is no value for this letter; `position` is the character at which it ends to be one, None if unknown."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


class DifferenceLine(NamedTuple):
    """A line of the difference: `mark` is `+`, `-`, a space where it stays, or `…` for lines that stay and are left out."""

    mark: str
    text: str


class EditedValue(NamedTuple):
    """Text that somebody typed as a value, and what was found in it.

    Attributes:
      fault: what is wrong with it, in a sentence; empty where it can be saved.
      position: the character at which the fault is; None where that is not known.
      lines: the difference to the value as it is.
    """

    fault: str
    position: int | None
    lines: list[DifferenceLine]

    @property
    def changed_lines(self) -> int:
        return sum(line.mark in "+-" for line in self.lines)


class ValueEditor:
    """The editor of one value; raises ValueInvalid where the value can be edited in no form that is kept byte for byte.

    Attributes:
      form: `JSON`, `SCHEMA`, `TEXT` or `HEX`.
      text: what is typed into.
    """

    def __init__(self, value: bytes | None, framed: FramedValues | None, framed_json: bytes | None) -> None:
        if value is None:
            raise ValueInvalid("The record has no value: there is nothing to be edited")
        self._value, self._framed = value, framed
        framed_text = None if framed_json is None else _read_text(framed_json)
        if framed_text is not None and _find_json_fault(framed_text) is None:
            self.form, self.text = SCHEMA, lay_out(framed_text)
        elif (text := _read_text(value)) is not None:
            self._former = text
            self.form = JSON if _find_json_fault(text) is None else TEXT
            self.text = lay_out(text) if self.form == JSON else text.replace("\r\n", "\n")
        else:
            self.form, self.text = HEX, "\n".join(value[at : at + _HEX_LINE].hex(" ") for at in range(0, len(value), _HEX_LINE))
        bytes_max = _HEX_BYTES_MAX if self.form == HEX else _VALUE_BYTES_MAX
        if len(value) > bytes_max or len(self.text) > 2 * bytes_max + _HEX_BYTES_MAX * 3:
            raise ValueInvalid(f"A value of {len(value):,} bytes is too large for this page: use `retry act edit --value-file`")

    def read(self, typed: str) -> bytes:
        """Read what the value is to be: of `SCHEMA`, JSON that is encoded when it is saved; raises ValueInvalid."""
        text = typed.replace("\r\n", "\n")
        if text == self.text:
            raise ValueInvalid("Nothing is changed yet")
        if self.form == HEX:
            return _read_hex(text)
        if self.form == TEXT:
            return (text.replace("\n", "\r\n") if "\r\n" in self._former else text).encode()
        if (wrong := _find_json_fault(text)) is not None:
            raise wrong
        if self.form == JSON:
            return write_back(text, self._former).encode()
        return text.encode()

    def check(self, typed: str) -> EditedValue:
        """Look at what was typed, by the schema of the value where it has one; shows the difference whatever is wrong."""
        text = typed.replace("\r\n", "\n")
        is_json = self.form in (JSON, SCHEMA) and _find_json_fault(text) is None
        lines = list(_compare(self.text, lay_out(text) if is_json else text))
        fault, position = "", None
        try:
            value = self.read(text)
            if self.form == SCHEMA and self._framed is not None:
                self._framed.encode_json(self._value, value)
            elif value == self._value:
                fault = "Nothing is changed but the layout, which is kept as it was"
        except ValueInvalid as wrong:
            fault, position = str(wrong), wrong.position
        except (ActionRefused, SchemaUnavailable) as wrong:
            fault = str(wrong)
        return EditedValue(fault, position, lines)


def _read_text(value: bytes) -> str | None:
    """The value as text that a form gives back as it is; None where characters of it would be lost, or not be seen."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if _find_json_fault(text) is None:
        return text
    lines = text.replace("\r\n", "\n")
    is_kept = "\r" not in text or lines.replace("\n", "\r\n") == text
    return text if is_kept and lines.replace("\n", "").replace("\t", "").isprintable() else None


def _read_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as wrong:
        raise ValueInvalid(f"This is not hexadecimal: {wrong}") from None


def _find_json_fault(text: str) -> ValueInvalid | None:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        reason = f"Line {wrong.lineno}, column {wrong.colno}: this is not JSON, {wrong.msg}"
        return ValueInvalid(reason, min(wrong.pos, len(text)))
    return None


def _compare(before: str, after: str) -> Iterator[DifferenceLine]:
    former, new = before.split("\n"), after.split("\n")
    if max(len(former), len(new)) > _LINES_MAX:
        yield DifferenceLine("…", f"the difference of more than {_LINES_MAX:,} lines is not shown")
        return
    # The first two lines are names of files.
    for line in islice(difflib.unified_diff(former, new, lineterm="", n=_CONTEXT_LINES), 2, None):
        yield DifferenceLine("…", "") if line.startswith("@@") else DifferenceLine(line[0], line[1:])
