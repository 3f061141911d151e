"""libyaml reads policy files fast, and reads what the parser in Python reads, line by line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from retry.policies import yaml_document

TEXTS = [
    "teams:\n  shop:\n    topics:\n    - {dead_letters: orders.DLT, retry_to: orders, ordered: true}\n",
    "a: [1, 2.5, no, ~, 'x', \"y\\n\"]\nb: >\n  folded\n  text\nc: |\n  kept\n  text\n",
    "# only a comment\n---\nkey: 'it''s'\n",
    "ключ: значение\n'^.*\\.DLT$': {x: 0x1f, y: 012, z: 1_000}\n",
]


def nodes(node: yaml.Node) -> Any:
    """A node as plain values: its tag, its line and what it holds."""
    if isinstance(node, yaml.MappingNode):
        return node.tag, node.start_mark.line, [(nodes(key), nodes(value)) for key, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        return node.tag, node.start_mark.line, [nodes(each) for each in node.value]
    return node.tag, node.start_mark.line, node.value


def test_libyaml_is_there_so_that_a_large_file_is_read_in_seconds() -> None:
    assert yaml_document._FastComposer is not yaml_document._Composer


@pytest.mark.parametrize("text", TEXTS)
def test_both_parsers_find_the_same_values_in_the_same_lines(text: str) -> None:
    fast, slow = (made(text).get_single_node() for made in (yaml_document._FastComposer, yaml_document._Composer))
    assert nodes(fast) == nodes(slow)
