"""Asks a route for the plan of a letter of which only one thing or two matter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from retry.dead_letters.failure import Failure
from retry.policies.policy_file import parse
from retry.policies.registry import Registry
from retry.policies.route import MatchInput, RetryPlan, Route
from retry.record import Header


@cache
def registry_of(text: str) -> Registry:
    """The registry of a policy file's text, which is its digest too. Parsed once: most of it is YAML."""
    return parse(text, "policies.yaml", digest=text)


def case(
    attempt: int = 1, age_ms: int = 0, headers: Sequence[Header] = (), null_value: bool = False, **failure: str | None
) -> MatchInput:
    """A letter; what is not given is unknown, the first retry, or not there."""
    return MatchInput(Failure(**failure), attempt, age_ms, headers, null_value)  # type: ignore[arg-type]


def plan(route: Route, asked: MatchInput) -> RetryPlan:
    """The plan of a route for it."""
    return route.plan(
        asked.failure,
        attempt=asked.attempt,
        age_ms=asked.age_ms,
        headers=asked.headers,
        null_value=asked.null_value,
    )


def plan_for(route: Route, exception: str | None) -> RetryPlan:
    """The plan of a route for a letter that names its exception and nothing else."""
    return plan(route, case(exception=exception))
