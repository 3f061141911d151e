"""What a policy file would have made of the failures of a period: the policies' own code on what failed when, chances from what
was observed.

Letters of one kind that failed first in the same hour are walked through their retries together, along up to eight ways that
differ in their place in the hour and in their draws for jitter. On each way the part that still fails grows smaller with every
retry, by the chance that was observed for this attempt and about this delay. So nothing is simulated by lot, and a million
letters cost what a thousand do.

It is assumed that the chance of an attempt depends on its number and its delay; that a retry fails at once; and that nothing
holds it up: pauses, rates, budgets and breakers are left out. An attempt that was never made counts as one that brings nothing,
and is told apart. Outcomes do not say message, headers, stage or value, so rules that ask for these match nobody here; `blind`
names them.
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
# What no attempt of a file comes to in practice, and little enough to walk through.
_ATTEMPTS_MAX = 200
# Evenly spread, however many are taken: the fraction of the golden ratio.
_SPREAD = 0.6180339887
_BLIND = ("stage", "message", "null_value", "headers.")


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
        """Take another's letters in."""
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
    found: dict[Kind, Expected] = {}
    for start in starts:
        kind = Kind(start.team, start.exception)
        ways = min(start.letters, _WAYS_MAX)
        for way in range(ways):
            walked = _walk(registry.route(start.topic), start, evidence.get(kind, Evidence({})), (way + 0.5) / ways)
            found.setdefault(kind, Expected()).add(_times(walked, start.letters / ways))
    return found


def blind(registry: Registry, starts: Iterable[Start]) -> list[str]:
    """The rules that ask what outcomes do not tell, of the routes of these letters."""
    routes = {route.name: route for start in starts if (route := registry.route(start.topic)).rules}
    return sorted({
        rule.plan.name for route in routes.values() for rule in route.rules
        for condition in rule.conditions if condition.key.startswith(_BLIND)
    })  # fmt: skip


def _walk(route: Route, start: Start, evidence: Evidence, place: float) -> Expected:
    """One letter, first failed at that place of its hour."""
    went = Expected(letters=1.0)
    begun_ms = start.hour_ms + int(place * _HOUR_MS)
    left = left_low = left_high = 1.0
    for attempt, failed_ms, due_ms in _retries(route, start, begun_ms, place):
        hazard = evidence.hazard_after(attempt, due_ms - failed_ms)
        went.retries += left
        if attempt > evidence.attempts:
            went.unobserved += left
        elif left * hazard.likely > 0:
            went.waits_ms.append((due_ms - begun_ms, left * hazard.likely))
        left, left_low = left * (1 - hazard.likely), left_low * (1 - hazard.low)
        left_high *= 1 - hazard.high
    went.recovered, went.recovered_low, went.recovered_high = 1 - left, 1 - left_low, 1 - left_high
    return went


def _retries(route: Route, start: Start, begun_ms: int, place: float) -> Iterator[tuple[int, int, int]]:
    """Attempt, time of failure and due time of every retry that a letter gets which always fails."""
    failure = Failure(exception=start.exception, cause=start.exception if start.is_cause else None)
    failed_ms = begun_ms
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        plan = route.plan(failure, attempt=attempt, age_ms=failed_ms - begun_ms, headers=(), null_value=False)
        if plan.park or plan.retry_to is None:
            return
        draw = (place + attempt * _SPREAD) % 1
        decision = plan.policy.decide(
            attempt=attempt, first_failed_at_ms=begun_ms, failed_at_ms=failed_ms, now_ms=failed_ms, draw=draw
        )
        if not isinstance(decision, RetryAt):
            return
        due_ms = max(decision.due_at_ms, failed_ms)
        yield attempt, failed_ms, due_ms
        failed_ms = due_ms


def _times(went: Expected, letters: float) -> Expected:
    return Expected(
        letters, went.retries * letters, went.unobserved * letters, went.recovered * letters, went.recovered_low * letters,
        went.recovered_high * letters, [(wait_ms, part * letters) for wait_ms, part in went.waits_ms],
    )  # fmt: skip
