"""What rules may ask of a letter, in which order they are asked, and what of the answers is remembered."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import duration_ms
from retry.policies.policy_file import parse
from retry.policies.route import MatchInput, Route
from tests.support.plans import case, plan

HEAD = "teams: {t: {topics: [{dead_letters: d, retry_to: r, rules: ["
HOUR_MS = 3_600_000


def route(*rules: str) -> Route:
    return parse(HEAD + ", ".join(rules) + "]}]}}", "p.yaml").route("d")


def number(found: Route, asked: MatchInput) -> int:
    """Which rule matched, from 1; 0 where none did."""
    return int(plan(found, asked).name.removeprefix("t/d").removeprefix("#") or 0)


@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [
        ("exception: 'a.*'", [case(exception="a.B"), case(cause="a.B"), case(exception="x", cause="a.B")],
         [case(), case(exception="A.B"), case(exception="x.a.B"), case(message="a.B")]),
        ("exception: [a, 'b?']", [case(exception="a"), case(cause="b1")], [case(exception="b"), case(exception="a\n")]),
        ("exception: '[ab|]*'", [case(exception="b"), case(exception="|")], [case(exception="c")]),
        ("exception: '*'", [case(), case(exception="a")], []),
        ("exception: '?*'", [case(cause="a")], [case(), case(exception="")]),
        ("cause: 'a.*'", [case(cause="a.B", exception="x")], [case(exception="a.B"), case()]),
        ("cause: [a, b]", [case(cause="b")], [case(cause="c")]),
        ("stage: 'TASK_*'", [case(stage="TASK_PUT")], [case(stage="task_put"), case()]),
        ("message: 'timed? ?out'", [case(message="it timed out"), case(message="x" * 4_089 + "timeout")],
         [case(message="Timeout"), case(message="x" * 4_090 + "timeout"), case(), case(exception="timeout")]),
        ("message: '^$'", [case(message="")], [case(), case(message="x")]),
        ("message: '(?i)GRÜSSE .$'", [case(message="grüsse \N{SNOWMAN}")], [case(message="grusse .")]),
        ("message: 'a'", [case(message="\ud800a")], [case(message="\ud800")]),
        ("attempt: 3", [case(attempt=3)], [case(attempt=2), case(attempt=4)]),
        ("attempt: '3'", [case(attempt=3)], [case(attempt=2), case(attempt=4)]),
        ("attempt: 3..", [case(attempt=3), case(attempt=1_000_000)], [case(attempt=2)]),
        ("attempt: 2..5", [case(attempt=2), case(attempt=5)], [case(attempt=1), case(attempt=6)]),
        ("attempt: ..4", [case(attempt=1), case(attempt=4)], [case(attempt=5)]),
        ("age: 2h", [case(age_ms=2 * HOUR_MS), case(age_ms=10**15)], [case(age_ms=2 * HOUR_MS - 1), case()]),
        ("headers: {x: 'a*'}", [case(headers=[("x", b"a")]), case(headers=[("x", b"b"), ("x", b"ab")])],
         [case(), case(headers=[("x", b"a"), ("x", b"b")]), case(headers=[("X", b"a")]), case(headers=[("x", None)])]),
        ("headers: {x: '*'}", [case(headers=[("x", None)]), case(headers=[("x", b"")])], [case(headers=[("y", b"")])]),
        ("headers: {x: [a, b], y: c}", [case(headers=[("y", b"c"), ("z", b""), ("x", b"b")])],
         [case(headers=[("x", b"a")]), case(headers=[("y", b"c")]), case(headers=[("x", b"c"), ("y", b"c")])]),
        ("headers: {x: 'a\N{REPLACEMENT CHARACTER}'}", [case(headers=[("x", b"a\xff")])], [case(headers=[("x", b"a")])]),
        ("null_value: true", [case(null_value=True)], [case()]),
        ("null_value: false", [case()], [case(null_value=True)]),
        ("exception: a, attempt: 2.., stage: s", [case(exception="a", stage="s", attempt=2)],
         [case(exception="a", stage="s"), case(exception="a", attempt=2), case(stage="s", attempt=2)]),
    ],
)  # fmt: skip
def test_a_condition_holds_or_does_not(condition: str, yes: list[MatchInput], no: list[MatchInput]) -> None:
    found = route(f"{{{condition}, park: true}}")
    assert [plan(found, asked).park for asked in yes + no] == [True] * len(yes) + [False] * len(no)
    # Asked again, when the names are known.
    assert [plan(found, asked).park for asked in yes + no] == [True] * len(yes) + [False] * len(no)


NAMES = st.sampled_from([None, "", "a", "a.b", "b"])
GLOBS = st.sampled_from(["*", "a*", "?", "a.b", "[!a]*"])
RULES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "exception": GLOBS,
            "cause": GLOBS,
            "stage": GLOBS,
            "message": st.sampled_from(["a", "^b", "b$"]),
            "attempt": st.sampled_from([1, "2..", "..2"]),
            "age": st.sampled_from(["0s", "1s"]),
            "headers": st.dictionaries(st.sampled_from("xy"), GLOBS, min_size=1),
            "null_value": st.booleans(),
        },
    ).filter(bool),
    max_size=5,
)
CASES = st.builds(
    case,
    attempt=st.integers(1, 3),
    age_ms=st.sampled_from([0, 999, 1_000]),
    headers=st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from([None, b"", b"a", b"b"])), max_size=3),
    null_value=st.booleans(),
    exception=NAMES,
    cause=NAMES,
    stage=NAMES,
    message=NAMES,
)


def naive(rules: list[dict[str, Any]], asked: MatchInput) -> int:
    """Every rule from the first on, every condition as the documentation has it, nothing remembered."""
    def glob(pattern: str, name: str | None) -> bool:
        return fnmatch.fnmatchcase(name or "", pattern)

    def attempt(written: int | str) -> bool:
        low, _, high = str(written).partition("..") if ".." in str(written) else (written, "", written)
        return int(low or 1) <= asked.attempt <= int(high or 10)

    failure, headers = asked.failure, dict(asked.headers)
    holds = {
        "exception": lambda value: glob(value, failure.exception) or glob(value, failure.cause),
        "cause": lambda value: glob(value, failure.cause),
        "stage": lambda value: glob(value, failure.stage),
        "message": lambda value: failure.message is not None and bool(re.search(value, failure.message)),
        "attempt": attempt,
        "age": lambda value: asked.age_ms >= duration_ms(value),
        "headers": lambda value: all(n in headers and glob(g, (headers[n] or b"").decode()) for n, g in value.items()),
        "null_value": lambda value: value is asked.null_value,
    }
    matches = (n for n, rule in enumerate(rules, 1) if all(holds[key](value) for key, value in rule.items()))
    return next(matches, 0)


@given(RULES, st.lists(CASES, min_size=1, max_size=5))
def test_the_first_rule_that_matches_wins_whatever_was_asked_before(rules: list[Any], asked: list[MatchInput]) -> None:
    found = route(*(repr(rule).replace("True", "true").replace("False", "false") for rule in rules))
    assert [number(found, each) for each in asked] == [naive(rules, each) for each in asked]


def test_letters_that_differ_in_one_static_name_are_told_apart() -> None:
    found = route("{exception: a, cause: b, stage: c}", "{exception: a, cause: b}", "{exception: a}")
    for _ in range(2):
        assert number(found, case(exception="a", cause="b", stage="c")) == 1
        assert number(found, case(exception="a", cause="b")) == 2
        assert number(found, case(exception="a")) == 3
        # `exception` asks for the cause as well.
        assert number(found, case(cause="a")) == 3
        assert number(found, case(stage="a")) == 0


def test_without_rules_nothing_is_asked_or_kept() -> None:
    found = route()
    assert plan(found, case(exception="a")) is found.default_plan
    assert not found._by_names


def test_what_only_some_letters_have_is_never_kept() -> None:
    found = route("{message: x}", "{headers: {h: x}}", "{attempt: 2..}")
    for n in range(2_000):
        assert number(found, case(message=f"x{n}")) == 1
        assert number(found, case(message=f"y{n}", attempt=2)) == 3
    assert len(found._by_names) == 1


@pytest.mark.parametrize("condition", ["exception", "cause", "stage"])
def test_names_are_kept_within_bounds(condition: str) -> None:
    found = route(f"{{{condition}: 'x.1*', attempt: 2}}")
    for n in range(3_000):
        plan(found, case(**{condition: f"x.{n}"}))  # type: ignore[arg-type]
    assert 0 < len(found._by_names) <= 1_024
    found._by_names.clear()
    assert number(found, case(attempt=2, **{condition: "x.1" + "y" * 1_000})) == 1  # type: ignore[arg-type]
    assert not found._by_names


@pytest.mark.parametrize("expression", ["(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){20}$", "([a-z]+)*[0-9]$", "((a?){30}){30}b"])
def test_p48_an_expression_that_ruins_backtracking_matchers_comes_to_an_end(expression: str) -> None:
    found = route(f"{{message: '{expression}', park: true}}")
    assert not plan(found, case(message="a" * 4_095 + "!")).park


def test_a_letter_of_monstrous_texts_is_asked_about_bounded_parts_of_them() -> None:
    glob = "*a" * 200 + "*!"
    found = route(f"{{headers: {{h: '{glob}'}}}}", "{message: 'a$'}")
    monstrous = "a" * 1_000_000 + "!"
    assert number(found, case(headers=[("h", monstrous.encode())], message=monstrous)) == 2
    assert number(found, case(headers=[("h", b"a" * 4_095 + b"!")])) == 1


def test_rules_keep_what_the_topic_says_and_override_the_rest() -> None:
    text = """
    defaults: {ordered: true, max_attempts: 3}
    teams:
      t:
        park_to: p
        topics:
          - {dead_letters: plain, retry_to: r}
          - dead_letters: d
            retry_to: r
            ordered: false
            rules:
              - {attempt: 3.., retry_to: slow, ordered: true}
              - {null_value: true, park_to: nulls, park: true}
    """
    registry = parse(text, "p.yaml")
    assert registry.route("plain").default_plan.ordered
    found = registry.route("d")
    usual, slow, null = (plan(found, asked) for asked in (case(), case(attempt=3), case(null_value=True)))
    assert (usual.retry_to, usual.park_to, usual.ordered, usual.park) == ("r", "p", False, False)
    assert (slow.retry_to, slow.park_to, slow.ordered, slow.park) == ("slow", "p", True, False)
    assert (null.retry_to, null.park_to, null.ordered, null.park) == ("r", "nulls", False, True)
    assert {each.policy.max_attempts for each in (usual, slow, null)} == {3}


@pytest.mark.parametrize("glob", ["Wrapper", "a.Refused", "java.io.*"])
def test_an_exception_is_any_class_between_wrapper_and_root(glob):
    topic = f"{{dead_letters: x, retry_to: y, rules: [{{exception: {glob}, park: true}}]}}"
    route = parse(f"teams: {{t: {{topics: [{topic}]}}}}", "p").route("x")
    asked = case(exception="Wrapper", thrown="a.Refused", cause="java.io.IOException")
    assert plan(route, asked).park
    assert not plan(route, case(exception="Wrapped", thrown="a.Refuse", cause="java")).park


def test_null_value_is_looked_for_from_the_inside_out_and_a_rule_keeps_it_as_a_condition():
    registry = parse(
        """
    defaults: {null_value: cancel}
    teams:
      a: {topics: [{dead_letters: one, retry_to: r}, {dead_letters: two, retry_to: r, null_value: retry}]}
      b:
        null_value: retry
        topics:
          - {dead_letters: three, retry_to: r}
          - {dead_letters: four, retry_to: r, null_value: cancel, rules: [{null_value: true, retry_to: s}]}
    """,
        "p.yaml",
    )
    cancels = {topic: registry.route(topic).default_plan.null_cancels for topic in ("one", "two", "three", "four")}
    assert cancels == {"one": True, "two": False, "three": False, "four": True}
    [rule] = registry.route("four").rules
    assert (rule.plan.null_cancels, [each.key for each in rule.conditions]) == (True, ["null_value"])
    assert not parse("teams: {}", "p.yaml").default.default_plan.null_cancels
