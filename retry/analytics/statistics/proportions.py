"""Between which bounds does a proportion lie that was counted."""

from __future__ import annotations

import math
from typing import NamedTuple

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
    """A proportion with the interval of E. B. Wilson, JASA 22 (1927) 209-212, which holds for few trials, too.

    >>> [round(each, 3) for each in chance(0, 100)]
    [0.0, 0.0, 0.037]
    """
    if trials <= 0:
        return UNKNOWN
    share, z2 = successes / trials, Z**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    reach = Z / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return Chance(max(0.0, middle - reach), share, min(1.0, middle + reach))
