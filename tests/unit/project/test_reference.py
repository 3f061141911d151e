"""What the pages of docs/reference that are written by hand list is what the code has."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import msgspec
import pytest

from backoff.parse import DEFAULT
from retry.dead_letters.frameworks.detection import DIALECTS
from retry.dead_letters.retry_headers import OURS, RETRY_AT_MS
from retry.intake import build_entry
from retry.policies import conditions, schema
from retry.policies.policy_file import parse
from retry.scheduling.messages import schedule_request
from retry.telemetry import call_records, offset_records, outcomes
from tests.support.generated_docs import DOCS

WORDS_MAX = 50


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    return page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a text's tables, heads left out."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line]


def list_quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_the_policy_file_of_the_page_loads_and_has_the_defaults() -> None:
    example = page("policy-file.md").partition("```yaml\n")[2].partition("```")[0]
    route = parse(example, "policy-file.md").route("payments.orders.DLT")
    assert replace(route.default_plan.policy, calendar=None) == DEFAULT
    assert route.default_plan.policy.calendar is not None
    assert [rule.plan.park for rule in route.rules] == [True, False, False]


def test_every_key_of_a_policy_file_is_listed_with_the_sections_that_may_have_it() -> None:
    read = {*conditions._READERS} - {"null_value"}
    sections = {"defaults": schema.Defaults, "team": schema.Team, "topic": schema.Topic, "rule": schema.RuleSection}
    allowed: dict[str, list[str]] = {}
    for name, struct in sections.items():
        for field in msgspec.structs.fields(struct):
            # Of a rule these are conditions, which have a table of their own.
            if not (struct is schema.RuleSection and field.name in conditions._READERS):
                allowed.setdefault(field.name, []).append(name)
    listed = {row[0].strip("`"): row[-1].split(", ") for row in rows(section("policy-file.md", "Keys"))[1:]}
    assert listed == allowed
    shown = {row[0].strip("`").partition(":")[0] for row in rows(section("policy-file.md", "Conditions of a rule"))[1:]}
    assert shown == read | {"null_value"}


def test_every_family_and_every_header_of_ours_is_listed() -> None:
    named = {family for row in rows(page("frameworks.md").partition("\n## ")[0])[1:] for family in list_quoted(row[0])}
    assert named == {*(dialect.family for dialect in DIALECTS), "celery", "dramatiq", "unknown"}
    headers = {row[0].strip("`") for row in rows(page("headers.md").partition("\n## ")[0])[1:]}
    assert headers == OURS - {RETRY_AT_MS}


def test_every_reason_to_park_a_schedule_is_listed() -> None:
    listed = {reason for row in rows(section("parked-reasons.md", "Scheduled messages"))[1:] for reason in list_quoted(row[0])}
    assert listed == {reason.value for reason in schedule_request.RefusedBecause}


def test_every_reason_to_park_is_one_that_the_code_writes_and_none_of_decide_is_missing() -> None:
    listed = {reason for row in rows(page("parked-reasons.md")) for reason in list_quoted(row[0])}
    files = [path for root in ("retry", "backoff") for path in (DOCS.parent / root).rglob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    assert not {reason for reason in listed if f'"{reason}"' not in code}
    assert {*re.findall(r'"([a-z]+_[a-z_]+|rule)"', inspect.getsource(build_entry))} <= listed


@pytest.mark.parametrize(
    ("module", "fields"),
    [
        (
            outcomes,
            ["v", "taken_ms", "action", "action_kind", "letters", *outcomes.SharedFields._fields, *outcomes.LetterFields._fields],
        ),
        (offset_records, [*offset_records.Position.__struct_fields__]),
        (call_records, [*call_records.Called.__struct_fields__]),
    ],
)
def test_the_table_of_a_record_lists_its_fields(module: object, fields: list[str]) -> None:
    listed = [field for row in rows(module.__doc__ or "")[1:] for field in re.findall(r"`(\w+)`", row[0])]
    assert sorted(listed) == sorted(fields)


def test_the_glossary_is_short_and_defines_each_word_once() -> None:
    words = [word for row in rows(page("glossary.md")) for word in re.findall(r"\*\*(.+?)\*\*", row[0])]
    assert len(set(words)) == len(words)
    assert 0 < len(words) <= WORDS_MAX
