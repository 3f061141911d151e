"""Arguments that are no text, outputs that take no more, and files that are not what a setting says: a sentence each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retry.__main__ import main
from retry.errors import RetryError
from retry.policies import policy_file
from retry.scheduling.messages import settings
from retry.sealing import key_file

POLICIES = "teams: {a: {topics: [{dead_letters: a.DLT, retry_to: a}]}}"


def run(*arguments: str | bytes, stdout: int | str = subprocess.PIPE, **variables: str | bytes) -> tuple[int, str]:
    """Exit code and standard error of a command."""
    given = os.environ | {"RETRY_BOOTSTRAP_SERVERS": "127.0.0.1:1"} | variables
    environment = {os.fsencode(name): os.fsencode(value) for name, value in given.items()}
    out = os.open(stdout, os.O_WRONLY) if isinstance(stdout, str) else stdout
    command = [sys.executable, "-m", "retry", *arguments]
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environment, check=False, timeout=120)
    if isinstance(stdout, str):
        os.close(out)
    return done.returncode, done.stderr.decode()


@pytest.mark.check
def test_no_argument_that_is_no_utf8_reaches_any_command() -> None:
    for command in main.commands:
        code, told = run(command, b"\xff\xfe")
        assert (command, code, "argument 2 is not UTF-8 text: b'\\xff\\xfe'" in told) == (command, 2, True), told
    code, told = run("letters", RETRY_APP_ID=b"\xff")
    assert (code, told) == (1, "RETRY_APP_ID: is not UTF-8 text\n")


@pytest.mark.parametrize(
    "arguments",
    ["--help", "--version", "act --help", "acls", "size --rate 1 --delay 1s", "size --rate 1 --delay 1s --json", "keys new k",
     "inspect --file {policies} {letters}", "policies check {policies}"],
)  # fmt: skip
def test_an_output_that_takes_no_more_is_told_in_one_sentence(arguments: str, tmp_path: Path) -> None:
    policies, letters = tmp_path / "policies.yaml", tmp_path / "letters.json"
    policies.write_text(POLICIES)
    letters.write_text('{"topic": "a.DLT", "partition": 0, "offset": 1, "value": "eA=="}\n')
    words = arguments.format(policies=policies, letters=letters).split()
    code, told = run(*words, stdout="/dev/full")
    assert (code, told) == (1, "what this command says could not be written: No space left on device; write it elsewhere\n")


WRONG = [
    "hunter2", "hunter2 hunter2", "alice:hunter2", "hunter2: hunter2", "!hunter2!x hunter2", "- hunter2", "{hunter2: &hunter2 1}",
    "%hunter2\n---\na",
    "-----BEGIN PRIVATE KEY-----\nhunter2==: [hunter2\n", "a: !hunter2!hunter2 1", "'hunter2", "12.5: hunter2",
]  # fmt: skip


@pytest.mark.parametrize("content", [*map(str.encode, WRONG), b"\xffhunter2", b"hunter2\x00"])
def test_nothing_of_a_wrong_file_is_in_a_message(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "wrong"
    file.write_bytes(content)
    for load in (policy_file.load, key_file.read, lambda path: settings.read_yaml_file(str(path))):
        with pytest.raises(RetryError) as refused:
            load(file)
        assert "hunter2" not in str(refused.value)
        assert str(refused.value)
