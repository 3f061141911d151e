"""Every question over many random cases, beside plain Python that is written another way: what Spark says is what one would
count by hand."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics.questions import fingerprints, policies, recovery
from retry.analytics.questions.fates import list_histories
from retry.analytics.schemas import PARKED
from retry.analytics.spark_session import open_session
from tests.support.decisions import Row, frame, simulate_letters

pytestmark = pytest.mark.check

CASES = 60
MINUTE_MS = 60_000


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
        own, rest = simulate_letters(chances, chance.randint(1, 40), seed, team=f"team-{seed:02}", fingerprint=f"{seed % 7}")
        # Of some letters the end was not seen.
        gone = {row["id"] for row in own if chance.random() < 0.1}
        own = [_cut(row) if row["id"] in gone and _is_last(row, own) else row for row in own]
        tried, parked = tried + own, parked + [row for row in rest if row["id"] not in gone]
    return tried, parked


@pytest.fixture(scope="module")
def answers(cases: tuple[list[Row], list[Row]]) -> Iterator[dict[str, list[Row]]]:
    """All answers, out of one session."""
    tried, parked = cases
    with open_session("test-questions") as spark:
        yield _answers(spark, tried, parked)


def test_curves_by_attempt_are_those_of_the_definition(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    tried, parked = cases
    curve = {(row["team"], row["attempt"]): row for row in recovery.build_attempt_curves(answers["by_attempt"], "team")}
    known = [row for row in tried if row["fate"] in ("recovered", "failed")]
    at_risk = Counter((row["team"], row["attempt"]) for row in known)
    at_risk += Counter((row["team"], 0) for row in tried + parked if row["attempt"] == 1)
    recovered = Counter((row["team"], row["attempt"]) for row in known if row["fate"] == "recovered")
    gone = Counter((row["team"], row["attempt"] - 1) for row in parked)
    assert curve.keys() == at_risk.keys()
    for (team, last), row in curve.items():
        left, part = 1.0, 0.0
        for n in range(last + 1):
            risk, place = at_risk[team, n], (team, n)
            part += left * recovered[place] / risk
            left *= 1 - (recovered[place] + gone[place]) / risk
        assert (row["part_recovered"], row["part_failing"]) == (pytest.approx(part), pytest.approx(left, abs=1e-12))
        assert row["part_recovered"] + row["part_parked"] + row["part_failing"] == pytest.approx(1)


def test_curves_by_time_are_those_of_the_definition(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    found = defaultdict(list)
    for row in recovery.build_time_curves(answers["by_time"], "team"):
        found[row["team"]].append(row)
    for team, lives in count_watched(*cases).items():
        steps = []
        for ms, fate in lives:
            exact = math.log2(max(1, ms)) * 8
            steps.append((math.ceil(exact) if fate in ("recovered", "parked") else math.floor(exact), fate))
        left, part, expected = 1.0, 0.0, []
        for step in sorted({step for step, fate in steps if fate in ("recovered", "parked")}):
            n, here = sum(s >= step for s, _ in steps), Counter(fate for s, fate in steps if s == step)
            part += left * here["recovered"] / n
            left *= 1 - (here["recovered"] + here["parked"]) / n
            expected.append((n, here["recovered"], pytest.approx(part), pytest.approx(left, abs=1e-12)))
        assert [(r["at_risk"], r["recovered"], r["part_recovered"], r["part_failing"]) for r in found[team]] == expected


def test_sums_are_those_of_counting(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    tried, parked = cases
    last = {row["id"]: row["fate"] for row in sorted(tried, key=lambda row: row["attempt"])} | {
        row["id"]: "parked" for row in parked
    }
    team_of = {row["id"]: row["team"] for row in tried + parked}
    for row in answers["sums"]:
        fates = Counter(fate for lineage, fate in last.items() if team_of[lineage] == row["team"])
        assert (row["letters"], row["recovered"], row["parked"]) == (fates.total(), fates["recovered"], fates["parked"])
        assert row["unknown"] == fates.total() - fates["recovered"] - fates["parked"]
    for row in answers["sums"]:
        own = [each for each in tried if each["team"] == row["team"] and each["fate"] != "waiting"]
        assert (row["retries"], row["bytes"]) == (len(own), 100 * len(own))
        assert row["wasted"] == sum(last[each["id"]] == "parked" for each in own)
    assert sum(row["recovered"] + row["failed"] + row["unknown"] for row in answers["cells"]) == len(tried)
    assert sum(row["letters"] for row in answers["starts"]) == len(last)
    kinds = ("team", "exception", "topic", "policy", "attempt")
    for name in ("recovered", "failed", "unknown"):
        ends = [Counter() for _ in range(2)]
        for counted, rows in zip(ends, (answers["cells"], answers["episodes"]), strict=True):
            for row in rows:
                counted[tuple(row[kind] for kind in kinds)] += row[name]
        assert ends[0] == ends[1]


def test_percentiles_are_values_at_their_rank(cases: tuple[list[Row], list[Row]], answers: dict[str, list[Row]]) -> None:
    watched = count_watched(*cases)
    recovered = [row for row in answers["sums"] if row["recovered"]]
    assert recovered
    for row in recovered:
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
    lived = list_histories(attempts, rests).persist()
    latest_ms = 2 * max(row["failed_ms"] for row in tried + parked)
    asked = {
        "by_attempt": recovery.count_by_attempt(attempts, rests, latest_ms, "team"),
        "by_time": recovery.count_by_time(lived, latest_ms, "team"),
        "sums": policies.sum_groups(lived.groupBy("team")), "cells": recovery.count_cells(attempts, latest_ms),
        "episodes": recovery.count_episodes(attempts, latest_ms),
        "starts": recovery.count_starts(lived),
        "fingerprints": fingerprints.find_top_fingerprints(attempts, rests, 0, latest_ms, 10_000),
        "per_minute": fingerprints.count_per_minute(attempts),
    }  # fmt: skip
    return {name: [row.asDict() for row in answer.collect()] for name, answer in asked.items()}


def count_watched(tried: list[Row], parked: list[Row]) -> dict[str, list[tuple[int, str]]]:
    """Compute by team how long each letter was watched, and what became of it."""
    last: dict[str, tuple[str, int, str]] = {}
    for row in sorted(tried, key=lambda row: row["attempt"]):
        # A pending retry may have recovered when it was sent, and until then had not.
        watched_ms = row["sent_ms"] - row["first_failed_ms"] - (row["fate"] == "pending")
        last[row["id"]] = row["team"], watched_ms, row["fate"]
    for row in parked:
        last[row["id"]] = row["team"], row["parked_ms"] - row["first_failed_ms"], "parked"
    found = defaultdict(list)
    for team, watched_ms, fate in last.values():
        found[team].append((watched_ms, fate))
    return found


def _cut(row: Row) -> Row:
    return row | {"fate": "pending"}


def _is_last(row: Row, rows: list[Row]) -> bool:
    return row["attempt"] == max(each["attempt"] for each in rows if each["id"] == row["id"])
