"""What another policy file would have made of the failures of a period: the policies' own code decides, observed chances apply.

Letters of one kind that failed first in the same hour are walked through their retries together, along up to eight ways that
differ in their place in the hour and in their draws for jitter. On each way the part that still fails grows smaller with every
retry, by the chance that was observed for this attempt and about this delay. So no random numbers are drawn, and a million
letters cost what a thousand do.

It is assumed that the chance of an attempt depends on its number and its delay; that a retry fails at once; and that nothing
holds it up: pauses, rates, budgets and breakers are left out. An attempt that was never made counts as one that brings nothing,
and is counted apart. Outcomes do not contain message, headers, stage or value, so rules with such conditions match no letter;
`unjudged_rules` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from backoff import RetryAt
from retry.analytics.advice.evidence import Evidence, Kind
from retry.dead_letters.failure import Failure
from retry.policies.registry import Registry
from retry.policies.route import Route

_WAYS_MAX = 8
_HOUR_MS = 3_600_000
# More than any policy allows in practice, and few enough to compute.
_ATTEMPTS_MAX = 200
# Evenly spread, however many are taken: the fraction of the golden ratio.
_SPREAD = 0.6180339887
_NOT_IN_OUTCOMES = ("stage", "message", "null_value", "headers.")


class Start(NamedTuple):
    """Letters of one kind from one topic that failed first within the hour that begins at `hour_ms`."""

    team: str
    topic: str
    exception: str | None
    is_cause: bool
    hour_ms: int
    letters: int


@dataclass(slots=True)
class Expected:
    """What becomes of letters, on the average.

    Attributes:
      unobserved: those of the retries that are of an attempt of which nothing is known.
      recovered, recovered_low, recovered_high: likely, and if every chance is at its bound.
      waits_ms: time from first failure to the retry that recovers, each with the number of letters.
    """

    letters: float = 0.0
    retries: float = 0.0
    unobserved: float = 0.0
    recovered: float = 0.0
    recovered_low: float = 0.0
    recovered_high: float = 0.0
    waits_ms: list[tuple[int, float]] = field(default_factory=list)

    @property
    def parked(self) -> float:
        """Letters that do not recover."""
        return self.letters - self.recovered

    def add(self, other: Expected) -> None:
        """Add another's letters."""
        for name in ("letters", "retries", "unobserved", "recovered", "recovered_low", "recovered_high"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.waits_ms += other.waits_ms

    def wait_ms(self, share: float) -> int | None:
        """By when that part of the letters that recover has done so; None where none does."""
        reached = 0.0
        for wait_ms, letters in sorted(self.waits_ms):
            reached += letters
            if reached >= share * self.recovered - 1e-9:
                return wait_ms
        return None


def replay(registry: Registry, starts: Iterable[Start], evidence: Mapping[Kind, Evidence]) -> dict[Kind, Expected]:
    """What becomes of each kind of letters under a registry's policies."""
    by_kind: dict[Kind, Expected] = {}
    for start in starts:
        kind = Kind(start.team, start.exception)
        ways = min(start.letters, _WAYS_MAX)
        for way in range(ways):
            expected = _walk(registry.route(start.topic), start, evidence.get(kind, Evidence({})), (way + 0.5) / ways)
            by_kind.setdefault(kind, Expected()).add(_scaled(expected, start.letters / ways))
    return by_kind


def unjudged_rules(registry: Registry, starts: Iterable[Start]) -> list[str]:
    """Rules of these letters' routes with conditions on what outcomes do not contain."""
    routes = {route.name: route for start in starts if (route := registry.route(start.topic)).rules}
    return sorted({
        rule.plan.name for route in routes.values() for rule in route.rules
        for condition in rule.conditions if condition.key.startswith(_NOT_IN_OUTCOMES)
    })  # fmt: skip


def _walk(route: Route, start: Start, evidence: Evidence, draw: float) -> Expected:
    """What is expected of one letter that first failed at this fraction of its hour."""
    expected = Expected(letters=1.0)
    begun_ms = start.hour_ms + int(draw * _HOUR_MS)
    left = left_low = left_high = 1.0
    for attempt, failed_ms, due_ms in _retries(route, start, begun_ms, draw):
        hazard = evidence.hazard_after(attempt, due_ms - failed_ms)
        expected.retries += left
        if attempt > evidence.attempts:
            expected.unobserved += left
        elif left * hazard.likely > 0:
            expected.waits_ms.append((due_ms - begun_ms, left * hazard.likely))
        left, left_low = left * (1 - hazard.likely), left_low * (1 - hazard.low)
        left_high *= 1 - hazard.high
    expected.recovered, expected.recovered_low, expected.recovered_high = 1 - left, 1 - left_low, 1 - left_high
    return expected


def _retries(route: Route, start: Start, begun_ms: int, draw: float) -> Iterator[tuple[int, int, int]]:
    """Attempt, time of failure and due time of every retry that a letter gets which always fails."""
    failure = Failure(exception=start.exception, cause=start.exception if start.is_cause else None)
    failed_ms = begun_ms
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        plan = route.plan(failure, attempt=attempt, age_ms=failed_ms - begun_ms, headers=(), null_value=False)
        if plan.park or plan.retry_to is None:
            return
        jitter = (draw + attempt * _SPREAD) % 1
        decision = plan.policy.decide(
            attempt=attempt, first_failed_at_ms=begun_ms, failed_at_ms=failed_ms, now_ms=failed_ms, draw=jitter
        )
        if not isinstance(decision, RetryAt):
            return
        due_ms = max(decision.due_at_ms, failed_ms)
        yield attempt, failed_ms, due_ms
        failed_ms = due_ms


def _scaled(one: Expected, letters: float) -> Expected:
    return Expected(
        letters, one.retries * letters, one.unobserved * letters, one.recovered * letters, one.recovered_low * letters,
        one.recovered_high * letters, [(wait_ms, part * letters) for wait_ms, part in one.waits_ms],
    )  # fmt: skip
