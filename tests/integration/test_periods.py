"""A period of the sets: which days are read for it, and that the answers are those of all days."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from retry.analytics import datasets, schemas
from retry.analytics.decisions import FOR_FEW_ROWS, Decisions, build_decisions, configure_for_questions
from retry.analytics.findings import findings, select_team
from retry.analytics.questions import policies
from retry.analytics.questions.fates import list_histories
from retry.analytics.schemas import PARKED, Watched
from retry.cli.analytics_options import list_days_missing
from tests.support import attempts as model
from tests.support import sets
from tests.support.decisions import attempt, frame, park
from tests.support.events import SETTLE_MS, START_MS, Events, events
from tests.support.sizes import only_in_faults

pytestmark = pytest.mark.check

DAY_MS = 86_400_000
# Read are the days from the one before it.
SINCE_MS = START_MS + 4 * DAY_MS
JOBS_MAX = 23


@pytest.fixture(scope="module")
def history() -> Events:
    return events(210, seed=6)


@pytest.fixture(scope="module")
def data(spark_sessions: Callable[[], SparkSession], history: Events, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    sets.write(spark_sessions(), history, folder)
    return folder


def test_of_a_period_the_days_before_it_are_not_read_and_the_answers_are_those_of_all_days(
    spark: SparkSession, history: Events, data: Path
) -> None:
    recorded = datasets.read_parquet(spark, str(data)).select_period()
    of_all = _fates(build_decisions(recorded, settle_ms=SETTLE_MS, since_ms=SINCE_MS).attempts)
    for name in ("letters", "retries"):
        _spoil(data / name, SINCE_MS - DAY_MS)
    with pytest.raises((PySparkException, Py4JError)):
        datasets.read_parquet(spark, str(data)).letters.select("id").collect()
    found = datasets.read_parquet(spark, str(data)).select_period(SINCE_MS)
    assert _fates(build_decisions(found, settle_ms=SETTLE_MS, since_ms=SINCE_MS).attempts) == of_all
    assert {each[0] for each in of_all} == {x["id"] for x in history.sent if _first_ms(history)[x["id"]] >= SINCE_MS}
    # A group that has committed nothing since is watched all the same.
    quiet = found._replace(positions=found.positions.limit(0))
    assert {row["assumed"] for row in build_decisions(quiet, settle_ms=SETTLE_MS, since_ms=SINCE_MS).attempts.collect()} == {
        False
    }


def test_until_a_time_is_what_was_recorded_before_it_and_the_days_after_it_are_not_read(
    spark: SparkSession, history: Events, tmp_path: Path
) -> None:
    sets.write(spark, history, tmp_path)
    # Between a decision and its retry.
    until_ms = 1 + next(x["taken_ms"] for x in history.letters if x["attempt"] == 4 and x["taken_ms"] > START_MS + 2 * DAY_MS)
    for name in ("letters", "retries", "positions"):
        _spoil(tmp_path / name, START_MS + 4 * DAY_MS, later=True)
    found = datasets.read_parquet(spark, str(tmp_path)).select_period(until_ms=until_ms)
    assert found.until_ms == until_ms
    known = [
        [row for row in rows if row[when] < until_ms]
        for rows, when in ((history.letters, "taken_ms"), (history.sent, "sent_ms"), (history.positions, "at_ms"))
    ]
    told = model.attempts(*known, settle_ms=SETTLE_MS, until_ms=until_ms)
    wanted = sorted((row["id"], row["attempt"], row["fate"], row["ended_ms"]) for row in told)
    assert _fates(build_decisions(found, settle_ms=SETTLE_MS).attempts) == wanted
    assert {"pending", "waiting"} & {row[2] for row in wanted}


def test_a_report_is_a_few_jobs_and_reads_letters_retries_and_samples_once(
    spark: SparkSession, history: Events, tmp_path: Path
) -> None:
    sets.write(spark, history, tmp_path)
    jobs, plans = _jobs(spark), len(_plans(spark))
    answers = findings(spark, build_decisions(datasets.read_parquet(spark, str(tmp_path)).select_period(), settle_ms=SETTLE_MS))
    assert answers["totals"]["letters"] == 210
    assert 0 < _jobs(spark) - jobs <= JOBS_MAX
    assert _scans(_plans(spark)[plans:], tmp_path) == {"letters": 1, "retries": 1, "positions": 1}


def test_beside_the_period_before_each_of_both_reads_its_own_days_once(
    spark: SparkSession, history: Events, tmp_path: Path
) -> None:
    sets.write(spark, history, tmp_path)
    recorded, plans = datasets.read_parquet(spark, str(tmp_path)), len(_plans(spark))
    before = build_decisions(recorded.select_period(START_MS, SINCE_MS), settle_ms=SETTLE_MS)
    now = build_decisions(recorded.select_period(SINCE_MS), settle_ms=SETTLE_MS, since_ms=SINCE_MS)
    answers = findings(spark, now, before=before)
    assert sum(row["letters"] for row in answers["changed"]) == answers["totals"]["letters"]
    assert sum(row["letters_before"] for row in answers["changed"]) == before.histories.count()
    assert _scans(_plans(spark)[plans:], tmp_path) == {"letters": 2, "retries": 2, "positions": 2}


@pytest.mark.parametrize("count", [210, *only_in_faults(3)])
def test_a_letter_of_another_time_does_not_stretch_the_period(spark: SparkSession, count: int, tmp_path: Path) -> None:
    found, year_ms = events(count, seed=6), 366 * DAY_MS
    usual = findings(spark, _decide(spark, found, tmp_path / "usual"))
    assert usual["odd"] == {"letters": 0, "first_ms": None}
    odd = found.letters[0]["id"]
    early = [
        row | {name: row[name] - 12 * year_ms for name in ("first_failed_ms", "failed_ms")} if row["id"] == odd else row
        for row in found.letters
    ]  # fmt: skip
    answers = findings(spark, _decide(spark, replace(found, letters=early), tmp_path / "odd"))
    first_ms = found.letters[0]["first_failed_ms"] - 12 * year_ms
    assert answers["odd"] == {"letters": 1, "first_ms": first_ms}
    assert answers["totals"]["letters"] == count
    others_ms = min(row["first_failed_ms"] for row in found.letters if row["id"] != odd)
    assert answers["period"] == {"since_ms": others_ms, "until_ms": usual["period"]["until_ms"]}
    assert min(row["at_ms"] for row in answers["fingerprints_over_time"]) >= others_ms
    assert [row["team"] for row in answers["storms"]] == [row["team"] for row in usual["storms"]]


def test_the_answers_of_one_team_are_those_of_its_letters_alone(spark: SparkSession, history: Events, tmp_path: Path) -> None:
    # Files of the set that the other tests share are spoilt by some of them.
    sets.write(spark, history, tmp_path)
    recorded = datasets.read_parquet(spark, str(tmp_path))
    made = build_decisions(recorded.select_period(SINCE_MS), settle_ms=SETTLE_MS, since_ms=SINCE_MS)
    whole = findings(spark, made)
    assert sum(row["letters"] for row in whole["teams"]) == whole["totals"]["letters"]
    for row in whole["teams"]:
        own = findings(spark, select_team(made, row["team"]))
        assert {name: row[name] for name in own["totals"]} == own["totals"]
        assert {each["team"] for name in ("comparison", "waste", "fingerprints") for each in own[name]} == {row["team"]}
    assert list_days_missing(recorded, START_MS, START_MS + DAY_MS) == []
    assert list_days_missing(recorded, START_MS - 2 * DAY_MS, START_MS) == [
        str(datetime.fromtimestamp((START_MS - n * DAY_MS) / 1_000, UTC).date()) for n in (2, 1)
    ]  # fmt: skip


def test_retries_of_groups_that_were_never_sampled_are_named(spark: SparkSession, history: Events, tmp_path: Path) -> None:
    silent = replace(history, positions=[row for row in history.positions if row["group"] != "search-service"])
    answers = findings(spark, _decide(spark, silent, tmp_path))
    assert {(row["team"], row["target"]) for row in answers["unsampled"]} == {("search", "search.retry")}
    assert answers["unsampled"][0]["retries"] >= answers["assumed"] > 0


def _decide(spark: SparkSession, lived: Events, folder: Path) -> Decisions:
    sets.write(spark, lived, folder)
    return build_decisions(datasets.read_parquet(spark, str(folder)).select_period(), settle_ms=SETTLE_MS)


def test_groups_are_those_that_were_sampled_before_the_end_whether_a_pass_has_noted_them_or_not(
    spark: SparkSession, history: Events, tmp_path: Path
) -> None:
    late_ms = START_MS + 3 * DAY_MS + DAY_MS // 2
    sampled = [row | {"group": "late", "at_ms": late_ms} for row in history.positions[:1]]
    sets.write(spark, replace(history, positions=[*history.positions, *sampled]), tmp_path)
    noted = schemas.read_horizon(spark, str(tmp_path)).watched
    usual = frozenset(Watched(row["group"], row["topic"]) for row in history.positions)
    late = Watched("late", history.positions[0]["topic"])
    for watched in (noted, None):
        schemas.write_horizon(spark, str(tmp_path), schemas.Horizon(history.until_ms, watched=watched))
        recorded = datasets.read_parquet(spark, str(tmp_path))
        assert recorded.watched == watched
        assert recorded.select_period(late_ms + DAY_MS).watched == usual | {late}
        assert recorded.select_period(until_ms=late_ms).watched == usual
        of_both = [recorded.select_period(until_ms=late_ms + after_ms).watched for after_ms in (1, DAY_MS)]
        assert of_both == [usual | {late}] * 2


@pytest.mark.parametrize("sizes", [("many", "few", "more"), *only_in_faults(("few", "more", "many"))])
def test_how_spark_is_set_for_some_letters_is_not_left_for_others(
    spark: SparkSession, data: Path, sizes: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"few": (1 << 40, 1 << 41), "more": (0, 1 << 41), "many": (0, 0)}
    usual, seen = _settings(spark), {}

    def settings_of(*frames: DataFrame) -> DataFrame:
        seen[size] = _settings(spark)
        return list_histories(*frames)

    monkeypatch.setattr("retry.analytics.decisions.list_histories", settings_of)
    made = {}
    for size in sizes:
        monkeypatch.setattr("retry.analytics.decisions._FEW_BYTES", limits[size][0])
        monkeypatch.setattr("retry.analytics.decisions._MORE_BYTES", limits[size][1])
        made[size] = build_decisions(datasets.read_parquet(spark, str(data)).select_period(SINCE_MS), settle_ms=SETTLE_MS)
        assert _settings(spark) == usual
    assert seen["many"] == usual
    assert seen["few"] == usual | FOR_FEW_ROWS
    assert (seen["more"][_ADAPTIVE], seen["more"][_CODEGEN]) == ("false", usual[_CODEGEN])
    assert len({tuple(_fates(each.attempts)) for each in made.values()}) == 1
    for asked, wanted in ((("few", "more"), usual | FOR_FEW_ROWS), (("few", "many"), usual)):
        with configure_for_questions(*(made[size] for size in asked)):
            assert _settings(spark) == wanted
        assert _settings(spark) == usual


def test_sums_of_all_teams_policies_and_kinds_are_those_of_each_and_the_largest_are_given(spark: SparkSession) -> None:
    rows, rests = [], []
    for n in range(6):
        told = {"team": f"t{n % 2}", "policy": f"t{n % 2}/p{n}", "exception": None if n == 3 else f"E{n}"}
        rows += [attempt(f"{n}-{k}", 1, "recovered", **told) for k in range(n + 1)]
        rests += [park(f"rest-{n}", 1, **told)]
    lived = _histories(spark, rows, rests)
    found = [row.asDict() for row in policies.sum_largest_groups(lived, 2).collect()]
    groups = {"all": (), "team": ("team",), "policy": ("team", "policy"), "exception": ("team", "exception")}
    for of, about in groups.items():
        alone = [row.asDict() for row in policies.sum_groups(lived.groupBy(*about)).collect()]
        own = [row for row in found if row["of"] == of]
        largest = sorted(alone, key=lambda row: -row["letters"])[:2]
        assert len(own) >= min(2, len(alone))
        for row in largest:
            (same,) = [each for each in own if all(each[name] == row[name] for name in about)]
            assert {name: same[name] for name in row} == row
            assert all(same[name] is None for name in ("team", "policy", "exception") if name not in about)
    assert len([row for row in found if row["of"] == "policy"]) < 6


def _histories(spark: SparkSession, rows: list[model.Attempt], rests: list[model.Attempt]) -> DataFrame:
    return list_histories(frame(spark, rows), frame(spark, rests, PARKED))


def _fates(made: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in made.select("id", "attempt", "fate", "ended_ms").collect())


def _first_ms(lived: Events) -> dict[str, int]:
    return {row["id"]: row["first_failed_ms"] for row in lived.letters}


def _spoil(folder: Path, moment_ms: int, *, later: bool = False) -> None:
    """Make files unreadable: of all days before that of a moment, or of that day and all later ones."""
    limit = str(datetime.fromtimestamp(moment_ms / 1_000, UTC).date())
    spoilt = [file for file in folder.rglob("*.parquet") if (file.parts[len(folder.parts)][4:] >= limit) == later]
    assert spoilt
    for file in spoilt:
        file.write_bytes(b"PAR1" + b"\x00" * 64 + b"PAR1")
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


_ADAPTIVE, _CODEGEN = "spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"


def _settings(spark: SparkSession) -> dict[str, str | None]:
    names = (_ADAPTIVE, _CODEGEN, "spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold")
    return {name: spark.conf.get(name) for name in names}


def _plans(spark: SparkSession) -> list[str]:
    """List what Spark has done so far, as it tells its own page."""
    done: Any = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [str(done.apply(n).physicalPlanDescription()) for n in range(done.size())]


def _scans(plans: Sequence[str], data: Path) -> Counter[str]:
    """How often columns of each set were read."""
    scans = [block for plan in plans for block in plan.split("\n\n") if re.search(r"^\(\d+\) Scan parquet", block, re.MULTILINE)]
    read = [block for block in scans if "ReadSchema: struct<>" not in block]
    return Counter(name for block in read for name in ("letters", "retries", "positions") if f"{data}/{name}" in block)


def _jobs(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().statusStore().jobsList(None).size())  # type: ignore[union-attr]
