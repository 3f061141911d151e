"""Every question over many random cases, beside plain Python that is written another way: what Spark says is what one would
count by hand."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import NormalDist

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics.questions import cells, fingerprints, policies, storms, survival
from retry.analytics.questions.histories import histories
from retry.analytics.schemas import PARKED
from retry.analytics.spark_session import session
from tests.support.decisions import Row, frame, simulated

pytestmark = pytest.mark.check

CASES = 60
MINUTE_MS = 60_000
Z = NormalDist().inv_cdf(0.975)


@pytest.fixture(scope="module")
def cases() -> tuple[list[Row], list[Row]]:
    """Each case is a team with letters, delays, chances and ends of its own."""
    tried: list[Row] = []
    parked: list[Row] = []
    for seed in range(CASES):
        chance = random.Random(seed)
        chances = {
            f"X{n}": [chance.choice((0, 0.1, 0.5, 0.9, 1)) for _ in range(chance.randint(1, 5))]
            for n in range(chance.randint(1, 3))
        }
        own, rest = simulated(chances, chance.randint(1, 40), seed, team=f"team-{seed:02}", fingerprint=f"{seed % 7}")
        # Of some letters the end was not seen.
        gone = {row["id"] for row in own if chance.random() < 0.1}
        own = [_cut(row) if row["id"] in gone and _is_last(row, own) else row for row in own]
        tried, parked = tried + own, parked + [row for row in rest if row["id"] not in gone]
    return tried, parked


@pytest.fixture(scope="module")
def answers(cases: tuple[list[Row], list[Row]]) -> Iterator[dict[str, list[Row]]]:
    """All answers, out of one session."""
    tried, parked = cases
    with session("test-questions") as spark:
        yield _answers(spark, tried, parked)


def test_curves_by_attempt_are_those_of_the_definition(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    found = {(row["team"], row["attempt"]): row for row in answers["by_attempt"]}
    known = [row for row in cases[0] if row["fate"] in ("recovered", "failed")]
    at_risk = Counter((row["team"], row["attempt"]) for row in known)
    recovered = Counter((row["team"], row["attempt"]) for row in known if row["fate"] == "recovered")
    assert found.keys() == at_risk.keys()
    for (team, last), row in found.items():
        pairs = [(at_risk[team, n], recovered[team, n]) for n in range(1, last + 1)]
        assert row["survival"] == pytest.approx(math.prod(1 - d / n for n, d in pairs))
        _check_interval(row, sum(d / (n * (n - d)) if n > d else math.inf for n, d in pairs))


def test_curves_by_time_are_those_of_the_definition(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    watched = _watched(*cases)
    curves = defaultdict(list)
    for row in answers["by_time"]:
        curves[row["team"]].append(row)
    for team, lives in watched.items():
        steps = [(math.ceil(math.log(max(1, ms)) / math.log(2) * 8), fate) for ms, fate in lives]
        left, expected = 1.0, []
        for step in sorted({step for step, fate in steps if fate == "recovered"}):
            n, d = sum(s >= step for s, _ in steps), sum(s == step and f == "recovered" for s, f in steps)
            left *= 1 - d / n
            expected.append((n, d, pytest.approx(left)))
        assert [
            (r["at_risk"], r["recovered"], r["survival"]) for r in sorted(curves[team], key=lambda r: r["time_ms"])
        ] == expected


def test_sums_are_those_of_counting(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    tried, parked = cases
    last = {row["id"]: row["fate"] for row in sorted(tried, key=lambda row: row["attempt"])} | {
        row["id"]: "parked" for row in parked
    }
    team_of = {row["id"]: row["team"] for row in tried + parked}
    for row in answers["compared"]:
        fates = Counter(fate for lineage, fate in last.items() if team_of[lineage] == row["team"])
        assert (row["letters"], row["recovered"], row["parked"]) == (fates.total(), fates["recovered"], fates["parked"])
        assert row["unknown"] == fates.total() - fates["recovered"] - fates["parked"]
    for row in answers["waste"]:
        own = [each for each in tried if each["team"] == row["team"] and each["fate"] != "waiting"]
        assert (row["retries"], row["bytes"]) == (len(own), 100 * len(own))
        assert row["wasted"] == sum(last[each["id"]] == "parked" for each in own)
    assert sum(row["recovered"] + row["failed"] + row["unknown"] for row in answers["cells"]) == len(tried)
    assert sum(row["letters"] for row in answers["starts"]) == len(last)


def test_percentiles_are_values_at_their_rank(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    watched = _watched(*cases)
    assert answers["recovery"]
    for row in answers["recovery"]:
        times = sorted(ms for ms, fate in watched[row["team"]] if fate == "recovered")
        assert (row["recovered"], row["max_ms"]) == (len(times), times[-1])
        assert [row[f"p{p}_ms"] for p in (50, 90, 99)] == [
            times[max(0, math.ceil(p / 100 * len(times)) - 1)] for p in (50, 90, 99)
        ]


def test_fingerprints_and_minutes_are_those_of_counting(
    cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]
) -> None:
    tried, parked = cases
    failures = Counter((row["team"], row["exception"], row["fingerprint"]) for row in tried + parked)
    assert {(r["team"], r["exception"], r["fingerprint"]): r["failures"] for r in answers["fingerprints"]} == failures
    assert sum(r["earlier"] + r["recent"] for r in answers["fingerprints"]) == failures.total()
    minutes = Counter((r["team"], r["sent_ms"] // MINUTE_MS * MINUTE_MS) for r in tried if r["fate"] != "waiting")
    assert {(r["team"], r["minute_ms"]): r["sent"] for r in answers["per_minute"]} == minutes


def _answers(spark: SparkSession, tried: list[Row], parked: list[Row]) -> dict[str, list[Row]]:
    attempts, rests = frame(spark, tried).persist(), frame(spark, parked, PARKED).persist()
    lived = histories(attempts, rests).persist()
    latest_ms = max(row["failed_ms"] for row in tried + parked)
    asked = {
        "by_attempt": survival.by_attempt(attempts, "team"), "by_time": survival.by_time(lived, "team"),
        "compared": policies.compared(lived, "team"), "waste": policies.waste(lived, "team"),
        "recovery": policies.time_to_recovery(lived, "team"), "cells": cells.cells(attempts, latest_ms),
        "starts": cells.starts(lived), "fingerprints": fingerprints.top(attempts, rests, 0, latest_ms, 10_000),
        "per_minute": storms.per_minute(attempts),
    }  # fmt: skip
    return {name: [row.asDict() for row in answer.collect()] for name, answer in asked.items()}


def _watched(tried: list[Row], parked: list[Row]) -> dict[str, list[tuple[int, str]]]:
    """By team, how long each letter was watched, and whether it recovered; without those of which nothing is known."""
    known: dict[str, list[Row]] = defaultdict(list)
    for row in tried:
        if row["fate"] in ("recovered", "failed"):
            known[row["id"]].append(row)
    found = defaultdict(list)
    for rows in known.values():
        last = max(rows, key=lambda row: row["attempt"])
        found[last["team"]].append((max(row["sent_ms"] for row in rows) - last["first_failed_ms"], last["fate"]))
    return found


def _check_interval(row: Row, greenwood: float) -> None:
    low, high, survival_ = row["survival_low"], row["survival_high"], row["survival"]
    assert 0 <= low <= survival_ + 1e-12 and survival_ <= high + 1e-12 <= 1 + 1e-9
    if 0 < survival_ < 1:
        reach = Z * math.sqrt(greenwood) / abs(math.log(survival_))
        assert (low, high) == pytest.approx((survival_ ** math.exp(reach), survival_ ** math.exp(-reach)), abs=1e-6)


def _cut(row: Row) -> Row:
    return row | {"fate": "pending"}


def _is_last(row: Row, rows: list[Row]) -> bool:
    return row["attempt"] == max(each["attempt"] for each in rows if each["id"] == row["id"])
