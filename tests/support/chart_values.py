"""The chart's values as a table: names and what is allowed from the schema, defaults and meanings from `values.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.support.chart import CHART
from tests.support.markdown import table

_LINE = re.compile(r"^( *)(\w+):[^#]*?(?:(?<=\s)# (.*))?$")
_KINDS = {"boolean": "true, false", "array": "list", "object": "map", "string": "text"}
# What every part has, and is said once: of the workers.
_COMMON = frozenset({
    "extraEnv", "extraVolumes", "extraVolumeMounts", "podAnnotations", "podLabels", "nodeSelector", "tolerations", "affinity",
    "priorityClassName",
})  # fmt: skip
_CAPITAL = re.compile("(?=[A-Z])")


class Value(NamedTuple):
    """One value of the chart that is set as a whole."""

    path: str
    default: object
    allowed: str
    meaning: str


def list_values() -> list[Value]:
    """List every value, but for what other parts have as the workers have it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = (CHART / "values.yaml").read_text()
    meanings = _read_meanings(text)
    defaults = yaml.safe_load(text)
    return [
        Value(path, _find_default(defaults, path), _describe_allowed(part, schema["$defs"]), _find_meaning(meanings, path))
        for path, part in _walk(schema["properties"])
        if path != "global" and (path.startswith("worker.") or path.partition(".")[2] not in _COMMON)
    ]  # fmt: skip


def values_table() -> str:
    rows = ((f"`{value.path}`", _show(value.default), value.allowed, value.meaning) for value in list_values())
    return table(("value", "default", "allowed", "meaning"), rows)


def _walk(properties: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, part in properties.items():
        if "properties" in part and not (prefix and {"name", "key"} >= part["properties"].keys()):
            yield from _walk(part["properties"], f"{prefix}{name}.")
        else:
            yield prefix + name, part


def _read_meanings(text: str) -> dict[str, str]:
    """Read the comment behind each key, by its path."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _LINE.match(line):
            indent, name, meaning = len(match[1]), match[2], match[3]
            path = [each for each in path if each[0] < indent] + [(indent, name)]
            found[".".join(each for _, each in path)] = meaning or ""
    return found


def _find_meaning(meanings: dict[str, str], path: str) -> str:
    part, _, rest = path.partition(".")
    if part == "settings":
        return f"`RETRY_{_CAPITAL.sub(r'_', rest).upper()}`"
    # Of what is written in one line the comment is said once.
    return meanings.get(path, "") or meanings.get(path.rpartition(".")[0], "") * (path not in meanings)


def _find_default(defaults: Any, path: str) -> object:
    for name in path.split("."):
        defaults = defaults[name]
    return defaults


def _describe_allowed(part: dict[str, Any], definitions: dict[str, Any]) -> str:
    part = definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    if "enum" in part:
        return ", ".join(f"`{each}`" for each in part["enum"])
    if "minimum" in part and "maximum" in part:
        return f"{part['minimum']:,} to {part['maximum']:,}"
    kinds = part.get("type", "")
    return _KINDS.get(kinds, "") if isinstance(kinds, str) else ""


def _show(default: object) -> str:
    return "" if default in ("", None) else f"`{json.dumps(default)}`"
