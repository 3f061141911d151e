"""What is different from the period before, and which policies were changed in between.

Outcomes name the policy that decided, and not what it said: a change shows in what it did. So it is told of a policy when letters
wait clearly longer or shorter before an attempt than they did, or are parked after another number of attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backoff import duration_text
from retry.analytics.advice.delays import round_delay
from retry.analytics.questions.policies import sums

Row = dict[str, Any]
_KEYS = ("team", "policy")
_COUNTS = ("letters", "retries", "recovered", "parked", "expired", "unknown")
# Fewer letters tell nothing of a delay that jitter spreads, and steps of 41 % are what delays are told apart by.
_ENOUGH, _OTHER = 20, 1.42
_PERCENTILE_ACCURACY = 1_000


def by_policy(histories: DataFrame, most: int) -> list[Row]:
    """`retry.analytics.questions.policies.sums` of the policies with most letters."""
    largest = sums(histories.groupBy(*_KEYS)).orderBy(F.desc("letters"), *_KEYS).limit(most)
    return [row.asDict() for row in largest.collect()]


def doings(attempts: DataFrame, parked: DataFrame) -> list[Row]:
    """List what each policy did: `team`, `policy`, `attempt`, `letters`, and the median `delay_ms` before the attempt. Where
    letters were parked after the last attempt, `attempt` is its number, `delay_ms` is None. Operators' actions are left out."""
    attempts, parked = attempts.where("action_kind is null"), parked.where("by_policy")
    delay_ms = F.percentile_approx("delay_ms", 0.5, _PERCENTILE_ACCURACY).alias("delay_ms")
    delays = attempts.groupBy(*_KEYS, "attempt").agg(F.count("*").alias("letters"), delay_ms)
    last = parked.where("reason = 'max_attempts'").groupBy(*_KEYS).agg(
        (F.max("attempt") - 1).alias("attempt"), F.count("*").alias("letters"), F.lit(None).cast("long").alias("delay_ms")
    )  # fmt: skip
    return [row.asDict() for row in delays.unionByName(last).collect()]


def compare_periods(now: Iterable[Row], before: Iterable[Row], did: Iterable[Row], did_before: Iterable[Row]) -> list[Row]:
    """A row for each policy of either period, where most retries differ first.

    Args:
      now, before: `by_policy`, of the period and of the one before.
      did, did_before: `doings` of both.

    Gives `team`, `policy`, of both periods (with `_before`) `letters`, `retries`, `recovered`, `parked`, `expired`, `unknown` and
    `recovery`, None where nothing ended; `is_clear`: whether the 95 % intervals of `recovery` are apart; and `policy_changes`, a
    text for each change of what the policy does.
    """
    rows_now, rows_before = ({tuple(row[key] for key in _KEYS): row for row in rows} for rows in (now, before))
    plans, plans_before = _plans(did), _plans(did_before)
    made = []
    for place in {**rows_now, **rows_before}:
        one, other = rows_now.get(place, {}), rows_before.get(place, {})
        row = dict(zip(_KEYS, place, strict=True))
        for name in _COUNTS:
            row |= {name: one.get(name, 0), f"{name}_before": other.get(name, 0)}
        row |= {"recovery": one.get("recovery"), "recovery_before": other.get("recovery"), "is_clear": _is_apart(one, other)}
        made.append(row | {"policy_changes": list(_differences(plans.get(place, {}), plans_before.get(place, {})))})
    return sorted(made, key=lambda row: (-abs(row["retries"] - row["retries_before"]), *(row[key] for key in _KEYS)))


def _plans(did: Iterable[Row]) -> dict[tuple[str, ...], dict[int | None, Row]]:
    """Index the rows by policy and attempt; under None is the last attempt before letters were parked."""
    found: dict[tuple[str, ...], dict[int | None, Row]] = {}
    for row in did:
        attempt = None if row["delay_ms"] is None else row["attempt"]
        found.setdefault(tuple(row[key] for key in _KEYS), {})[attempt] = row
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
