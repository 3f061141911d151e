"""What counts allow one to say, and how surely. Pure: numbers in, numbers out; neither Spark nor chance.

Between which bounds a proportion lies, and a weighted sum of proportions; whether two groups may be counted together; and which
part has recovered, was parked, or expired after so many attempts, or so much time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# Between which bounds does a proportion lie that was counted.

# Two-sided 95 %.
Z = 1.959964


class Chance(NamedTuple):
    """A proportion that was counted, and the bounds of the true one with 95 % confidence."""

    low: float
    likely: float
    high: float


# Of what was never tried.
UNKNOWN = Chance(0.0, 0.0, 1.0)


def chance(successes: float, trials: float) -> Chance:
    """Compute a proportion with the interval of E. B. Wilson, JASA 22 (1927) 209-212, which holds for few trials, too.

    >>> [round(each, 3) for each in chance(0, 100)]
    [0.0, 0.0, 0.037]
    """
    if trials <= 0:
        return UNKNOWN
    share, z2 = successes / trials, Z**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    reach = Z / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return Chance(max(0.0, middle - reach), share, min(1.0, middle + reach))


# Between which bounds does a weighted sum of proportions lie.
#
# The interval is that of M. P. Fay and E. J. Feuer, "Confidence intervals for directly standardized rates", Statistics in
# Medicine 16 (1997) 791-801: a gamma distribution with the mean and variance of the sum, for the upper bound with one more
# event where an event weighs most. Where nothing was seen to happen it is the exact bound of the part that was seen least. In
# all simulations that were published it holds at least as often as it says.

# Each side, so that both bounds hold together with 95 %.
_SIDE = 0.025
_CLOSE = 1e-12


class Rate(NamedTuple):
    """Events of so many independent trials, which stand for the part `weight` of the whole."""

    weight: float
    events: float
    trials: float


def weight_rates(rates: Iterable[Rate]) -> Chance:
    """Compute the sum of weight · events / trials over all rates, with its bounds; every rate has trials.

    >>> [round(each, 4) for each in weight_rates([Rate(0.5, 0, 100), Rate(0.25, 0, 25)])]
    [0.0, 0.0, 0.0369]
    """
    tried = list(rates)
    likely = sum(each.weight * each.events / each.trials for each in tried)
    variance = sum(each.events * (each.weight / each.trials) ** 2 for each in tried)
    most = max((each.weight / each.trials for each in tried), default=0.0)
    low = _gamma(likely, variance, _SIDE) if likely else 0.0
    return Chance(low, likely, _gamma(likely + most, variance + most**2, 1 - _SIDE) if most else 0.0)


def _gamma(mean: float, variance: float, part: float) -> float:
    return gamma_quantile(mean**2 / variance, part) * variance / mean


def gamma_quantile(shape: float, part: float) -> float:
    """Compute below which value lies that part of a gamma distribution of scale 1: Newton's method on the logarithm, from the
    approximation of E. B. Wilson and M. M. Hilferty (1931).

    >>> round(gamma_quantile(1, 0.975), 6)
    3.688879
    """
    normal = math.copysign(1.959963984540054, part - 0.5)
    start = shape * (1 - 1 / (9 * shape) + normal / (3 * math.sqrt(shape))) ** 3
    x = start if start > 0 else math.exp((math.log(part) + math.lgamma(shape + 1)) / shape)
    for _ in range(100):
        density = math.exp(shape * math.log(x) - x - math.lgamma(shape))
        step = (_lower_gamma(shape, x) - part) / density
        x *= math.exp(-max(-1.0, min(1.0, step)))
        if abs(step) < _CLOSE:
            break
    return x


def _lower_gamma(shape: float, x: float) -> float:
    """The part of a gamma distribution of scale 1 that lies below x: a series, or a continued fraction where that is shorter."""
    if x <= 0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        above = shape
        while term > total * 1e-16:
            above += 1
            term *= x / above
            total += term
        return front * total
    # Lentz's method; W. H. Press et al., "Numerical Recipes", 6.2.
    b = x + 1 - shape
    c, d = math.inf, 1 / b
    fraction = d
    for n in range(1, 10_000):
        a = -n * (n - shape)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return 1 - front * fraction


def chi_square_quantile(degrees: int, part: float) -> float:
    """Compute below which value lies that part of a chi-square distribution.

    >>> round(chi_square_quantile(10, 0.05), 4)
    3.9403
    """
    return 2 * gamma_quantile(degrees / 2, part)


# Between which bounds does a proportion lie whose trials were not all independent, so that their number is no whole one.

_HALVINGS = 100


def clopper_pearson(successes: float, trials: float) -> tuple[float, float]:
    """Compute the exact 95 % interval of a proportion, for any numbers above 0.

    The interval is that of C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404-413.

    >>> [round(each, 4) for each in clopper_pearson(0, 10)]
    [0.0, 0.3085]
    """
    failures = trials - successes
    low = beta_quantile(successes, failures + 1, _SIDE) if successes > 0 else 0.0
    return low, beta_quantile(successes + 1, failures, 1 - _SIDE) if failures > 0 else 1.0


def beta_quantile(a: float, b: float, part: float) -> float:
    """Compute below which value lies that part of a beta distribution: by halving."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _lower_beta(a, b, middle) < part else (low, middle)
    return (low + high) / 2


def binomial_tail(least: int, trials: int, part: float) -> float:
    """Compute the chance that at least `least` of the trials succeed, where each succeeds with the chance `part`.

    >>> round(binomial_tail(1, 10, 0.5), 6), binomial_tail(0, 10, 0.5)
    (0.999023, 1.0)
    """
    return _lower_beta(least, trials - least + 1, part) if least > 0 else 1.0


def t_quantile(degrees: float) -> float:
    """Compute between which ± values 95 % of Student's t distribution lie.

    >>> round(t_quantile(4), 4)
    2.7764
    """
    x = beta_quantile(degrees / 2, 0.5, 2 * _SIDE)
    return math.sqrt(degrees * (1 - x) / x)


def _lower_beta(a: float, b: float, x: float) -> float:
    """The part of a beta distribution that lies below x: Lentz's continued fraction, W. H. Press et al., 6.4."""
    if not 0 < x < 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _lower_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for n in range(1, 10_000):
        for term in (
            n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n)),
            -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction


# May two groups be counted together, and did one recover more often than the other.
#
# Both ask R. A. Fisher's exact test (1922) of a table of two by two: of all tables with these sums, which part is at least as
# unlikely as this one. It needs no large numbers, and with small ones it errs towards "the same".

Counts = tuple[int, int]
# Tables as likely as the one at hand count as such, whatever the last digits of their logarithms.
_SAME = 1e-9


def compute_difference_chance(one: Counts, other: Counts) -> float:
    """Compute the chance that two groups with one common rate differ at least as much; each group is events and trials.

    >>> round(compute_difference_chance((1, 10), (9, 10)), 6)
    0.001093
    """
    likely = _tables(one, other)
    at = likely[one[0] - _least(one, other)]
    return min(1.0, math.fsum(math.exp(each) for each in likely if each <= at + _SAME))


def compute_more_often_chance(one: Counts, other: Counts) -> float:
    """Compute the chance that the first of two groups with one common rate has at least as many of the events as given.

    >>> round(compute_more_often_chance((9, 10), (1, 10)), 6)
    0.000547
    """
    return min(1.0, math.fsum(math.exp(each) for each in _tables(one, other)[one[0] - _least(one, other) :]))


def _least(one: Counts, other: Counts) -> int:
    return max(0, one[0] + other[0] - other[1])


def _tables(one: Counts, other: Counts) -> list[float]:
    """Logarithm of the probability of each number of events in the first group, from the fewest on: hypergeometric."""
    events, trials = one[0] + other[0], one[1] + other[1]
    most = min(events, one[1])
    whole = _choices(trials, events)
    return [_choices(one[1], n) + _choices(other[1], events - n) - whole for n in range(_least(one, other), most + 1)]


def _choices(of: int, chosen: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)


# Which part of all letters has recovered, was parked, or expired after so many attempts, or so much time.
#
# The three compete: who was parked cannot recover any more. So a letter that was parked does not leave as if by chance, which
# would make recovery look sure for those that go on; it counts as what it is, and only what is not decided yet is *censored*.
# It counts as long as it was watched. It is assumed that those who left undecided would have gone on like those who stayed.
#
#     S(k) = Π (1 - dᵢ / nᵢ) over i ≤ k          dᵢ decided, in whatever way, of the nᵢ that were at risk
#     F(k) = Σ S(i - 1) · eᵢ / nᵢ over i ≤ k     eᵢ of them in this way; all F and S are 1 together
#
# O. O. Aalen, S. Johansen, "An empirical transition matrix for non-homogeneous Markov chains based on censored observations",
# Scandinavian Journal of Statistics 5 (1978) 141-150. The variance is the one of E. Marubini and M. G. Valsecchi, "Analysing
# Survival Data from Clinical Trials and Observational Studies", 1995; for S, Greenwood's. The interval is that of log(-log F),
# which stays between 0 and 1. Where nothing or everything was decided in one way the variance is 0, which nobody believes:
# there it is Wilson's.

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
    part: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    decided: float = 0.0
    own: float = 0.0
    own_weighted: float = 0.0
    own_squares: float = 0.0

    def add_step(self, failing: float, at_risk: float, decided: float, own: float) -> None:
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


def compute_curves(steps: Iterable[Step], ways: Iterable[str], effect: float = 1.0) -> Iterator[Incidence]:
    """Yield the curves as one Incidence for each step, in order; a step at which nobody is at risk changes nothing.

    Where as many letters as `effect` tell no more than one (see `retry.analytics.episodes`), only the bounds become wider.

    >>> [each.parts["recovered"].likely for each in compute_curves([Step(4, {"recovered": 2, "parked": 1})], ["recovered"])]
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
            {way: _bound_chance(sums.part, sums.variance() * effect, at_risk / effect) for way, sums in each.items()},
            _bound_chance(failing, failing**2 * greenwood * effect, at_risk / effect),
        )


def _bound_chance(part: float, variance: float, at_risk: float) -> Chance:
    # A sum of fractions that are one may be a little more.
    part = min(1.0, part)
    if not _ROUNDING < part < 1 - _ROUNDING or variance <= 0:
        low, _, high = chance(part * at_risk, at_risk)
        return Chance(min(low, part), part, max(high, part))
    reach = math.exp(Z * math.sqrt(variance) / (part * abs(math.log(part))))
    return Chance(part**reach, part, part ** (1 / reach))
