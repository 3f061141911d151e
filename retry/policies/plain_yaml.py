"""YAML text → plain values, fast: what nearly every policy file is, read straight from the events of libyaml.

A file of thousands of teams is read while a worker starts, and while letters wait for one that runs. Nodes take more than twice
as long. Whatever is refused, or unusual, is left to `retry.policies.yaml_document`, which has the words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import yaml

# The format needs 9 levels; each costs the parser a few stack frames.
DEPTH_MAX = 20
KEY_CHARS_MAX = 100
TEXT = "tag:yaml.org,2002:str"
PLAIN_TAGS = frozenset({TEXT, *(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))})
_BLOCK_STYLES = frozenset("|>")


class _Unusual(Exception):
    pass


def read_plain(text: str, sections: Collection[str]) -> tuple[object, dict[str, int]] | None:
    """Read a text that holds one document: its values, and the line of each by its path; None where it must be read slowly.

    Args:
      sections: one of them must be a key of the document, if it has keys.
    """
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
        """Read the values of the only document, which is a mapping that has one of these keys, if it has any."""
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
            at = join(path, key)
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


def join(path: str, key: str) -> str:
    """Build the path of a key."""
    return f"{path}.{key}" if path else key
