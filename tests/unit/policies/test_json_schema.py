"""The published JSON Schema is that of the structures, takes every policy file that is shown, and refuses what has other keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from retry.policies import policy_file
from retry.policies.schema import build_schema
from tests.support.chart import ROOT
from tests.support.generated_docs import SCHEMA, policy_file_schema

FILES = [ROOT / "examples" / "policies.yaml", ROOT / "examples" / "deploy-timers" / "policies.yaml"]
# Whole files that pages show.
SHOWN = [
    block
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if re.search(r"^teams:", block, re.MULTILINE)
]


def faults(text: str) -> list[str]:
    return [error.json_path for error in Draft202012Validator(build_schema()).iter_errors(yaml.safe_load(text))]


def is_accepted(text: str) -> bool:
    try:
        policy_file.parse(text, "policies.yaml")
    except policy_file.PolicyFileInvalid:
        return False
    return True


def test_what_is_published_is_what_the_structures_say() -> None:
    Draft202012Validator.check_schema(build_schema())
    assert SCHEMA.read_text() == policy_file_schema(), "make docs"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_examples_name_the_schema_in_their_first_line_and_keep_to_it(file: Path) -> None:
    begun = re.match(r"# yaml-language-server: \$schema=(\S+)\n", file.read_text())
    assert begun
    assert (file.parent / begun[1]).resolve() == SCHEMA
    assert faults(file.read_text()) == []


def test_every_file_that_a_page_shows_keeps_to_it() -> None:
    taken = [block for block in SHOWN if is_accepted(block)]
    assert len(taken) >= 10
    assert [block for block in taken if faults(block)] == []


TOPIC: dict[str, Any] = {"dead_letters": "a.DLT", "retry_to": "a"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_attempt", 3), ("max_attempts", -1), ("max_age", "3 days"), ("jitter", "some"), ("old_timestamp", "later"),
        ("backoff", {"kind": "constant"}), ("backoff", {"kind": "linear", "delay": "1s"}), ("honour_retry_at", "yes"),
        ("rules", [{"exceptions": "*.X"}]), ("ordered", 1),
    ],
)  # fmt: skip
def test_what_the_service_refuses_an_editor_marks(key: str, value: object) -> None:
    text = yaml.safe_dump({"teams": {"t": {"topics": [{**TOPIC, key: value}]}}})
    assert not is_accepted(text)
    assert len(faults(text)) == 1
    assert is_accepted(yaml.safe_dump({"teams": {"t": {"topics": [TOPIC]}}}))
