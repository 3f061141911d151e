"""YAML text → plain values, with the line of each. Reads what people write by hand, refuses what attackers write.

Refused: anchors and aliases (a few lines of them unfold to gigabytes), a key given twice (YAML would keep the last
one silently), keys that are not text (`on:` is a boolean to YAML), dates and tagged values, deep nesting.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import yaml

from retry.errors import PolicyFileInvalid

# YAML text → plain values, fast: what nearly every policy file is, read straight from the events of libyaml.
#
# A file of thousands of teams is read while a worker starts, and while letters wait for one that runs. Nodes take more than
# twice as long. Whatever is refused, or unusual, is left to `read`, which has the words for it.

# The format needs 9 levels; each costs the parser a few stack frames.
DEPTH_MAX = 20
KEY_CHARS_MAX = 100
TEXT = "tag:yaml.org,2002:str"
PLAIN_TAGS = frozenset({TEXT, *(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))})
_BLOCK_STYLES = frozenset("|>")


class _Unusual(Exception):
    pass


def read_plain(text: str, sections: Collection[str]) -> tuple[object, dict[str, int]] | None:
    """Read a text that holds one document: its values, and the line of each by its path; None where it must be read slowly."""
    if not yaml.__with_libyaml__:
        return None
    try:
        reader = _Reader(text)
        return reader.read(sections), reader.lines
    except (_Unusual, yaml.YAMLError, UnicodeEncodeError):
        return None


class _Reader:
    """Builds values, and their lines, from the events of libyaml; raises `_Unusual` where the text is to be read slowly."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, int] = {}
        self._next_event: Callable[[], Any] = yaml.cyaml.CParser(text).get_event  # type: ignore[attr-defined]
        self._scalars = yaml.constructor.SafeConstructor()

    def read(self, sections: Collection[str]) -> object:
        self._next_event()
        if type(self._next_event()) is yaml.StreamEndEvent:
            return None
        value = self._read_value(self._next_event(), "", 0)
        ends = [type(self._next_event()) for _ in range(2)]
        has_section = isinstance(value, dict) and (not value or any(key in value for key in sections))
        if ends != [yaml.DocumentEndEvent, yaml.StreamEndEvent] or not (has_section or not sections):
            raise _Unusual
        return value

    def _read_value(self, event: Any, path: str, depth: int) -> object:
        if event.anchor is not None or event.tag is not None or depth >= DEPTH_MAX:
            raise _Unusual
        self.lines.setdefault(path, _find_line(event))
        kind = type(event)
        if kind is yaml.ScalarEvent:
            return self._read_scalar(event)
        return self._read_mapping(path, depth) if kind is yaml.MappingStartEvent else self._read_list(path, depth)

    def _read_mapping(self, path: str, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        while type(event := self._next_event()) is not yaml.MappingEndEvent:
            if type(event) is not yaml.ScalarEvent or event.anchor is not None or _find_tag(event) != TEXT:
                raise _Unusual
            key = event.value
            if key in values or not is_key(key):
                raise _Unusual
            at = join_path(path, key)
            self.lines[at] = _find_line(event)
            values[key] = self._read_value(self._next_event(), at, depth + 1)
        return values

    def _read_list(self, path: str, depth: int) -> list[object]:
        values: list[object] = []
        while type(event := self._next_event()) is not yaml.SequenceEndEvent:
            values.append(self._read_value(event, f"{path}[{len(values)}]", depth + 1))
        return values

    def _read_scalar(self, event: Any) -> object:
        if event.style in _BLOCK_STYLES:
            # libyaml takes more for the head of one than the parser in Python does.
            raise _Unusual
        tag = _find_tag(event)
        if tag == TEXT:
            return event.value
        if tag not in PLAIN_TAGS:
            raise _Unusual
        try:
            return self._scalars.construct_object(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError):
            raise _Unusual from None


def _find_line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _find_tag(scalar: Any) -> str:
    """Find what a scalar without a tag of its own is, as `yaml.resolver.Resolver` does."""
    if scalar.tag is not None:
        raise _Unusual
    if scalar.implicit[0]:
        resolvers = yaml.SafeLoader.yaml_implicit_resolvers
        for tag, expression in (*resolvers.get(scalar.value[:1], ()), *resolvers.get(None, ())):
            if expression.match(scalar.value):
                return str(tag)
    return TEXT


def is_key(key: str) -> bool:
    """Whether it may be a key: keys stand in messages, and messages on terminals."""
    return key.isprintable() and len(key) <= KEY_CHARS_MAX


def join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


# What the parser quotes of a text besides single characters and kinds of tokens: names of tags.
_QUOTED = re.compile(r" '!.*'")


class Own(NamedTuple):
    """The service's own topics, from none of which letters or definitions are read: `internal` ones, and `parked`."""

    internal: frozenset[str]
    parked: str

    def unread(self) -> set[str]:
        return {*self.internal, self.parked}


NOBODYS = Own(frozenset(), "")


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a YAML file, and the line of each.

    Attributes:
      value: dicts, lists and scalars; None for an empty file.
      lines: path, like `teams.payments.topics[0].retry_to`, to line number from 1.
    """

    name: str
    value: object
    lines: dict[str, int] = field(repr=False)
    own: Own = NOBODYS

    def reject_path(self, path: str, reason: str) -> NoReturn:
        """Raise PolicyFileInvalid at a path. A path that the file does not have gets the line of what would hold it."""
        at = path
        while at not in self.lines and at:
            at = _parent(at)
        raise PolicyFileInvalid(self.name, self.lines.get(at, 1), path or "file", reason)


def read(text: str, name: str, sections: Collection[str] = ()) -> Document:
    """Read the values of a YAML text that holds one document; raises PolicyFileInvalid where it uses what is refused here.

    One of `sections` must be a key of the document. Else it is a wrong file, which may hold secrets, and the message quotes
    nothing.
    """
    plain = read_plain(text, sections)
    if plain is not None:
        return Document(name, *plain)
    try:
        node = _Composer(text).get_single_node()
        _demand_section(node, name, sections)
        values = _Values(name)
        return Document(name, values.convert_node(node, "") if node else None, values.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = _QUOTED.sub("", error.problem or "")
        raise PolicyFileInvalid(name, mark.line + 1 if mark else 1, "file", f"YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        # Of this one error the position counts characters of the text, not lines.
        line = text.count("\n", 0, error.position) + 1
        raise PolicyFileInvalid(name, line, "file", f"YAML: character #x{error.character:04x}") from None


def _demand_section(node: yaml.Node | None, name: str, sections: Collection[str]) -> None:
    if node is None or not sections or not node.value:
        return
    if not isinstance(node, yaml.MappingNode) or not any(key.value in sections for key, _ in node.value):
        line = node.start_mark.line + 1
        raise PolicyFileInvalid(name, line, "file", f"has none of {', '.join(sections)} at its top; is it the right file?")


class _Composer(yaml.SafeLoader):
    """Composes nodes of what was parsed in Python, slowly; refuses what unfolds to more than was written."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if event.anchor is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not allowed", problem_mark=event.start_mark)
        if self._depth >= DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem=f"more than {DEPTH_MAX} levels deep", problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Values:
    """Builds plain values from nodes and keeps the line of each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._scalars = yaml.constructor.SafeConstructor()
        self.lines: dict[str, int] = {}

    def convert_node(self, node: yaml.Node, path: str) -> object:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.convert_node(item, f"{path}[{n}]") for n, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag != TEXT:
                raise PolicyFileInvalid(self._name, line, path or "file", f"the key {key!r:.60} is not text; quote it")
            if not is_key(key):
                reason = f"the key {key!r:.60} is not up to {KEY_CHARS_MAX} printable characters"
                raise PolicyFileInvalid(self._name, line, path or "file", reason)
            if key in values:
                raise PolicyFileInvalid(self._name, line, join_path(path, key), "is given twice; keep one")
            self.lines[join_path(path, key)] = line
            values[key] = self.convert_node(value_node, join_path(path, key))
        return values

    def _scalar(self, node: yaml.Node, path: str) -> object:
        line = node.start_mark.line + 1
        if node.tag not in PLAIN_TAGS:
            reason = f"{node.value!r:.60} is not plain text, a number, true or false; quote it"
            raise PolicyFileInvalid(self._name, line, path, reason)
        try:
            return self._scalars.construct_object(node)
        except (ValueError, KeyError):
            raise PolicyFileInvalid(self._name, line, path, f"{node.value!r:.60} is not what its tag says") from None


def suggest_word(word: str, words: Iterable[str]) -> str:
    """Build the end of a message about an unknown word: which one was probably meant, or nothing.

    >>> suggest_word("max_attempt", ["max_age", "max_attempts"])
    '; did you mean max_attempts?'
    """
    close = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {close[0]}?" if close and close[0] != word else ""


def _parent(path: str) -> str:
    return re.sub(r"(^|\.)[^.\[\]]*$|\[[^\[\]]*\]$", "", path)
