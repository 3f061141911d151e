"""What pages of docs/ show of the code is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from retry.__main__ import main
from tests.support import generated_docs
from tests.support.generated_docs import DOCS, PARTS, pages, parts_of, renew_page
from tests.support.markdown import table


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_shows_what_the_code_has(page: Path) -> None:
    text = pages()[page]
    assert text == renew_page(text), f"{page.relative_to(DOCS.parent)} differs from the code; `make docs` writes it anew"


def test_every_generated_part_stands_on_one_page() -> None:
    assert sorted(name for text in pages().values() for name in parts_of(text)) == sorted(PARTS)


def test_every_command_and_every_option_says_what_it_does() -> None:
    shown = "".join(PARTS[name]() for name in PARTS if name.startswith("commands_"))
    assert {re.match(r"### retry ([\w-]+)", line)[1] for line in shown.splitlines() if line.startswith("###")} == {*main.commands}
    assert not [line for line in shown.splitlines() if re.search(r"\| (None|\()", line)]


def test_a_page_that_says_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "# Title\n\n<!-- make docs: some -->\n\nold\n\n<!-- end -->\n\nby hand\n"
    monkeypatch.setitem(generated_docs.PARTS, "some", lambda: table(("a", "b"), [("x|y", "z")]))
    after = renew_page(page)
    assert after == page.replace("old\n", "| a | b |\n| --- | --- |\n| x\\|y | z |\n")
    assert renew_page(after) == after
