"""Makes a second wheel of the same tree, for tests of users: what they import, under a name that no other package has.

`retry` and `backoff` are names of other packages, too. In this wheel `dead_letter_retry` stands for `retry`, and
`dead_letter_retry.backoff` for `backoff`: only modules that users import, and what those import.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

NAME = "dead_letter_retry"
# What docs/how-to/test-your-consumers.md shows, and what docs/reference/promises.md promises of Python.
IMPORTED = (
    "backoff", "retry.operations.inspect", "retry.policies.policy_file", "retry.scheduling.client",
    "retry.scheduling.messages.mini", "retry.testing", "retry.testing.kafka", "retry.testing.memory_table",
)  # fmt: skip
# Of the service's own dependencies those that these modules import.
NEEDED = (
    "aiohttp", "confluent-kafka", "cryptography", "google-re2", "httptools", "msgspec", "orjson", "pyyaml", "starlette", "tzdata",
    "uvicorn", "xxhash",
)  # fmt: skip
_NAMED = re.compile(r"^(?P<before>\s*(?:>>> |\.\.\. )?(?:from|import) )(?P<name>retry|backoff)\b", re.MULTILINE)


def write_project(tree: Path, to: Path) -> None:
    """Write what the wheel is built of: its modules, and a `pyproject.toml` of the version and the bounds of the tree's own.

    Raises:
      KeyError: the tree no longer depends on one of `NEEDED`.
    """
    for file in sorted(find_modules(tree, IMPORTED).values()):
        part = file.relative_to(tree)
        copy = to / NAME / (part.relative_to("retry") if part.parts[0] == "retry" else part)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(rename_imports(file.read_text(encoding="utf-8")), encoding="utf-8")
    (to / NAME / "py.typed").touch()
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {re.split(r"[\s<>=!~;\[]", line)[0]: line for line in project["dependencies"]}
    (to / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n"
        f"[project]\nname = '{project['name']}-testing'\nversion = '{project['version']}'\nlicense = '{project['license']}'\n"
        f"description = 'What tests of users import of {project['name']}, beside other packages named retry and backoff.'\n"
        f"requires-python = '{project['requires-python']}'\ndependencies = {[bounds[each] for each in NEEDED]}\n"
        f"[tool.hatch.build.targets.wheel]\npackages = ['{NAME}']\n",
        encoding="utf-8",
    )


def rename_imports(text: str) -> str:
    """The text of a module, which imports the service's modules under their names in this wheel."""
    return _NAMED.sub(lambda found: found["before"] + (NAME if found["name"] == "retry" else f"{NAME}.backoff"), text)


def find_modules(tree: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Find the modules of a tree that some modules import, themselves and their packages included: name to file."""
    found, left = dict[str, Path](), [*names]
    while left:
        name = left.pop()
        folder = tree.joinpath(*name.split("."))
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if name in found or name.partition(".")[0] not in ("retry", "backoff") or not file.is_file():
            continue
        found[name] = file
        left += [name.rpartition(".")[0] or name, *list_imports(ast.parse(file.read_text(encoding="utf-8")))]
    return found


def list_imports(node: ast.AST) -> Iterator[str]:
    """List what is imported when a module runs, or in one of its functions; a name may be one in a module, and no module."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (str(child.module), *(f"{child.module}.{alias.name}" for alias in child.names))
        yield from list_imports(child)
