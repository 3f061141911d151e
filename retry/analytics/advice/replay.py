"""What another policy file would have made of the failures of a period: the policies' own code decides, observed chances apply.

Letters of one kind that failed first in the same hour are walked through their retries together, along up to eight ways that
differ in their place in the hour and in their draws for jitter. On each way the part that still fails grows smaller with every
retry, by the chance that was observed of such retries, see `Observed`. So no random numbers are drawn, and a million letters cost
what a thousand do.

A retry that was not observed, for its attempt, its delay or its age, may recover all letters or none: the bounds say so, and it
is counted apart. The bounds are also those of chance itself: of as many letters, not of their average. It is assumed that a retry
fails at once, and that nothing holds it up: pauses, rates, budgets and breakers are left out. Outcomes do not contain message,
headers, stage or value, so rules with such conditions match no letter; `list_unjudged_rules` names them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from backoff import RetryAt
from retry.analytics.advice.evidence import Cell, Evidence, Kind, compute_survival, find_bin
from retry.analytics.statistics import Chance, Z, chance
from retry.dead_letters.failure import Failure
from retry.policies.registry import Registry
from retry.policies.route import Route

# What is known of a retry that was not made: its chance where such retries were made, and what time alone tells elsewhere.
#
# A retry was *observed* where others of the same attempt waited about as long, and were made about as long after the first
# failure: in the same step of 41 %, in which they are counted, or within 20 % of some. It is counted with all that are within
# 41 %. The chance of anything else is not known: it lies between 0 and 1.
#
# The likely chance of a retry that was not observed is that of an outage, which ends when it ends, whatever the attempt: of the
# letters that still failed at the age of the retry before, as many recover as were seen to recover from that age up to this
# one. Where none was seen between the two it brings nothing, and so does a retry that is made sooner, or later, than any other.

# Half of a step of 41 %: wherever in its step a delay lies, the median of the step is as near as this.
_SAME = 1.2
_NEAR = 1.42


class RetryChance(NamedTuple):
    chance: Chance
    is_observed: bool


class Observed:
    """The evidence of one kind, to be asked for retries of any attempt, delay and age."""

    def __init__(self, evidence: Evidence) -> None:
        self._by_attempt: dict[int, list[Cell]] = {}
        for cell in evidence.every:
            if cell.ended:
                self._by_attempt.setdefault(cell.attempt, []).append(cell)
        self.attempts = max(self._by_attempt, default=0)
        self._ages_ms, self._parts = _recovered_by_age(evidence)
        self._known: dict[tuple[int, int, int], Chance | None] = {}

    def estimate_retry(self, attempt: int, delay_ms: int, age_ms: int, age_before_ms: int) -> RetryChance:
        """Find the chance of a retry that was preceded by one of another age, 0 for none."""
        place = attempt, delay_ms, age_ms
        if place not in self._known:
            self._known[place] = self._like(*place)
        if (known := self._known[place]) is not None:
            return RetryChance(known, True)
        before, by_then = self._estimate_recovered(age_before_ms), self._estimate_recovered(age_ms)
        likely = (by_then - before) / (1 - before) if before < 1 else 0.0
        return RetryChance(Chance(0.0, likely, 1.0), False)

    def _like(self, attempt: int, delay_ms: int, age_ms: int) -> Chance | None:
        like = [
            cell for cell in self._by_attempt.get(attempt, ())
            if _distance(cell.delay_ms, delay_ms) <= _NEAR and _distance(cell.age_ms, age_ms) <= _NEAR
        ]  # fmt: skip
        delays_ms, ages_ms = [cell.delay_ms for cell in like], [cell.age_ms for cell in like]
        if not like or not (_within(delay_ms, delays_ms) and _within(age_ms, ages_ms)):
            return None
        low, likely, high = chance(sum(cell.recovered for cell in like), sum(cell.ended for cell in like))
        # Of an outage, twice the time brings up to twice the recoveries.
        off = max(_distance(delay_ms, _middle(like, delays_ms)), _distance(age_ms, _middle(like, ages_ms)))
        return Chance(low / off, likely, min(1.0, high * off))

    def _estimate_recovered(self, age_ms: int) -> float:
        """Estimate the part of the letters that was seen to recover up to an age."""
        return self._parts[bisect_right(self._ages_ms, age_ms)]


def _recovered_by_age(evidence: Evidence) -> tuple[list[int], list[float]]:
    """List ages, and the part that had recovered before the first, up to the first, and so on."""
    reach = compute_survival(evidence.likely(attempt) for attempt in evidence.cells)
    letters = {attempt: sum(cell.letters for cell in cells if cell.ended) for attempt, cells in evidence.cells.items()}
    gains = sorted(
        (cell.age_ms, reach[cell.attempt - 1] * cell.letters / letters[cell.attempt] * cell.recovered / cell.ended)
        for cell in evidence.every if cell.ended
    )  # fmt: skip
    parts = [0.0]
    for _, gain in gains:
        parts.append(min(1.0, parts[-1] + gain))
    return [age_ms for age_ms, _ in gains], parts


def _distance(one_ms: float, other_ms: float) -> float:
    """How many times the longer is the shorter; none is taken for 1 ms."""
    one_ms, other_ms = max(one_ms, 1.0), max(other_ms, 1.0)
    return max(one_ms, other_ms) / min(one_ms, other_ms)


def _within(time_ms: int, seen_ms: list[int]) -> bool:
    if min(seen_ms) / _SAME <= max(1, time_ms) <= max(*seen_ms, 1) * _SAME:
        return True
    return any(find_bin(time_ms) == find_bin(each) for each in seen_ms)


def _middle(cells: list[Cell], times_ms: list[int]) -> float:
    ended = sum(cell.ended for cell in cells)
    return math.exp(sum(cell.ended * math.log(max(1, ms)) for cell, ms in zip(cells, times_ms, strict=True)) / ended)


_WAYS_MAX = 8
_HOUR_MS = 3_600_000
# Of a part that all recovers something is left, or it would have no logarithm.
_LEAST_LEFT = 1e-12
_NOT_IN_OUTCOMES = ("stage", "message", "null_value", "headers.")


class Start(NamedTuple):
    """Letters of one kind from one topic that failed first within the hour that begins at `hour_ms`; `policy` decided on their
    first retry, and is empty where that does not matter."""

    team: str
    topic: str
    exception: str | None
    is_cause: bool
    hour_ms: int
    letters: int
    policy: str = ""


@dataclass(slots=True)
class Expected:
    """The results that are expected of some letters, on average.

    Attributes:
      unobserved_attempts: retries of an attempt of which nothing is known.
      unobserved_delays: other retries, after a delay or at an age at which none was observed.
      recovered, least, most: letters that recover: likely, and if every chance is at its bound.
      variance: of the number that recovers, if the likely chances are true.
      waits_ms: time from first failure to the retry that recovers, each with the number of letters.
    """

    letters: float = 0.0
    retries: float = 0.0
    unobserved_attempts: float = 0.0
    unobserved_delays: float = 0.0
    recovered: float = 0.0
    least: float = 0.0
    most: float = 0.0
    variance: float = 0.0
    waits_ms: list[tuple[int, float]] = field(default_factory=list)

    @property
    def parked(self) -> float:
        return self.letters - self.recovered

    @property
    def unobserved(self) -> float:
        return self.unobserved_attempts + self.unobserved_delays

    @property
    def recovered_low(self) -> float:
        """Fewer do not recover, with 95 % confidence."""
        return max(0.0, self.recovered - math.hypot(self.recovered - self.least, Z * math.sqrt(self.variance)))

    @property
    def recovered_high(self) -> float:
        """More do not recover, with 95 % confidence."""
        return min(self.letters, self.recovered + math.hypot(self.most - self.recovered, Z * math.sqrt(self.variance)))

    def add(self, other: Expected, times: float = 1.0) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        self.waits_ms += [(wait_ms, times * part) for wait_ms, part in other.waits_ms]

    def find_wait_ms(self, share: float) -> int | None:
        """Return the time (ms) after which this share of the recovering letters has recovered; None where none does."""
        reached = 0.0
        for wait_ms, letters in sorted(self.waits_ms):
            reached += letters
            if reached >= share * self.recovered - 1e-9:
                return wait_ms
        return None


_NOTHING = Observed(Evidence.from_cells(()))
_SUMS = ("letters", "retries", "unobserved_attempts", "unobserved_delays", "recovered", "least", "most", "variance")


def replay(registry: Registry, starts: Iterable[Start], evidence: Mapping[Kind, Evidence]) -> dict[Kind, Expected]:
    """Compute what becomes of each team's letters of each exception under a registry's policies."""
    observed: dict[Kind, list[tuple[Kind, Observed]]] = {}
    for kind, each in evidence.items():
        observed.setdefault(Kind(kind.team, kind.exception), []).append((kind, Observed(each)))
    by_kind: dict[Kind, Expected] = {}
    for start in starts:
        kind = Kind(start.team, start.exception)
        known = next((each for one, each in observed.get(kind, ()) if _is_of(start, one)), _NOTHING)
        ways = min(start.letters, _WAYS_MAX)
        for way in range(ways):
            expected = _walk(registry.route(start.topic), start, known, (way + 0.5) / ways)
            by_kind.setdefault(kind, Expected()).add(expected, start.letters / ways)
    return by_kind


def _is_of(start: Start, kind: Kind) -> bool:
    return (not kind.topics or start.topic in kind.topics) and (not kind.policies or start.policy in kind.policies)


def list_unjudged_rules(registry: Registry, starts: Iterable[Start]) -> list[str]:
    """List rules of these letters' routes with conditions on what outcomes do not contain."""
    routes = {route.name: route for start in starts if (route := registry.route(start.topic)).rules}
    return sorted({
        rule.plan.name for route in routes.values() for rule in route.rules
        for condition in rule.conditions if condition.key.startswith(_NOT_IN_OUTCOMES)
    })  # fmt: skip


@dataclass(slots=True)
class _Bounds:
    """The part that recovers by some retries, if their chances are at their bounds.

    What was observed of each attempt does not depend on the others, so not all are at their bounds at once: the distances of the
    logarithms are added as squares (G. Y. Zou, A. Donner, Statistics in Medicine 27 (2008) 1693-1702). Nothing is known of what
    was not observed, and it is at its bound.
    """

    left: float = 0.0
    above: float = 0.0
    below: float = 0.0
    is_observed: bool = True

    def add_retry(self, chance: Chance, is_observed: bool) -> None:
        self.is_observed = self.is_observed and is_observed
        if is_observed:
            low, likely, high = (math.log(max(_LEAST_LEFT, 1 - each)) for each in chance)
            self.left += likely
            self.above += (low - likely) ** 2
            self.below += (likely - high) ** 2

    def least(self) -> float:
        return 1 - math.exp(min(0.0, self.left + math.sqrt(self.above)))

    def most(self) -> float:
        return 1 - math.exp(self.left - math.sqrt(self.below)) if self.is_observed else 1.0


def _walk(route: Route, start: Start, observed: Observed, draw: float) -> Expected:
    """Compute what is expected of one letter that first failed at the fraction `draw` of its hour."""
    expected = Expected(letters=1.0)
    begun_ms = start.hour_ms + int(draw * _HOUR_MS)
    left, bounds = 1.0, _Bounds()
    for attempt, failed_ms, due_ms in iterate_retries(route, start.exception, start.is_cause, begun_ms, draw):
        chance, is_observed = observed.estimate_retry(attempt, due_ms - failed_ms, due_ms - begun_ms, failed_ms - begun_ms)
        expected.retries += left
        if attempt > observed.attempts:
            expected.unobserved_attempts += left
        elif not is_observed:
            expected.unobserved_delays += left
        if left * chance.likely > 0:
            expected.waits_ms.append((due_ms - begun_ms, left * chance.likely))
        left *= 1 - chance.likely
        bounds.add_retry(chance, is_observed)
    expected.recovered, expected.least, expected.most = 1 - left, bounds.least(), bounds.most()
    expected.variance = left * (1 - left)
    return expected


# More than any policy allows in practice, and few enough to compute.
_ATTEMPTS_MAX = 200
# Evenly spread, however many are taken: the fraction of the golden ratio.
_SPREAD = 0.6180339887
# So many letters, spread over a day: jitter and quiet hours show.
_WAYS = 8
_DAY_MS = 86_400_000
Causes = Mapping[tuple[str, str, str | None], bool]


def plan_delays(registry: Registry, kinds: Iterable[Kind], is_cause: Causes) -> dict[Kind, list[list[int]]]:
    """Compute by kind the delays (ms) of each attempt of sample letters that always fail; kinds without a policy are left out.
    `is_cause` tells by team, topic and exception, whether this is always the root cause."""
    found = {}
    for kind in kinds:
        routes = [
            (route, is_cause.get((kind.team, topic, kind.exception), False))
            for topic in kind.topics for route in _narrow_route(registry.route(topic), kind, registry)
        ]  # fmt: skip
        delays_ms: dict[int, list[int]] = {}
        for route, is_root in routes:
            for way in range(_WAYS):
                begun_ms, draw = way * _DAY_MS // _WAYS, (way + 0.5) / _WAYS
                for attempt, failed_ms, due_ms in iterate_retries(route, kind.exception, is_root, begun_ms, draw):
                    delays_ms.setdefault(attempt, []).append(due_ms - failed_ms)
        if routes:
            found[kind] = [delays_ms[attempt] for attempt in sorted(delays_ms)]
    return found


def _narrow_route(route: Route, kind: Kind, registry: Registry) -> list[Route]:
    """Narrow the route of a topic to such letters; where a rule asks what outcomes do not tell, to that rule alone."""
    if route is registry.default:
        return []
    first = route.plan(Failure(exception=kind.exception), attempt=1, age_ms=0, headers=(), null_value=False)
    if not kind.policies or first.name in kind.policies:
        return [route]
    return [replace(route, default_plan=plan, rules=()) for plan in route.plans() if plan.name in kind.policies]


def iterate_retries(
    route: Route, exception: str | None, is_cause: bool, begun_ms: int, draw: float
) -> Iterator[tuple[int, int, int]]:
    """Yield attempt, time of failure and due time of every retry that a letter gets which always fails."""
    failure = Failure(exception=exception, cause=exception if is_cause else None)
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
