"""What all commands have in common: help by headings, suggestions, options that stand anywhere, contexts and warnings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from retry.__main__ import main
from retry.cli.contexts import apply_context, read_contexts
from retry.errors import SettingsInvalid
from retry.settings import read_settings

CONTEXTS = """
contexts:
  dev: {bootstrap_servers: "127.0.0.1:1"}
  prod:
    bootstrap_servers: "broker-1:9092,broker-2:9092"
    app_id: shop
    shards: 16
    kafka_security_protocol: SASL_SSL
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts; what a command sets in the environment is put back."""
    monkeypatch.setattr(os, "environ", {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)})
    for name in [name for name in os.environ if name.startswith("RETRY_")]:
        del os.environ[name]
    file = tmp_path / "dead-letter-retry" / "contexts.yaml"
    file.parent.mkdir()
    file.write_text(CONTEXTS)
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="retry")


def test_help_has_every_command_once_under_one_heading() -> None:
    listed = [each for commands in main.headings.values() for each in commands]
    assert {each.name for each in listed} == set(main.commands)
    assert len(listed) == len(main.commands)
    told = run("-h").output
    assert [line for line in told.splitlines() if line and not line.startswith(" ")][2:] == [f"{each}:" for each in main.headings]
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("words", ["", "letters", "failures", "act", "act retry team:a", "actions undo", "worker", "topics"])
def test_h_asks_for_help_everywhere(words: str) -> None:
    told = run(*words.split(), "-h")
    assert (told.exit_code, told.output.startswith("Usage: retry")) == (0, True), told.output
    assert told.output == run(*words.split(), "--help").output


def test_what_follows_two_dashes_is_no_option() -> None:
    told = run("act", "retry", "--dry-run", "--yes", "--", "-h", "--context", "nowhere")
    assert (told.exit_code, "give --dry-run or --yes" in told.output) == (2, True), told.output


@pytest.mark.parametrize(("words", "near"), [("leters", "letters"), ("actions uno", "undo"), ("topics chek", "check")])
def test_a_command_that_there_is_not_is_told_with_the_one_that_may_be_meant(words: str, near: str) -> None:
    told = run(*words.split())
    assert told.exit_code == 2
    assert f"No such command {words.split()[-1]!r}. Did you mean {near!r}?" in told.output
    assert "Did you mean" not in run("xyzzy").output


@pytest.mark.parametrize(
    "words", ["--bootstrap-servers h:1 acls", "acls --bootstrap-servers h:1", "acls --bootstrap-servers=h:1"]
)
def test_an_option_for_all_commands_may_stand_anywhere_and_goes_before_the_environment(words: str) -> None:
    os.environ["RETRY_BOOTSTRAP_SERVERS"] = "other:2"
    told = run(*words.split(), "--bootstrap-command")
    assert (told.exit_code, "--bootstrap-server h:1 " in told.output) == (0, True), told.output


def test_the_environment_goes_before_the_context_that_is_in_use(config: Path) -> None:
    assert run("context", "list").output == "  dev   127.0.0.1:1\n  prod  broker-1:9092,broker-2:9092\n"
    assert run("context", "use", "prod").output == f"context prod of {config} is in use\n"
    assert "* prod" in run("context", "list").output
    os.environ["RETRY_APP_ID"] = "mine"
    assert run("size", "--rate", "1", "--delay", "1s").exit_code == 0
    found = read_settings()
    assert (found.bootstrap_servers, found.app_id, found.shards) == ("broker-1:9092,broker-2:9092", "mine", 16)
    assert found.kafka == {"security.protocol": "SASL_SSL"}


def test_a_context_may_be_named_for_one_command(config: Path) -> None:
    other = config.rename(config.with_name("other.yaml"))
    told = run("acls", "--bootstrap-command", "--config", str(other), "--context", "dev")
    assert "--bootstrap-server 127.0.0.1:1 " in told.output
    without = run("acls", "--config", str(other))
    assert (without.exit_code, "say which context: --context dev or prod" in without.output) == (1, True)
    wrong = run("--config", str(other), "context", "use", "prd")
    assert "has no context 'prd', only dev, prod; did you mean prod?" in wrong.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contexts: {a: {shard: 3}}", "contexts.a.shard: no such setting, did you mean RETRY_SHARDS?"),
        ("contexts: {a: {shards: [3]}}", "got `array` - at `$.contexts"),
        ("context: {}", "unknown field `context`"),
        ("hunter2: [", "it is no YAML"),
    ],
)
def test_a_file_that_is_none_of_contexts_is_told_with_its_fault(text: str, told: str, config: Path) -> None:
    config.write_text(text)
    with pytest.raises(SettingsInvalid) as refused:
        read_contexts(config)
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_without_a_file_nothing_is_set(config: Path) -> None:
    before = dict(os.environ)
    config.unlink()
    apply_context(None, None)
    assert os.environ == before
    with pytest.raises(SettingsInvalid, match="No such file"):
        apply_context(None, "prod")


def test_a_variable_of_another_program_is_a_warning_and_no_end() -> None:
    os.environ["RETRY_BOOTSTRAP_SERVRES"] = "b:1"
    told = run("size", "--rate", "1", "--delay", "1s")
    assert told.exit_code == 0
    assert told.stderr == "RETRY_BOOTSTRAP_SERVRES is passed over: no such setting, did you mean RETRY_BOOTSTRAP_SERVERS?\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_told_how_to_ask_for_completions(shell: str) -> None:
    told = run("completion", shell)
    assert (told.exit_code, f"_RETRY_COMPLETE={shell}_complete" in told.output) == (0, True), told.output


def test_commands_are_completed() -> None:
    os.environ |= {"_RETRY_COMPLETE": "bash_complete", "COMP_WORDS": "retry lett", "COMP_CWORD": "1"}
    assert run().output == "plain,letters\n"
