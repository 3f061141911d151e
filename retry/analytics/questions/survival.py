"""How likely is recovery by attempt N, or within time T: survival curves, where to survive is to go on failing.

A retry whose end is not known yet, and a letter that was parked before it could recover, are *censored*: they count as long as
they were watched, and then leave. To leave them out would make early recoveries look better than they are, to count them as
failures would make late ones look worse. It is assumed that those who left would have gone on like those who stayed.

    S(k) = Π (1 - dᵢ / nᵢ) over i ≤ k          dᵢ recovered of the nᵢ that were at risk

E. L. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", JASA 53 (1958) 457-481. The
variance is Greenwood's (M. Greenwood, "The errors of sampling of the survivorship tables", 1926), S² · Σ dᵢ / (nᵢ (nᵢ - dᵢ));
the interval that of log(-log S), which stays between 0 and 1 (J. D. Kalbfleisch, R. L. Prentice, "The Statistical Analysis of
Failure Time Data", 1980). Where nobody or everybody recovered the variance is 0, which nobody believes: there it is
Wilson's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from retry.analytics.questions.confidence import wilson
from retry.analytics.statistics.proportions import Z

# Steps of time in which recoveries are told apart: each is 9 % longer than the one before.
_STEPS_PER_DOUBLING = 8


def by_attempt(attempts: DataFrame, *keys: str) -> DataFrame:
    """The curve over attempts, for each value of `keys` (columns that may be null).

    Reads keys, `attempt`, `fate`. Gives keys, `attempt`, `at_risk`, `recovered`, `hazard` (the chance of this attempt alone, with
    `hazard_low` and `hazard_high`), and `survival` after it, with `survival_low` and `survival_high`.
    """
    counted = (
        attempts.where(F.col("fate").isin("recovered", "failed"))
        .groupBy(*keys, "attempt")
        .agg(F.count("*").alias("at_risk"), F.count_if(F.col("fate") == "recovered").alias("recovered"))
    )
    low, high = wilson(F.col("recovered"), F.col("at_risk"))
    return (
        _curve(counted, "attempt", *keys)
        .withColumns({"hazard": F.col("recovered") / F.col("at_risk"), "hazard_low": low, "hazard_high": high})
        .select(*keys, "attempt", "at_risk", "recovered", "hazard", "hazard_low", "hazard_high", *_SURVIVAL)
    )


def by_time(histories: DataFrame, *keys: str) -> DataFrame:
    """The curve over the time from the first failure until the retry that recovered was sent.

    Reads keys, `fate`, `watched_ms` of `retry.analytics.questions.histories`. Gives keys, `time_ms` (the end of a step of 9 %),
    `at_risk`, `recovered`, and `survival` after it, with `survival_low` and `survival_high`.
    """
    step = F.ceil(F.log2(F.greatest(F.col("watched_ms"), F.lit(1)).cast("double")) * _STEPS_PER_DOUBLING)
    stepped = (
        histories.where(F.col("watched_ms").isNotNull())
        .withColumn("step", step)
        .groupBy(*keys, "step")
        .agg(F.count("*").alias("left"), F.count_if(F.col("fate") == "recovered").alias("recovered"))
    )
    later = _window(keys).orderBy("step").rowsBetween(Window.currentRow, Window.unboundedFollowing)
    counted = stepped.withColumn("at_risk", F.sum("left").over(later)).where(F.col("recovered") > 0)
    return (
        _curve(counted, "step", *keys)
        .withColumn("time_ms", F.round(F.pow(F.lit(2.0), F.col("step") / _STEPS_PER_DOUBLING)).cast("long"))
        .select(*keys, "time_ms", "at_risk", "recovered", *_SURVIVAL)
    )


_SURVIVAL = ("survival", "survival_low", "survival_high")


def _curve(counted: DataFrame, order: str, *keys: str) -> DataFrame:
    """`at_risk` and `recovered` in the order of a column → the curve."""
    up_to = _window(keys).orderBy(order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stayed = F.col("at_risk") - F.col("recovered")
    summed = F.col("recovered") / (F.col("at_risk") * F.when(stayed > 0, stayed))
    # As a product, not as a sum of logarithms: where everybody recovers it is 0.
    factors = F.collect_list(stayed / F.col("at_risk")).over(up_to)
    return (
        counted.withColumn("survival", F.aggregate(factors, F.lit(1.0), lambda product, each: product * each))
        .withColumn("greenwood", F.sum(summed).over(up_to))
        .withColumns(dict(zip(("survival_low", "survival_high"), _interval(), strict=True)))
    )


def _interval() -> tuple[Column, Column]:
    survival, at_risk = F.col("survival"), F.col("at_risk")
    is_inside = (survival > 0) & (survival < 1)
    inside = F.when(is_inside, survival)
    reach = F.exp(Z * F.sqrt(F.col("greenwood")) / F.abs(F.log(inside)))
    low, high = wilson(survival * at_risk, at_risk)
    return F.when(is_inside, F.pow(inside, reach)).otherwise(low), F.when(is_inside, F.pow(inside, 1 / reach)).otherwise(high)


def _window(keys: tuple[str, ...]) -> WindowSpec:
    return Window.partitionBy(*keys) if keys else Window.partitionBy(F.lit(0))
