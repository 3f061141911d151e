"""The rights that `retry acls` lists are those of the settings and the policy file, no more."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from retry.__main__ import main
from retry.kafka.authorization import Right, build_commands
from retry.policies.policy_file import parse
from retry.process import acls

POLICIES = r"""
teams:
  payments:
    group: billing
    topics:
      - {dead_letters: orders.DLT, retry_to: orders.retry, park_to: orders.parked, origins: [orders]}
      - {dead_letters: {pattern: 'shop\.[a-z]+\.DLT'}, retry_to: shop.retry}
      - {dead_letters: shop.a.DLT, retry_to: shop.retry}
tasks: {topics: [definitions], allowed_targets: [runs]}
"""
# Words of the scheduler's settings and of migrate's options.
OF_OPTIONS = {
    acls.SCHEDULES, acls.HISTORY, acls.SCHEDULED_TARGETS, acls.MOVED_FROM, acls.MOVED_TO, acls.MOVED_GROUPS,
}  # fmt: skip


def print_acls(*arguments: str, tmp_path: Path, **environ: str) -> str:
    file = tmp_path / "policies.yaml"
    file.write_text(POLICIES)
    told = CliRunner().invoke(main, ["acls", *arguments], env={"RETRY_POLICIES": str(file), "RETRY_APP_ID": "app", **environ})
    assert told.exit_code == 0, told.output
    return told.output


def test_what_is_listed_names_what_the_policy_file_names_and_nothing_of_all_topics(tmp_path: Path) -> None:
    rows = [json.loads(row) for row in print_acls("--json", tmp_path=tmp_path).splitlines()]
    worker = {(r["resource"], r["pattern"], r["name"], r["operation"]) for r in rows if r["for"] == "worker"}
    assert {(n, o) for kind, _, n, o in worker if kind == "topic" and not n.startswith("app-") and o != "describe-configs"} == {
        ("orders.DLT", "read"), ("shop.", "read"), ("orders", "read"), ("definitions", "read"),
        ("orders.retry", "read"), ("shop.retry", "read"), ("orders.retry", "write"), ("orders.parked", "write"),
        ("orders.parked", "read"),
        ("shop.retry", "write"), ("runs", "write"),
    }  # fmt: skip
    assert ("topic", "prefixed", "shop.", "read") in worker and ("topic", "literal", "shop.a.DLT", "read") not in worker
    assert ("group", "literal", "billing", "describe") in worker
    assert ("transactional-id", "prefixed", "app-sweep-", "write") in worker
    assert {r["for"] for r in rows} == {"worker", "topics create", "commands", "analytics", "api", "console"}
    assert not [r for r in rows if r["name"] == "*" or r["resource"] == "cluster"]
    assert all(r["without"] for r in rows)


def test_commands_grant_each_name_once_and_are_ready_to_paste(tmp_path: Path) -> None:
    found = print_acls("--bootstrap-command", "--for", "worker", "--principal", "User:a b", tmp_path=tmp_path).splitlines()
    begin = "kafka-acls.sh --bootstrap-server 127.0.0.1:9092 --command-config admin.properties --add --allow-principal 'User:a b'"
    assert all(line.startswith(begin) for line in found)
    assert f"{begin} --operation describe-configs --operation read --operation write --topic app-changelog" in found
    assert f"{begin} --operation write --transactional-id app-intake- --resource-pattern-type prefixed" in found
    names = [re.sub(r".* --(topic|group|transactional-id) ", r"\1 ", line) for line in found]
    assert len(names) == len(set(names))


def test_the_scheduler_has_names_of_its_own(tmp_path: Path) -> None:
    own = {"RETRY_APP_ID": "", "GROUP_ID": "s", "SCHEDULES_TOPICS": r"one,^two\..*", "SCHEDULER_ALLOWED_TARGETS": "t"}
    rows = [json.loads(row) for row in print_acls("--json", "--for", "scheduler", tmp_path=tmp_path, **own).splitlines()]
    topics = {(r["name"], r["operation"]) for r in rows if r["resource"] == "topic" and not r["name"].startswith("s-")}
    both = {(name, operation) for name in ("one", "two.", "history") for operation in ("read", "write")}
    assert topics == {*both, ("t", "write")}


def test_a_migration_has_the_names_of_its_options(tmp_path: Path) -> None:
    def list_rights(*options: str, **environ: str) -> set[tuple[str, ...]]:
        rows = [json.loads(row) for row in print_acls("--json", *options, tmp_path=tmp_path, **environ).splitlines()]
        return {(r["resource"], r["pattern"], r["name"], r["operation"]) for r in rows}

    letters = list_rights("--for", "migrate", "--from", "orders-retry-*", "--to", "orders-dlt", "--group", "shop-retry-*")
    assert letters == {
        ("topic", "prefixed", "orders-retry-", "read"), ("topic", "literal", "orders-dlt", "write"),
        ("group", "prefixed", "shop-retry-", "read"), ("transactional-id", "prefixed", "app-migrate-", "write"),
    }  # fmt: skip
    # The group is found among all of them where it is not named.
    assert ("group", "literal", "*", "read") in list_rights("--for", "migrate", "--from", "exception", "--to", "orders-dlt")
    schedules = list_rights(
        "--for", "migrate scheduler", "--from", "a", "--to", "b", "--group", "go", RETRY_APP_ID="", GROUP_ID="s"
    )
    assert schedules == {
        *(("topic", "literal", name, operation) for name in "ab" for operation in ("read", "write")),
        *(("group", "literal", name, "describe") for name in ("go", "go-intake", "go-table")),
        ("transactional-id", "prefixed", "s-migrate-", "write"),
    }  # fmt: skip
    # Without --to it only says what waits.
    assert not {
        name for _, _, name, _ in list_rights("--for", "migrate scheduler", "--from", "a", RETRY_APP_ID="", GROUP_ID="s")
    } & {"b"}
    for options in (("migrate", "--from", "a"), ("migrate scheduler",)):
        refused = CliRunner().invoke(main, ["acls", "--for", *options], env={"RETRY_APP_ID": "app", "GROUP_ID": ""})
        assert refused.exit_code == 2 and "give --" in refused.output


def test_a_name_with_a_quote_is_quoted_in_a_command() -> None:
    (line,) = build_commands([Right("topic", "a'; rm -rf", "read")], "User:x", "b:1")
    assert line.endswith("""--topic 'a'"'"'; rm -rf'""")


_PIECES = ["ab", r"\.", "x?", "y*", "z+", "c{2}", "[a|b]", "(d|e)", "f", "|", "(?:g)", r"\-", "^"]
_PARTS = st.lists(st.sampled_from(_PIECES), max_size=8)


@given(_PARTS.map("".join), st.text("abcdefgxyz.-", max_size=8))
def test_every_name_that_a_pattern_matches_has_its_right(pattern: str, name: str) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    if compiled.fullmatch(name):
        assert acls.is_in(name, acls.extract_prefix(pattern))


def test_no_need_is_listed_twice_and_what_a_read_or_a_write_includes_is_not_asked_for_beside_it() -> None:
    registry = parse(POLICIES, "policies")
    parts = {need.who for need in acls.NEEDS}
    for part in parts:
        rights = [line.right for line in acls.list_rights([part], acls.resolve_names("app", registry))]
        assert len(rights) == len(set(rights))
        strong = {right[:2] for right in rights if right.operation in ("read", "write")}
        assert not [right for right in rights if right.operation == "describe" and right[:2] in strong]


@pytest.mark.parametrize("word", sorted({need.of for need in acls.NEEDS}))
def test_every_word_of_the_table_is_a_name(word: str) -> None:
    names = {*acls.resolve_names("app", parse(POLICIES, "policies")), *OF_OPTIONS}
    assert word in names
