"""Whatever is imported is declared, or is a part of what something declared is used by: nothing is there by accident."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

ROOT = Path(__file__).parents[3]
OWN = {"backoff", "retry"}
# What these take or give is of the other package, which they cannot do without.
PARTS = {
    "anyio": "starlette", "markupsafe": "jinja2", "mcp-types": "mcp", "mode-streaming": "faust-streaming",
    "py4j": "pyspark", "yarl": "faust-streaming",
}  # fmt: skip


def list_imported(path: Path) -> set[str]:
    """The packages that a module imports, wherever in it."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name.partition(".")[0] for name in found}


def list_declared() -> set[str]:
    """The distributions that the project depends on, with its extras but for that of developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (lines for extra, lines in project["optional-dependencies"].items() if extra != "dev")
    lines = [*project["dependencies"], *(line for lines in extras for line in lines)]
    return {normalise(re.split(r"[\s<>=!~;\[]", line)[0]) for line in lines}


def list_required(distribution: str) -> set[str]:
    """List what a distribution always brings."""
    return {normalise(re.split(r"[\s<>=!~;\[(]", line)[0]) for line in requires(distribution) or () if "extra ==" not in line}


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_of_a_package_that_is_declared() -> None:
    files = [path for own in OWN for path in (ROOT / own).rglob("*.py")]
    names = set[str]().union(*map(list_imported, files)) - OWN - sys.stdlib_module_names
    distributions, known = packages_distributions(), list_declared()
    assert {part for part, whole in PARTS.items() if part not in list_required(whole)} == set()
    known |= PARTS.keys()
    undeclared = {name for name in names if not {normalise(each) for each in distributions.get(name, ())} & known}
    assert {"httpx2", "msgspec", "pyspark"} <= names, "this test looks at what is imported"
    assert undeclared == set()
