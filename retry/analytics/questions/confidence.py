"""Confidence interval of a proportion, as Spark columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from retry.analytics.statistics.proportions import Z


def wilson(successes: Column, trials: Column) -> tuple[Column, Column]:
    """Lowest and highest proportion that the counts speak for, with 95 % confidence; null where nothing was tried.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927) 209-212. Unlike the
    usual ± interval it holds for few trials, and where all or none succeed.
    """
    tried = F.when(trials > 0, trials.cast("double"))
    share = successes / tried
    middle = (share + Z**2 / (2 * tried)) / (1 + Z**2 / tried)
    reach = Z / (1 + Z**2 / tried) * F.sqrt(share * (1 - share) / tried + Z**2 / (4 * tried * tried))
    return F.greatest(middle - reach, F.lit(0.0)), F.least(middle + reach, F.lit(1.0))
