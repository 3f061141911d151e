"""Which part of all letters has recovered, was parked, or expired after so many attempts, or so much time.

The three compete: who was parked cannot recover any more. So a letter that was parked does not leave as if by chance, which
would make recovery look sure for those that go on; it counts as what it is, and only what is not decided yet is *censored*. It
counts as long as it was watched. It is assumed that those who left undecided would have gone on like those who stayed.

    S(k) = Π (1 - dᵢ / nᵢ) over i ≤ k          dᵢ decided, in whatever way, of the nᵢ that were at risk
    F(k) = Σ S(i - 1) · eᵢ / nᵢ over i ≤ k     eᵢ of them in this way; all F and S are 1 together

O. O. Aalen, S. Johansen, "An empirical transition matrix for non-homogeneous Markov chains based on censored observations",
Scandinavian Journal of Statistics 5 (1978) 141-150. The variance is the one of E. Marubini and M. G. Valsecchi, "Analysing
Survival Data from Clinical Trials and Observational Studies", 1995; for S, Greenwood's. The interval is that of log(-log F),
which stays between 0 and 1. Where nothing or everything was decided in one way the variance is 0, which nobody believes: there
it is Wilson's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from retry.analytics.statistics.proportions import Chance, Z, chance

# Sums of many fractions miss 0 and 1 by less.
_ROUNDING = 1e-12


class Step(NamedTuple):
    """Letters at risk at one place of an axis, and in which way how many of them were decided there."""

    at_risk: int
    events: Mapping[str, int]


class Incidence(NamedTuple):
    """The part of all letters that was decided in each way up to here, and the part that goes on failing."""

    parts: Mapping[str, Chance]
    failing: Chance


@dataclass(slots=True)
class _Way:
    """One way, and the sums that its variance is made of."""

    part: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    decided: float = 0.0
    own: float = 0.0
    own_weighted: float = 0.0
    own_squares: float = 0.0

    def add_step(self, failing: float, at_risk: int, decided: int, own: int) -> None:
        self.part += failing * own / at_risk
        # Where nobody is left nothing follows whose variance this could be part of.
        spread = decided / (at_risk * (at_risk - decided)) if decided < at_risk else 0.0
        self.decided += spread
        self.products += spread * self.part
        self.squares += spread * self.part**2
        self.own_squares += failing**2 * own * (at_risk - own) / at_risk**3
        self.own += failing * own / at_risk**2
        self.own_weighted += failing * own / at_risk**2 * self.part

    def variance(self) -> float:
        others = self.part**2 * self.decided - 2 * self.part * self.products + self.squares
        return max(0.0, others + self.own_squares - 2 * (self.part * self.own - self.own_weighted))


def cumulative(steps: Iterable[Step], ways: Iterable[str]) -> Iterator[Incidence]:
    """The curves: an answer for each step, in their order; a step at which nobody is at risk changes nothing.

    >>> [each.parts["recovered"].likely for each in cumulative([Step(4, {"recovered": 2, "parked": 1})], ["recovered"])]
    [0.5]
    """
    failing, greenwood = 1.0, 0.0
    each = {way: _Way() for way in ways}
    for at_risk, events in steps:
        decided = sum(events.values())
        if at_risk:
            for way, sums in each.items():
                sums.add_step(failing, at_risk, decided, events.get(way, 0))
            failing *= (at_risk - decided) / at_risk
            greenwood += decided / (at_risk * (at_risk - decided)) if decided < at_risk else 0.0
        yield Incidence(
            {way: _bound_chance(sums.part, sums.variance(), at_risk) for way, sums in each.items()},
            _bound_chance(failing, failing**2 * greenwood, at_risk),
        )


def _bound_chance(part: float, variance: float, at_risk: int) -> Chance:
    # A sum of fractions that are one may be a little more.
    part = min(1.0, part)
    if not _ROUNDING < part < 1 - _ROUNDING or variance <= 0:
        low, _, high = chance(part * at_risk, at_risk)
        return Chance(min(low, part), part, max(high, part))
    reach = math.exp(Z * math.sqrt(variance) / (part * abs(math.log(part))))
    return Chance(part**reach, part, part ** (1 / reach))
