"""How do teams and policies compare: what became of their letters, how fast, how late, and at what cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData, Window
from pyspark.sql import functions as F

from backoff import duration_text
from retry.analytics.advice.choose_attempts import round_delay
from retry.analytics.episodes import Sums, bound_share, count_effective_of_sums
from retry.telemetry.outcomes import PARK

# Enough for exact percentiles of ten thousand values, and for a rank error of 1 in 10,000 of any number.
_PERCENTILE_ACCURACY = 10_000
_PERCENTILES = (50, 90, 99)
_COLUMNS = ("team", "policy", "exception")
_ENDS = ("recovered", "parked", "expired", "discarded")
_PARTS = 64
_ABOUT = {"all": (), "team": ("team",), "policy": ("team", "policy"), "exception": ("team", "exception")}


def sum_groups(grouped: GroupedData, *more: Column) -> DataFrame:
    """Count what became of each group's letters, how fast, and at what cost, in one transform that reads them once.

    Takes rows of `retry.analytics.questions.fates`, and reads `fate`, `retries`, `bytes`, `assumed`, `watched_ms`.
    Gives the group's columns, `more` aggregates, and

    - `letters`, `recovered`, `parked`, `expired`, `discarded`, `unknown` (none of these yet), of these `waiting` (for their next
      retry to be sent); `recovery`: the share that recovered of those that did or were parked, null where none was; `assumed`:
      recoveries of which no sample tells
    - `retries`, their `bytes`, and of these `wasted`, `wasted_bytes`: those sent for letters that were parked in the end. A retry
      that failed and was followed by a better one is not wasted: nobody could know
    - `p50_ms`, `p90_ms`, `p99_ms`, `max_ms` from the first failure until the retry that recovered was sent; only of what
      recovered: what still fails has no such time, and is in the curve of `retry.analytics.questions.recovery`
    """
    fate = F.col("fate")
    of_parked = fate.isin("parked", "expired")
    recovered_ms = F.when(fate == "recovered", F.col("watched_ms"))
    ended = F.col("letters") - F.col("unknown") - F.col("discarded")
    aggregates = [
        F.count("*").alias("letters"), *(F.count_if(fate == end).alias(end) for end in _ENDS),
        F.count_if(~fate.isin(*_ENDS)).alias("unknown"), F.count_if(fate == "waiting").alias("waiting"),
        F.sum("assumed").alias("assumed"), F.sum("retries").alias("retries"), F.sum("bytes").alias("bytes"),
        F.sum(F.when(of_parked, F.col("retries")).otherwise(0)).alias("wasted"),
        F.sum(F.when(of_parked, F.col("bytes")).otherwise(0)).alias("wasted_bytes"),
        *_percentiles(recovered_ms),
    ]  # fmt: skip
    return _spread(grouped.agg(*more, *aggregates)).withColumn("recovery", F.col("recovered") / F.when(ended > 0, ended))


# Which share recovers, as far as blocks of six hours tell: the letters of one may have recovered, or failed, for one reason.

_BLOCK_MS = 6 * 3_600_000


def sum_blocks(histories: DataFrame, abouts: Iterable[Sequence[str]], *columns: str) -> DataFrame:
    """Sum up the blocks of six hours in which letters failed first, for each group of some columns: the fields of `Sums`, where
    an event is a letter that recovered, of those that did or were parked."""
    block = F.expr(f"first_failed_ms - pmod(first_failed_ms, {_BLOCK_MS})").alias("block")
    has_recovered, has_ended = F.col("fate") == "recovered", F.col("fate").isin("recovered", "parked", "expired")
    counted = histories.groupBy(*columns, block).agg(F.count_if(has_recovered).alias("e"), F.count_if(has_ended).alias("n"))
    sets = [[F.col(name) for name in (*about, "block")] for about in abouts]
    blocks = counted.groupingSets(sets, *map(F.col, (*columns, "block"))).agg(
        F.grouping_id().alias("_set"), F.sum("e").cast("double").alias("e"), F.sum("n").cast("double").alias("n")
    )
    summed = zip(Sums._fields, ("1", "e", "n", "e * e", "e * n", "n * n"), strict=True)
    sums = [F.sum(F.expr(each)).alias(f"_{name}") for name, each in summed]
    # The last bit is the block's, and all sets have one.
    return blocks.where("n > 0").groupBy(F.shiftright("_set", 1).alias("_id"), *columns).agg(*sums)


def bound_recovery(row: dict[str, Any]) -> dict[str, Any]:
    """Add to a row of `sum_groups`, with the columns of `sum_blocks`, the bounds `recovery_low` and `recovery_high`, None where
    nothing ended, how many `episodes` they are of, and `effect`: how many letters count as an independent one."""
    sums = Sums(*(row.pop(f"_{name}") or 0 for name in Sums._fields))
    effective = count_effective_of_sums(*sums)
    low, _, high = bound_share(sums.events, sums.letters, effective) if sums.letters else (None, None, None)
    effect = sums.letters / effective if effective else 1.0
    return row | {"recovery_low": low, "recovery_high": high, "episodes": int(sums.episodes), "effect": effect}


def sum_largest_groups(histories: DataFrame, most: int) -> DataFrame:
    """Sum up all letters, and those of each team, policy and kind of failure, as `sum_groups` does, in one pass.

    Gives also `of` (all, team, policy, exception); columns that a row is not about are null. Of each it gives those that are
    among the `most` by letters, by letters that recovered, or by wasted retries.
    """
    grouped = histories.groupingSets([[*map(F.col, about)] for about in _ABOUT.values()], *map(F.col, _COLUMNS))
    # Spark's id of a row's grouping has a bit for each column that it is not about, the first column's the highest.
    ids = {sum(4 >> n for n, name in enumerate(_COLUMNS) if name not in about): of for of, about in _ABOUT.items()}
    of = F.create_map(*[F.lit(each) for pair in ids.items() for each in pair])[F.col("_id").cast("int")]
    summed = _join_blocks(sum_groups(grouped, F.grouping_id().alias("_id")), sum_blocks(histories, _ABOUT.values(), *_COLUMNS))
    summed = summed.withColumn("of", of).drop("_id")
    # There may be any number of kinds: many tasks find the largest of a part of them each, and one the largest of these.
    summed = summed.withColumn("_part", F.pmod(F.hash(*_COLUMNS), F.lit(_PARTS)))
    for places in (("of", "_part"), ("of",)):
        by = {name: Window.partitionBy(*places).orderBy(F.desc(name), *_COLUMNS) for name in ("letters", "recovered", "wasted")}
        ranks = {f"_by_{name}": F.row_number().over(window) for name, window in by.items()}
        summed = summed.withColumns(ranks).where(F.least(*ranks) <= most).drop(*ranks)
    return summed.drop("_part")


def _join_blocks(summed: DataFrame, blocks: DataFrame) -> DataFrame:
    """Join sums with those of their blocks; columns that a row is not about are null on both sides."""
    keys = [name for name in ("_id", *_COLUMNS) if name in summed.columns]
    named = blocks.select(*[F.col(name).alias(f"b{name}") for name in keys], *[f"_{name}" for name in Sums._fields])
    same = [F.col(name).eqNullSafe(F.col(f"b{name}")) for name in keys]
    return summed.join(named, on=same, how="left").drop(*[f"b{name}" for name in keys])


def count_parked_by_reason(parked: DataFrame) -> DataFrame:
    """Count parked letters by the reason for which they were parked.

    Reads `team`, `policy`, `reason`, `decision`, `stands`. Gives the first three, and `letters`; the reason is `unknown` where
    the outcome has none.
    """
    reason = F.coalesce("reason", F.lit("unknown")).alias("reason")
    rests = parked.where(F.col("stands") & (F.col("decision") == PARK))
    return rests.groupBy("team", "policy", reason).agg(F.count("*").alias("letters"))


def measure_lateness(attempts: DataFrame) -> DataFrame:
    """Measure how long after its due time a retry was sent, where the target topic keeps the time of appending.

    Reads `team`, `policy`, `sent_ms`, `due_ms`. Gives `team`, `policy`, `measured`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms`.
    """
    measured = attempts.where(F.col("sent_ms").isNotNull() & F.col("due_ms").isNotNull())
    late_ms = F.col("sent_ms") - F.col("due_ms")
    late = measured.groupBy("team", "policy").agg(F.count("*").alias("measured"), *_percentiles(late_ms))
    return _spread(late).select("team", "policy", "measured", *[f"p{p}_ms" for p in _PERCENTILES], "max_ms")


def _percentiles(milliseconds: Column) -> tuple[Column, Column]:
    quantiles = F.percentile_approx(milliseconds, [p / 100 for p in _PERCENTILES], _PERCENTILE_ACCURACY)
    return quantiles.alias("_quantiles"), F.max(milliseconds).alias("max_ms")


def _spread(frame: DataFrame) -> DataFrame:
    return frame.withColumns({f"p{p}_ms": F.get("_quantiles", F.lit(n)) for n, p in enumerate(_PERCENTILES)}).drop("_quantiles")


# What is different from the period before, and which policies were changed in between.
#
# Outcomes name the policy that decided, and not what it said: a change shows in what it did. So it is told of a policy when
# letters wait clearly longer or shorter before an attempt than they did, or are parked after another number of attempts.

Row = dict[str, Any]
_KEYS = ("team", "policy")
_COUNTS = ("letters", "retries", "recovered", "parked", "expired", "unknown")
# Fewer letters tell nothing of a delay that jitter spreads, and steps of 41 % are what delays are told apart by.
_ENOUGH, _OTHER = 20, 1.42
_DELAY_ACCURACY = 1_000
# A hundred policies are shown, and few have more than ten attempts; names come from letters, and there may be any number.
_DOINGS_MAX = 10_000


def count_by_policy(histories: DataFrame, most: int) -> list[Row]:
    """Count what `sum_groups` does for the policies with most letters, with the bounds of their recovery."""
    largest = sum_groups(histories.groupBy(*_KEYS)).orderBy(F.desc("letters"), *_KEYS).limit(most)
    blocks = sum_blocks(histories, [_KEYS], *_KEYS).drop("_id")
    return [bound_recovery(row.asDict()) for row in _join_blocks(largest, blocks).collect()]


def list_policy_doings(attempts: DataFrame, parked: DataFrame) -> list[Row]:
    """List what each policy did: `team`, `policy`, `attempt`, `letters`, and the median `delay_ms` before the attempt. Where
    letters were parked after the last attempt, `attempt` is its number, `delay_ms` is None. Operators' actions are left out."""
    delay_ms = F.percentile_approx("delay_ms", 0.5, _DELAY_ACCURACY).alias("delay_ms")
    delays = attempts.where("action_kind is null").groupBy(*_KEYS, "attempt").agg(F.count("*").alias("letters"), delay_ms)
    last = parked.where("by_policy and reason = 'max_attempts'").groupBy(*_KEYS).agg(
        (F.max("attempt") - 1).alias("attempt"), F.count("*").alias("letters"), F.lit(None).cast("long").alias("delay_ms")
    )  # fmt: skip
    most = delays.unionByName(last).orderBy(F.desc("letters"), *_KEYS, "attempt").limit(_DOINGS_MAX)
    return [row.asDict() for row in most.collect()]


def compare_periods(now: Iterable[Row], before: Iterable[Row], did: Iterable[Row], did_before: Iterable[Row]) -> list[Row]:
    """Compare two periods: return a row for each policy of either, the policy whose retries differ most first.

    Args:
      now, before: `count_by_policy`, of the period and of the one before.
      did, did_before: `list_policy_doings` of both.

    Gives `team`, `policy`, of both periods (with `_before`) `letters`, `retries`, `recovered`, `parked`, `expired`, `unknown` and
    `recovery`, None where nothing ended; `is_clear`: whether the 95 % intervals of `recovery` are apart; and `policy_changes`, a
    text for each change of what the policy does.
    """
    place_of = itemgetter("team", "policy")
    rows_now, rows_before = ({place_of(row): row for row in rows} for rows in (now, before))
    plans, plans_before = _plans(did), _plans(did_before)
    made = []
    for place in {**rows_now, **rows_before}:
        one, other = rows_now.get(place, {}), rows_before.get(place, {})
        row = dict(zip(_KEYS, place, strict=True))
        for name in _COUNTS:
            row |= {name: one.get(name, 0), f"{name}_before": other.get(name, 0)}
        row |= {"recovery": one.get("recovery"), "recovery_before": other.get("recovery"), "is_clear": _is_apart(one, other)}
        made.append(row | {"policy_changes": list(_differences(plans.get(place, {}), plans_before.get(place, {})))})
    return sorted(made, key=lambda row: (-abs(row["retries"] - row["retries_before"]), *place_of(row)))


def _plans(did: Iterable[Row]) -> dict[tuple[str, ...], dict[int | None, Row]]:
    """Index the rows by policy and attempt; under None is the last attempt before letters were parked."""
    found: dict[tuple[str, ...], dict[int | None, Row]] = {}
    for row in did:
        attempt = None if row["delay_ms"] is None else row["attempt"]
        found.setdefault((row["team"], row["policy"]), {})[attempt] = row
    return found


def _differences(now: Mapping[int | None, Row], before: Mapping[int | None, Row]) -> Iterator[str]:
    last, last_before = now.get(None), before.get(None)
    if last and last_before and last["attempt"] != last_before["attempt"]:
        yield f"max_attempts {last_before['attempt']} → {last['attempt']}"
    for attempt in sorted(n for n in now if n is not None and n in before):
        one, other = now[attempt], before[attempt]
        shorter, longer = sorted(max(1, row["delay_ms"]) for row in (one, other))
        if min(one["letters"], other["letters"]) >= _ENOUGH and longer > _OTHER * shorter:
            delays = " → ".join(duration_text(round_delay(row["delay_ms"])) for row in (other, one))
            yield f"attempt {attempt} after {delays}"


def _is_apart(one: Row, other: Row) -> bool:
    if one.get("recovery") is None or other.get("recovery") is None:
        return False
    return bool(one["recovery_low"] > other["recovery_high"] or one["recovery_high"] < other["recovery_low"])
