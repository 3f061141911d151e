"""`retry` and `backoff` are also names of popular packages: here they must be ours, and ours alone."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlparse

import pytest
from packaging.specifiers import SpecifierSet

from retry import distribution as own
from tests.support.chart import ROOT

OURS = "dead-letter-retry"
NAMES = ("retry", "backoff")


def find_installed() -> Distribution:
    return distribution(OURS)


def roots(found: Distribution) -> set[Path]:
    """List where the distribution's packages lie: among its files, or in the checkout that it is an editable install of."""
    direct = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlparse(direct.get("url", ""))
    checkout = {Path(unquote(url.path)).resolve()} if url.scheme == "file" else set()
    return checkout | {Path(str(found.locate_file(""))).resolve()}


def test_our_distribution_is_installed() -> None:
    assert find_installed().metadata["Name"] == OURS


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_claims_the_name(name: str) -> None:
    # An editable install lists no packages, so ours need not be named; nobody else may be.
    assert set(packages_distributions().get(name, [])) <= {OURS}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_imported_is_ours(name: str) -> None:
    file = Path(importlib.import_module(name).__file__ or "").resolve()
    assert file.parent.parent in roots(find_installed())


def test_the_name_is_the_same_wherever_it_is_said() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = {importlib.import_module(name).DISTRIBUTION for name in NAMES}
    assert {project["name"], own.NAME, OURS} == said == {OURS}


def test_each_python_that_may_install_it_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    allowed = SpecifierSet(project["requires-python"])
    assert named == {f"3.{minor}" for minor in range(40) if f"3.{minor}" in allowed}
    assert all((ROOT / name / "py.typed").is_file() for name in NAMES)


def test_no_page_and_no_message_asks_an_index_for_it() -> None:
    files = [ROOT / "README.md", *(file for top in ("docs", "retry", "charts") for file in (ROOT / top).rglob("*.[mp]*"))]
    texts = {file: file.read_text() for file in files if file.suffix in (".md", ".py")}
    assert len(texts) > 300
    assert [file for file, text in texts.items() if f"install '{OURS}" in text or f"install {OURS}[" in text] == []
    assert all(extra in own.describe_extra(extra) for extra in ("analytics", "otel"))


@pytest.mark.parametrize("name", NAMES)
def test_a_command_says_in_one_sentence_that_another_package_is_in_its_place(name: str, tmp_path: Path) -> None:
    (tmp_path / "backoff").mkdir()
    (tmp_path / "backoff" / "__init__.py").write_text("def expo(): ...\n")
    # Another `retry` lies over ours in the same folder, where it takes the place of `__init__.py` alone.
    (tmp_path / "retry").mkdir()
    (tmp_path / "retry" / "__init__.py").write_text(f"__path__.append({str(ROOT / 'retry')!r})\n")
    (own_name,) = set(NAMES) - {name}
    text = (ROOT / own_name / "__init__.py").read_text()
    (tmp_path / own_name / "__init__.py").write_text(f"{text}__path__.append({str(ROOT / own_name)!r})\n")
    code = "import runpy; runpy.run_module('retry', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, "size"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"`{name}` is another package here ({tmp_path / name / '__init__.py'}); dead-letter-retry has")
    assert done.stderr.count("\n") == 1


def test_a_package_that_another_one_took_along_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own.find_foreign_package() == ""
    monkeypatch.setitem(sys.modules, "backoff", ModuleType("backoff"))
    assert own.find_foreign_package().startswith("`backoff` is not whole here: another package of that name was here;")
    with pytest.raises(SystemExit, match="environment of its own"):
        own.demand_own_packages()
