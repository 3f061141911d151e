"""Counts of `retry.analytics.questions.incidence` in, curves out: which part of all letters has recovered or was given up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from retry.analytics.statistics.incidence import Step, cumulative
from retry.analytics.statistics.proportions import chance

Row = dict[str, Any]
WAYS = ("recovered", "parked", "expired")
# Steps of time that are told apart: each is 9 % longer than the one before.
STEPS_PER_DOUBLING = 8


def by_attempt(rows: Iterable[Row], *keys: str) -> list[Row]:
    """The curves of `incidence.by_attempt`.

    Gives its rows, and of each attempt `hazard`, its own chance to recover, with its bounds, and the parts of all letters up to
    here: `part_recovered`, `part_parked`, `part_expired` and `part_failing`, together 1, each with `_low` and `_high`.
    """
    made = []
    for ordered in _each(rows, "attempt", *keys):
        for row, parts in zip(ordered, _compute_shares(ordered), strict=True):
            tried = row["at_risk"] if row["attempt"] else 0
            low, likely, high = chance(row["recovered"], tried) if tried else (None, None, None)
            made.append(row | {"hazard": likely, "hazard_low": low, "hazard_high": high} | parts)
    return made


def by_time(rows: Iterable[Row], *keys: str) -> list[Row]:
    """The curves of `incidence.by_time`.

    Gives keys, `time_ms` (the end of a step in which anything was decided), `at_risk`, `recovered`, `parked`, `expired`, and the
    parts of all letters up to here, as `by_attempt`.
    """
    made = []
    for ordered in _each(rows, "step", *keys):
        at_risk = sum(row["left"] for row in ordered)
        steps = []
        for row in ordered:
            named = {name: row[name] for name in (*keys, *WAYS)}
            steps.append(named | {"time_ms": round(2 ** (row["step"] / STEPS_PER_DOUBLING)), "at_risk": at_risk})
            at_risk -= row["left"]
        decided = [row for row in steps if any(row[way] for way in WAYS)]
        made += [row | parts for row, parts in zip(decided, _compute_shares(decided), strict=True)]
    return made


def _compute_shares(ordered: Sequence[Row]) -> list[Row]:
    steps = [Step(max(row["at_risk"], sum(row[way] for way in WAYS)), {way: row[way] for way in WAYS}) for row in ordered]
    made = []
    for parts, failing in cumulative(steps, WAYS):
        named = {f"part_{way}": each for way, each in {**parts, "failing": failing}.items()}
        made.append({
            f"{name}{suffix}": value
            for name, each in named.items()
            for suffix, value in (("", each.likely), ("_low", each.low), ("_high", each.high))
        })
    return made


def _each(rows: Iterable[Row], order: str, *keys: str) -> Iterable[list[Row]]:
    def build_group_key(row: Row) -> tuple[tuple[bool, Any], ...]:
        return tuple((row[name] is not None, row[name]) for name in keys)

    for _, group in groupby(sorted(rows, key=lambda row: (build_group_key(row), row[order])), build_group_key):
        yield list(group)
