"""What another policy file would have made of the failures of a period: the policies' own code decides, observed chances apply.

Letters of one kind that failed first in the same hour are walked through their retries together, along up to eight ways that
differ in their place in the hour and in their draws for jitter. On each way the part that still fails grows smaller with every
retry, by the chance that was observed of such retries; see `retry.analytics.advice.observed`. So no random numbers are drawn,
and a million letters cost what a thousand do.

A retry that was not observed, for its attempt, its delay or its age, may recover all letters or none: the bounds say so, and it
is counted apart. The bounds are also those of chance itself: of as many letters, not of their average. It is assumed that a
retry fails at once, and that nothing holds it up: pauses, rates, budgets and breakers are left out. Outcomes do not contain
message, headers, stage or value, so rules with such conditions match no letter; `unjudged_rules` names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.advice.observed import Observed
from retry.analytics.advice.plan import retries
from retry.analytics.statistics.proportions import Chance, Z
from retry.policies.registry import Registry
from retry.policies.route import Route

_WAYS_MAX = 8
_HOUR_MS = 3_600_000
# Of a part that all recovers something is left, or it would have no logarithm.
_LEAST_LEFT = 1e-12
_NOT_IN_OUTCOMES = ("stage", "message", "null_value", "headers.")


class Start(NamedTuple):
    """Letters of one kind from one topic that failed first within the hour that begins at `hour_ms`.

    Attributes:
      policy: that decided on their first retry; empty where that does not matter.
    """

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
        """Letters that do not recover."""
        return self.letters - self.recovered

    @property
    def unobserved(self) -> float:
        """Retries of which it is not known what they bring."""
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
        """Add another's letters, so many times."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        self.waits_ms += [(wait_ms, times * part) for wait_ms, part in other.waits_ms]

    def wait_ms(self, share: float) -> int | None:
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


def unjudged_rules(registry: Registry, starts: Iterable[Start]) -> list[str]:
    """Rules of these letters' routes with conditions on what outcomes do not contain."""
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
        """Add one more retry and its chance to recover."""
        self.is_observed = self.is_observed and is_observed
        if is_observed:
            low, likely, high = (math.log(max(_LEAST_LEFT, 1 - each)) for each in chance)
            self.left += likely
            self.above += (low - likely) ** 2
            self.below += (likely - high) ** 2

    def least(self) -> float:
        """If as little recovers as can be."""
        return 1 - math.exp(min(0.0, self.left + math.sqrt(self.above)))

    def most(self) -> float:
        """If as much recovers as can be."""
        return 1 - math.exp(self.left - math.sqrt(self.below)) if self.is_observed else 1.0


def _walk(route: Route, start: Start, observed: Observed, draw: float) -> Expected:
    """Compute what is expected of one letter that first failed at the fraction `draw` of its hour."""
    expected = Expected(letters=1.0)
    begun_ms = start.hour_ms + int(draw * _HOUR_MS)
    left, bounds = 1.0, _Bounds()
    for attempt, failed_ms, due_ms in retries(route, start.exception, start.is_cause, begun_ms, draw):
        chance, is_observed = observed.retry(attempt, due_ms - failed_ms, due_ms - begun_ms, failed_ms - begun_ms)
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
