"""Exact names before patterns, patterns in file order, rules in order, and caches that stay small."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.policies.policy_file import parse
from retry.policies.registry import Registry
from tests.support.plans import case, plan, plan_for, registry_of

TEXT = r"""
teams:
  first:
    topics:
      - {dead_letters: {pattern: 'a\..*'}, retry_to: r1}
      - {dead_letters: {pattern: '.*\.DLT'}, retry_to: r2}
  second:
    topics:
      - dead_letters: a.DLT
        retry_to: r3
        rules:
          - {exception: 'java.*', max_attempts: 1}
          - {exception: '*.[AB]Error', park: true}
          - {exception: 'java.lang.Never', park: true}
"""


SHARED = parse(TEXT, "p.yaml")


@pytest.fixture
def registry() -> Registry:
    return parse(TEXT, "p.yaml")


@pytest.mark.parametrize(
    ("topic", "name"),
    [("a.DLT", "second/a.DLT"), ("a.b", r"first/a\..*"), ("a.b.DLT", r"first/a\..*"), ("b.DLT", r"first/.*\.DLT"),
     ("b.DLT2", "default"), ("xa.b", "default"), ("", "default"), ("A.dlt", "default")],
)  # fmt: skip
def test_a_topic_finds_its_route(registry, topic, name):
    assert registry.route(topic).name == name
    assert registry.route(topic) is registry.route(topic)
    assert registry.reads_topic(topic) is (name != "default")


@pytest.mark.parametrize(
    ("exception", "name"),
    [("java.lang.Never", "#1"), ("x.AError", "#2"), ("x.CError", ""), ("Java.x", ""), ("", ""), (None, ""),
     ("java.\nx", "#1"), ("x.AError ", "")],
)  # fmt: skip
def test_the_first_rule_that_matches_wins_and_case_counts(registry, exception, name):
    assert plan_for(registry.route("a.DLT"), exception).name == "second/a.DLT" + name


def test_a_star_matches_even_an_unknown_exception():
    text = "teams: {t: {topics: [{dead_letters: x, retry_to: y, rules: [{exception: '*', park: true}]}]}}"
    assert plan_for(parse(text, "p.yaml").route("x"), None).park


def test_an_unknown_topic_has_nowhere_to_go():
    route = Registry().route("any")
    found = plan_for(route, "x")
    plan = route.default_plan
    assert (route.team, plan.retry_to, plan.park_to, route.allowed_targets) == ("default", None, None, None)
    assert (found.park, found.retry_to, found.name) == (False, None, "default")


def test_plans_are_cached_and_the_cache_is_bounded(registry):
    route = registry.route("a.DLT")
    assert plan_for(route, "java.x") is plan_for(route, "java.x")
    for n in range(5_000):
        plan_for(route, f"x.{n}")
    assert 0 < len(route._by_names) <= 1_024


def test_a_monstrous_class_name_is_matched_but_not_kept(registry):
    route = registry.route("a.DLT")
    for names in ({"exception": "java." + "x" * 1_000_000}, {"exception": "java.x", "stage": "y" * 1_000}):
        assert plan(route, case(**names)).name == "second/a.DLT#1"
    assert not route._by_names


def test_routes_are_cached_and_the_cache_is_bounded(registry):
    for n in range(10_500):
        registry.route(f"a.{n}")
    assert len(registry._routes) <= 10_000


def test_a_registry_cannot_be_changed(registry):
    with pytest.raises(TypeError):
        registry.exact["x"] = registry.default
    with pytest.raises(dataclasses.FrozenInstanceError):
        registry.default = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        registry.default.default_plan.park = True


@given(st.text(max_size=300), st.none() | st.text(max_size=300))
def test_any_topic_and_exception_find_a_plan(topic, exception):
    assert plan_for(SHARED.route("a.DLT"), exception).retry_to == "r3"
    assert plan_for(Registry().route(topic), exception).retry_to is None


GROUPS = """
defaults: {group: everybody}
teams:
  a:
    topics:
      - {dead_letters: one, retry_to: one.retry}
      - {dead_letters: two, retry_to: two.retry, group: special, rules: [{exception: x, retry_to: two.slow}]}
  b:
    group: of b
    topics:
      - {dead_letters: three, retry_to: origin, allowed_targets: [three.in, three.other]}
      - dead_letters: four
        retry_to: one.retry
        rules: [{exception: x, retry_to: four.slow, group: slow}, {cause: y, park: true}]
"""


def test_a_group_is_looked_for_in_topic_team_and_defaults() -> None:
    registry = registry_of(GROUPS)
    named = {topic: registry.route(topic).group for topic in ("one", "two", "three", "four", "nobody's")}
    assert named == {"one": "everybody", "two": "special", "three": "of b", "four": "of b", "nobody's": None}


def test_groups_are_told_with_what_they_read() -> None:
    assert registry_of(GROUPS).list_group_topics() == {
        "everybody": {"one.retry"}, "special": {"two.retry", "two.slow"}, "of b": {"three.in", "three.other", "one.retry"},
        "slow": {"four.slow"},
    }  # fmt: skip
