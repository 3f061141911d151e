"""Every page of docs/ can be read to its end, and what it links to or names is there."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*DOCS, ROOT / "README.md"]
AT_THE_ROOT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
LINKING = [*DOCS, *AT_THE_ROOT, *sorted((ROOT / "charts").rglob("*.md"))]
MOST_LINES, MOST_COLUMNS = 250, 120
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors that Git hosts make of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=relative)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert not broken, f"{relative(page)} links to what is not there: {broken}"


def test_every_page_is_reached_by_links_from_the_readme() -> None:
    reached, new = set[Path](), {ROOT / "README.md"}
    while new:
        page = new.pop()
        reached.add(page)
        targets = {(page.parent / target).resolve() for target, _ in _LINK.findall(page.read_text(encoding="utf-8")) if target}
        new |= {target for target in targets if target.suffix == ".md" and target.exists()} - reached
    assert not [relative(page) for page in DOCS if page not in reached]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_a_page_has_at_most_250_lines_of_at_most_120_characters(page: Path) -> None:
    lines = len(page.read_text(encoding="utf-8").splitlines())
    # Table rows cannot be wrapped, and what a program prints is shown as it is.
    long = [line[:40] for line in prose(page).splitlines() if len(line) > MOST_COLUMNS and not line.startswith("|")]
    assert lines <= MOST_LINES, f"{relative(page)} has {lines} lines: split it, one reader a page"
    assert not long, f"{relative(page)}: wrap at {MOST_COLUMNS} characters what begins with {long}"


@pytest.mark.parametrize("page", LINKING, ids=relative)
def test_files_modules_and_tests_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`([^`\s]+)`", prose(page))
    absent = [name for name in named if not (_is_file(name) and _is_module(name) and _is_test(name))]
    assert not absent, f"{relative(page)} names what is not there: {absent}"


def _is_file(name: str) -> bool:
    """Or nothing that could be one."""
    return not re.fullmatch(r"(retry|tests|docs|examples|charts)/[\w./]+", name) or (ROOT / name).exists()


def _is_module(name: str) -> bool:
    """Or nothing that could be one. Behind a module there may be a name of its own."""
    if not re.fullmatch(r"(retry|backoff|tests)(\.\w+)+", name):
        return True
    parts = name.split(".")
    module, last = ROOT.joinpath(*parts), parts[-1]
    above = module.parent.with_suffix(".py") if module.parent.with_suffix(".py").exists() else module.parent / "__init__.py"
    there = module.is_dir() or module.with_suffix(".py").exists()
    return there or (above.exists() and bool(re.search(rf"\b{last}\b", above.read_text(encoding="utf-8"))))


def _is_test(name: str) -> bool:
    """Or nothing that could be one; … stands for the rest of its name."""
    if not name.startswith("test_") or name.endswith(".py"):
        return True
    pattern = re.compile(re.escape(name).replace("…", r"\w*"))
    return any(pattern.fullmatch(test) for test in _tests())


@functools.cache
def _tests() -> frozenset[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return frozenset(test for file in files for test in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))
