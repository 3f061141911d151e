"""Every test is of exactly one size, and those of `make test` start no program but Python and Java."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain, combinations

import pytest
from _pytest.mark.expression import Expression

from tests.support.chart import ROOT

MARKS = ("check", "essential", "slow", "release")
EVERY_SET_OF_MARKS = list(chain.from_iterable(combinations(MARKS, count) for count in range(len(MARKS) + 1)))
FILES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in (ROOT / "tests").rglob("*.py")}
TREES = {name: ast.parse(file.read_text()) for name, file in FILES.items()}


def expression(target: str) -> Expression:
    """Read what a make target selects by marks."""
    recipe = (ROOT / "Makefile").read_text().partition(f"\n{target}:")[2].partition("\n\n")[0]
    return Expression.compile(re.findall(r"-m ['\"](.+?)['\"]", recipe)[0])


@pytest.mark.parametrize("marks", EVERY_SET_OF_MARKS, ids=lambda marks: "-".join(marks) or "none")
def test_a_test_is_of_one_size_whatever_its_marks(marks: tuple[str, ...]) -> None:
    sizes = {target: expression(target).evaluate(marks.__contains__) for target in ("test", "check", "faults", "check-release")}
    assert sum(sizes.values()) == 1, sizes


def test_what_starts_other_programs_is_not_of_the_first_size() -> None:
    starters = {name for name, tree in TREES.items() if starts_a_program(tree)}
    assert "tests.support.tools" in starters
    users = {name for name in FILES if name.rpartition(".")[2].startswith("test_") and starters & list_reached(name)}
    assert any("test_chart" in name for name in users)
    assert [name for name in sorted(users) if not of_a_later_size(TREES[name])] == []


def iterate_imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


# What is imported from a module may be a module.
IMPORTED = {name: [each for each in iterate_imported(tree) if each in TREES] for name, tree in TREES.items()}
# Tests of the benchmarks' arithmetic import what they run, too.
IMPORTED |= {name: [] for name in TREES if name.startswith("tests.bench.")}


def starts_a_program(tree: ast.Module) -> bool:
    """Whether a module looks for a program, or runs one that it names."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = ast.unparse(call.func).rpartition(".")[2]
        first = call.args[0] if call.args else None
        named = isinstance(first, ast.List) and first.elts and isinstance(first.elts[0], ast.Constant)
        if called == "which" or (called in ("run", "Popen", "check_output") and named):
            return True
    return False


def list_reached(name: str) -> set[str]:
    """A module and all that it imports of the tests."""
    seen, todo = set(), [name]
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += IMPORTED[module]
    return seen


def of_a_later_size(tree: ast.Module) -> bool:
    """Whether each test of a module is marked so, or the module is and none of them is essential."""
    whole = any(isinstance(node, ast.Assign) and is_marked(node, "pytestmark", "check|slow|release") for node in tree.body)
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    decorators = ["\n".join(map(ast.unparse, test.decorator_list)) for test in tests]
    if any("mark.essential" in each for each in decorators):
        return False
    return whole or all(re.search(r"mark\.(check|slow|release)\b", each) for each in decorators)


def is_marked(assigned: ast.Assign, name: str, marks: str) -> bool:
    return ast.unparse(assigned.targets[0]) == name and bool(re.search(rf"mark\.({marks})\b", ast.unparse(assigned.value)))
