"""Between which bounds does a weighted sum of proportions lie.

The interval is that of M. P. Fay and E. J. Feuer, "Confidence intervals for directly standardized rates", Statistics in
Medicine 16 (1997) 791-801: a gamma distribution with the mean and variance of the sum, for the upper bound with one more event
where an event weighs most. Where nothing was seen to happen it is the exact bound of the part that was seen least. In all
simulations that were published it holds at least as often as it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from retry.analytics.statistics.proportions import Chance

# Each side, so that both bounds hold together with 95 %.
_SIDE = 0.025
_CLOSE = 1e-12


class Rate(NamedTuple):
    """`events` of `trials`, which stand for the part `weight` of the whole."""

    weight: float
    events: int
    trials: int


def weight_rates(rates: Iterable[Rate]) -> Chance:
    """The sum of weight · events / trials with its bounds; every one has trials.

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
    """Below which value lies that part of a gamma distribution of scale 1.

    Newton's method on the logarithm, from the approximation of E. B. Wilson and M. M. Hilferty (1931).

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
