"""The README of a wheel leads nowhere that its reader cannot go; its metadata says where the project is, once that is known."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from release.package_page import AddressUnusable, make_links_absolute, write_package_page

ROOT = Path(__file__).parents[3]
URL = "https://git.example/owner/dead-letter-retry"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


def list_targets(text: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)]*)\)", text) if not target.startswith("#")]


def test_every_link_of_the_page_leads_to_the_files_of_its_tag(tree: Path) -> None:
    write_package_page(tree, "v1.0.0", f"{URL}/")
    targets = list_targets((tree / "README.md").read_text())
    assert len(targets) > 30
    for target in targets:
        path = re.fullmatch(rf"{re.escape(URL)}/(?:blob|raw)/v1\.0\.0/([^#]+)(?:#.*)?", target)
        assert path is not None, target
        assert (ROOT / path[1]).exists(), target
    urls = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Repository"] == URL
    assert all(url.startswith(URL) for url in urls.values())


def test_where_no_address_is_known_no_link_is_left_and_no_word_is_lost(tree: Path) -> None:
    write_package_page(tree, "v1.0.0", "")
    page = (tree / "README.md").read_text()
    assert (list_targets(page), "urls" in tomllib.loads((tree / "pyproject.toml").read_text())["project"]) == ([], False)
    before = re.sub(r"!\[[^]]*\]\([^)]*\)", "", (ROOT / "README.md").read_text())
    assert re.findall(r"\w+", page) == re.findall(r"\w+", re.sub(r"(?<=\])\((?!#)[^)]*\)", "", before))


@pytest.mark.parametrize("url", ["git.example/o/n", "http://git.example/o/n", "https://", "https://git.example/o?x=1", "file:///etc"])
def test_what_is_no_address_is_refused(tree: Path, url: str) -> None:
    before = (tree / "README.md").read_text()
    with pytest.raises(AddressUnusable, match="URL=https"):
        write_package_page(tree, "v1.0.0", url)
    assert (tree / "README.md").read_text() == before


def test_links_over_two_lines_and_addresses_are_understood() -> None:
    text = "[two\nlines](docs/a.md) <https://a.example> [out](https://a.example/x) `[code](x)`"
    assert make_links_absolute(text, "v1", URL).startswith(f"[two\nlines]({URL}/blob/v1/docs/a.md) <https://a.example> [out](https://")
