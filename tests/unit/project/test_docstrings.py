"""The first line of a docstring says something to a reader who has never seen the project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted(path for package in ("backoff", "release", "retry", "tests") for path in (ROOT / package).rglob("*.py"))
WORDS_MIN = 4
# Words that point to something which the reader has not seen.
_POINTS = re.compile(r"(The same|This|It|Its|That|Those|These|As|Of|By|For|What|Whose|Where)\b", re.IGNORECASE)


def find_riddles(source: str) -> Iterator[str]:
    """List names and first lines of docstrings with fewer than four words, or that begin with a pronoun or a preposition."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
            first = text.splitlines()[0]
            if len(first.split()) < WORDS_MIN or _POINTS.match(first):
                yield f"{node.lineno} {node.name}: {first}"


@pytest.mark.parametrize("first", ["In words.", "The same for people.", "By shard, the newest.", "What was told of it."])
def test_a_riddle_is_found(first: str) -> None:
    assert list(find_riddles(f'def told():\n    """{first}"""\n')) == [f"1 told: {first}"]


def test_no_docstring_begins_with_a_riddle() -> None:
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in MODULES}
    assert [f"{path}:{riddle}" for path, text in texts.items() for riddle in find_riddles(text)] == []
