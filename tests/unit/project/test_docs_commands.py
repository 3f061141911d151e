"""Every `retry` command that a page shows is one that there is; those that need no broker print what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from retry.__main__ import main
from retry.console.notifications import rule_file
from retry.policies.policy_file import parse
from tests.support.pages import PAGES, ROOT, Block, blocks, printed_as_shown, retry_commands

EXAMPLES = ROOT / "docs" / "tutorial" / "policies-by-example.md"


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Each command, with the page that shows it."""
    for page in PAGES:
        for block in blocks(page):
            yield from ((str(page.relative_to(ROOT)), command) for command in retry_commands(block.shell()))


@pytest.mark.parametrize(
    ("page", "command"), shown_commands(), ids=lambda each: each if isinstance(each, str) else " ".join(each)
)
def test_a_command_of_a_page_is_one_that_there_is(page: str, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # As its page sets it; there is no need to name the file again in each command.
    monkeypatch.setenv("RETRY_POLICIES", "policies.yaml")
    try:
        parse_only(main, command)
    except click.UsageError as wrong:
        pytest.fail(f"{page} shows `retry {' '.join(command)}`: {wrong.format_message()}")


def parse_only(group: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Parse a command as click does before it runs, and do not run it; files that a reader has need not be here.

    Raises:
      click.UsageError: no such command, no such option, an argument too many or too few.
    """
    # With its own settings, of which options that ask for help are remembered by each command that is parsed.
    context = click.Context(group, info_name=group.name, parent=parent, **group.context_settings)
    if isinstance(group, click.Group) and words and (command := group.get_command(context, words[0])):
        parse_only(command, words[1:], context)
        return
    if isinstance(group, click.Group) and not group.invoke_without_command:
        raise click.UsageError(f"no such command: {' '.join(words)}")
    try:
        group.make_context(group.name, list(words), parent)
    except click.MissingParameter:
        raise
    except click.BadParameter as wrong:
        if not (wrong.param and isinstance(wrong.param.type, click.Path | click.File)):
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_that_a_sentence_names_is_one_that_there_is(page: Path) -> None:
    sentences = page.read_text(encoding="utf-8")
    assert not [named for named in re.findall(r"`retry ([^`]+)`", sentences) if not is_there(named.split()) and named != "--help"]


def is_there(words: list[str]) -> bool:
    """Whether a command and its options are there; what stands for a value, as N or TOPIC, may be anything."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and (inner := command.get_command(click.Context(command), words[0])):
        command, words = inner, words[1:]
    options = {name for param in command.params for name in param.opts}
    wrong = [word for word in words if word.startswith("--") and word.strip("[]().,").split("=")[0] not in options]
    return not wrong and (command is not main) and not (isinstance(command, click.Group) and words[:1] and words[0].islower())


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_has_make_and_python_run_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"`make ([a-z-]+)", text)
    named += [name for block in blocks(page) for name in re.findall(r"(?m)^make ([a-z-]+)", block.shell())]
    assert set(named) <= targets
    modules = [name.replace(".", "/") for name in re.findall(r"python -m ([\w.]+)", text)]
    assert [name for name in modules if not list(ROOT.glob(f"{name}.py")) and not (ROOT / name / "__main__.py").exists()] == []


def test_a_sentence_that_names_what_is_not_there_is_found() -> None:
    assert is_there(["api", "token", "TEAM"]) and is_there(["analytics"]) and is_there(["pause", "--team", "payments"])
    assert not any(is_there(words.split()) for words in ("undo", "topics destroy", "pause --yes", "worker --fast"))


@pytest.mark.parametrize("wrong", ["entrys", "explain --soon", "policies", "explain", "pauses too many"])
def test_a_command_that_is_not_there_is_found(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parse_only(main, wrong.split())


def test_commands_are_found_behind_variables_pipes_and_comments() -> None:
    text = "A=1 retry api token TEAM > f & # retry no\nretry worker \\\n  --processes 2 >> log 2>&1 &\n"
    text += "x | retry inspect - && retry pauses"
    assert retry_commands(text) == [["api", "token", "TEAM"], ["worker", "--processes", "2"], ["inspect", "-"], ["pauses"]]


def test_each_example_of_a_policy_decides_what_its_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETRY_POLICIES", "policies.yaml")
    steps, asked = [*blocks(EXAMPLES), Block("", "")], 0
    for step, after in pairwise(steps):
        if step.language == "yaml":
            Path("policies.yaml").write_text(step.text)
        if after.language == "text":
            (command,) = retry_commands(step.text)
            printed = CliRunner().invoke(main, command).output
            assert printed_as_shown(printed, after.text), f"{step.text}\n{printed}\nand not\n{after.text}"
            asked += 1
    assert asked >= 10


@pytest.mark.parametrize("page", [page for page in PAGES if page != EXAMPLES], ids=lambda page: page.name)
def test_a_policy_file_of_a_page_can_be_used(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml" and re.search(r"^rules:", block.text, re.MULTILINE):
            assert rule_file.parse(block.text, page.name)
        elif block.language == "yaml" and re.match(r"(#.*\n)?(teams|defaults|targets|tasks):", block.text):
            assert parse(block.text, page.name)


def test_the_tests_of_a_consumer_that_a_page_shows_pass() -> None:
    (shown_tests,) = (block for block in blocks(ROOT / "docs" / "how-to" / "test-your-consumers.md") if block.file_name)
    names: dict[str, Any] = {}
    exec(compile(shown_tests.text, shown_tests.file_name, "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


def test_what_is_shown_must_be_all_that_is_printed_but_for_what_is_left_out() -> None:
    assert printed_as_shown("a\nb 1\nc\n", "a\n…\nc")
    assert printed_as_shown("due 17 ms", "due … ms")
    assert not printed_as_shown("a\nb", "a")
    assert not printed_as_shown("a.c", "abc")
