"""Limits of teams and of targets, and header names of a team's own."""

from __future__ import annotations

from backoff.rate_limit import Limit
from retry.policies.limits import CircuitBreakerLimits
from retry.policies.policy_file import parse

TEXT = """
defaults:
  aliases: {exception: [x-err, my-error], attempts: x-tries}
targets:
  a.retry: {rate: 500/s, breaker: {failures: 20, within: 1m, open_for: 30s}}
  b.retry: {breaker: {failures: 1, within: 1ms, open_for: 1d}}
teams:
  a:
    rate: 100/s
    budget: 50000/1d
    aliases: {exception: a-err}
    topics:
      - {dead_letters: a.DLT, retry_to: a.retry, aliases: {stage: [a-stage]}}
      - {dead_letters: a.plain, retry_to: a.retry}
  b:
    budget: 10/h
    topics: [{dead_letters: b.DLT, retry_to: b.retry}]
  c:
    topics: [{dead_letters: c.DLT, retry_to: c.retry}]
"""


def test_limits_are_as_written() -> None:
    registry = parse(TEXT, "p.yaml")
    assert registry.team_limits == {"a": (Limit(100, 1_000), Limit(50_000, 86_400_000)), "b": (Limit(10, 3_600_000),)}
    assert registry.target_limits == {"a.retry": Limit(500, 1_000)}
    assert registry.breakers == {
        "a.retry": CircuitBreakerLimits(20, 60_000, 30_000),
        "b.retry": CircuitBreakerLimits(1, 1, 86_400_000),
    }


def test_a_file_without_limits_has_none() -> None:
    registry = parse("", "p.yaml")
    assert (registry.team_limits, registry.target_limits, registry.breakers) == ({}, {}, {})


def test_aliases_are_overlaid_field_by_field() -> None:
    registry = parse(TEXT, "p.yaml")
    assert registry.route("a.DLT").aliases == {"exception": ("a-err",), "attempts": ("x-tries",), "stage": ("a-stage",)}
    assert registry.route("a.plain").aliases == {"exception": ("a-err",), "attempts": ("x-tries",)}
    assert registry.route("c.DLT").aliases == {"exception": ("x-err", "my-error"), "attempts": ("x-tries",)}


def test_a_route_without_aliases_says_so() -> None:
    assert parse("teams: {t: {topics: [{dead_letters: d, retry_to: r}]}}", "p.yaml").route("d").aliases is None
    assert parse(TEXT, "p.yaml").default.aliases is None
