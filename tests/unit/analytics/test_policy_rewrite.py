"""Advice becomes rules of a policy file, and nothing else of it changes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from retry.__main__ import main
from retry.analytics.advice.choose_attempts import Advice
from retry.analytics.advice.policy_rewrite import Advised, add_rules
from retry.dead_letters.failure import Failure
from retry.errors import PolicyFileInvalid
from retry.policies.policy_file import parse
from retry.policies.route import RetryPlan

TEXT = """\
# who owns this file
defaults:
  backoff: {kind: exponential, delay: 10s, factor: 2, max_delay: 1h}
  max_attempts: 8
  quiet_hours: {from: '22:00', to: '06:00', zone: UTC}   # at night
teams:
  pay:
    topics:
      - dead_letters: pay.DLT
        retry_to: pay.retry
        allowed_targets: [pay.retry, pay.slow]
        rules:
          - {exception: '*.Bad', park: true}
          # far away
          - exception: '*Timeout*'   # wide
            attempt: 3..
            retry_to: pay.slow
          - {message: 'status 429', jitter: none}
      - {dead_letters: {pattern: 'ship\\.(.*)'}, retry_to: ship-retry, max_attempts: 3}
  bill:
    topics: [{dead_letters: bill.DLT, retry_to: bill.retry}]
"""


def advice(attempts: int, delays_ms: dict[int, int] | None = None, verdict: str = "fewer") -> Advice:
    return Advice(verdict, 8, attempts, delays_ms or {}, 1_000, 900, 899, 0.992, 4_000, 2_000)


def advised_kind(exception: str, *topics: str, team: str = "pay", is_cause: bool = False, what: Advice | None = None) -> Advised:
    return Advised(team, exception, topics, is_cause, what or advice(2))


def plan(
    text: str, topic: str, exception: str, attempt: int = 1, cause: str | None = None, message: str | None = None
) -> RetryPlan:
    failure = Failure(exception=exception, cause=cause, message=message)
    return parse(text, "p").route(topic).plan(failure, attempt=attempt, age_ms=0, headers=(), null_value=False)


def test_letters_of_the_exception_get_fewer_attempts_and_all_others_what_they_had() -> None:
    text, added = add_rules(TEXT, "p", [advised_kind("com.acme.GatewayTimeout", "pay.DLT")])
    assert added == 3
    for attempt, message in ((1, None), (3, None), (1, "status 429")):
        before, after = (plan(each, "pay.DLT", "com.acme.GatewayTimeout", attempt, message=message) for each in (TEXT, text))
        assert (before.policy.max_attempts, after.policy.max_attempts) == (8, 2)
        assert (after.retry_to, after.policy.jitter, after.policy.curve) == (
            before.retry_to,
            before.policy.jitter,
            before.policy.curve,
        )
    for exception in ("com.acme.OtherTimeout", "x.Bad", "x"):
        for attempt in (1, 3):
            before, after = (plan(each, "pay.DLT", exception, attempt) for each in (TEXT, text))
            assert (before.policy, before.park, before.retry_to) == (after.policy, after.park, after.retry_to)
    assert plan(text, "bill.DLT", "com.acme.GatewayTimeout").policy.max_attempts == 8


def test_every_line_that_was_there_is_there_still_with_its_comments() -> None:
    text, _ = add_rules(TEXT, "p", [advised_kind("GatewayTimeout", "pay.DLT"), advised_kind("x", "bill.DLT", team="bill")])
    kept = iter(text.splitlines())
    written = [line for line in TEXT.splitlines() if "bill.DLT" not in line]
    assert all(any(line == there for there in kept) for line in written)


@pytest.mark.parametrize(("nested", "offset"), [(2, 0), (2, 2), (4, 0), (4, 2), (3, 1)])
def test_a_file_keeps_the_way_in_which_it_is_written(nested: int, offset: int) -> None:
    at = [" " * nested * level for level in range(4)]
    item = at[2] + " " * offset
    lines = [
        "teams:", f"{at[1]}bill:", f"{at[2]}topics:", f"{item}- dead_letters: bill.DLT  # one", f"{item}  retry_to: {'r' * 150}",
        f"{item}  rules:", f"{item}  {' ' * offset}- {{exception: b, park: true}}",
    ]  # fmt: skip
    text, added = add_rules("\n".join(lines) + "\n", "p", [advised_kind("x", "bill.DLT", team="bill")])
    assert added == 1
    assert text.splitlines()[: len(lines)] == lines


def test_a_better_delay_is_a_rule_of_its_attempt() -> None:
    text, added = add_rules(TEXT, "p", [advised_kind("x", "bill.DLT", team="bill", what=advice(3, {1: 90_000, 2: 7_200_000}))])
    assert added == 3
    found = [plan(text, "bill.DLT", "x", attempt).policy for attempt in (1, 2, 3)]
    assert [each.max_attempts for each in found] == [3, 3, 3]
    assert [each.curve(attempt) for attempt, each in enumerate(found, 1)] == [90_000, 7_200_000, 40_000]


def test_what_parks_already_and_what_has_fewer_attempts_is_left_alone() -> None:
    same = [
        advised_kind("a.Bad", "pay.DLT"),
        advised_kind("x", "ship.a", what=advice(3)),
        advised_kind("x", "pay.DLT", what=advice(8, verdict="keep")),
    ]
    assert add_rules(TEXT, "p", same)[1] == 0


def test_topics_of_nobody_and_of_others_are_left_alone() -> None:
    assert add_rules(TEXT, "p", [advised_kind("x", "gone.DLT", "bill.DLT")])[1] == 0


def test_a_pattern_gets_the_rule_of_all_its_topics_once() -> None:
    text, added = add_rules(TEXT, "p", [advised_kind("x", "ship.a", "ship.b")])
    assert added == 1
    assert plan(text, "ship.c", "x").policy.max_attempts == 2


def test_the_root_cause_is_asked_before_the_wrapper() -> None:
    wrapper, cause = (
        advised_kind("Wrapper", "bill.DLT", team="bill"),
        advised_kind("Root", "bill.DLT", team="bill", is_cause=True, what=advice(5)),
    )
    text, _ = add_rules(TEXT, "p", [wrapper, cause])
    assert plan(text, "bill.DLT", "Wrapper").policy.max_attempts == 2
    assert plan(text, "bill.DLT", "Wrapper", cause="Root").policy.max_attempts == 5


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_any_name_is_matched_as_it_is_or_left_out(exception: str) -> None:
    text, added = add_rules(TEXT, "p", [advised_kind(exception, "bill.DLT", team="bill")])
    assert added == exception.isprintable()
    if added:
        assert plan(text, "bill.DLT", exception).policy.max_attempts == 2
        assert plan(text, "bill.DLT", exception + "x").policy.max_attempts == 8


def test_a_thousand_exceptions_do_not_make_a_thousand_rules() -> None:
    many = [advised_kind(f"x{n}", "bill.DLT", team="bill") for n in range(1_000)]
    assert add_rules(TEXT, "p", many)[1] == 100


def test_no_policy_file_is_refused_as_everywhere() -> None:
    with pytest.raises(PolicyFileInvalid):
        add_rules("teams: 7", "p", [])


def test_the_check_command_takes_what_was_written(tmp_path) -> None:
    text, _ = add_rules(
        TEXT,
        "p",
        [advised_kind("it's: [odd] {*}\\", "pay.DLT"), advised_kind("x", "bill.DLT", team="bill", what=advice(2, {1: 5}))],
    )
    file = tmp_path / "advised.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["policies", "check", str(file)])
    assert (result.exit_code, result.output) == (0, f"{file}: 2 teams, 3 topics: OK\n")
