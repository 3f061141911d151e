"""A period of the sets: which days are read for it, and that the answers are those of all days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from retry.analytics import datasets
from retry.analytics.decisions import decisions
from retry.analytics.findings import findings
from retry.analytics.questions import policies
from retry.analytics.questions.histories import histories
from retry.analytics.schemas import PARKED
from tests.support import attempts as model
from tests.support import sets
from tests.support.decisions import attempt, frame, park
from tests.support.events import SETTLE_MS, START_MS, Events, events

pytestmark = pytest.mark.check

DAY_MS = 86_400_000
# Read are the days from the one before it.
SINCE_MS = START_MS + 4 * DAY_MS
JOBS_MAX = 30


@pytest.fixture(scope="module")
def lived() -> Events:
    return events(210, seed=6)


@pytest.fixture(scope="module")
def data(spark_sessions: Callable[[], SparkSession], lived: Events, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    sets.write(spark_sessions(), lived, folder)
    return folder


def test_of_a_period_the_days_before_it_are_not_read_and_the_answers_are_those_of_all_days(
    spark: SparkSession, lived: Events, data: Path
) -> None:
    of_all = _fates(decisions(datasets.from_parquet(spark, str(data)), settle_ms=SETTLE_MS, since_ms=SINCE_MS).attempts)
    for name in ("letters", "retries"):
        _spoil(data / name, SINCE_MS - DAY_MS)
    with pytest.raises((PySparkException, Py4JError)):
        datasets.from_parquet(spark, str(data)).letters.select("id").collect()
    found = datasets.from_parquet(spark, str(data), since_ms=SINCE_MS)
    assert _fates(decisions(found, settle_ms=SETTLE_MS, since_ms=SINCE_MS).attempts) == of_all
    assert {each[0] for each in of_all} == {x["id"] for x in lived.sent if _first_ms(lived)[x["id"]] >= SINCE_MS}
    # A group that has committed nothing since is watched all the same.
    quiet = found._replace(positions=found.positions.limit(0))
    assert {row["assumed"] for row in decisions(quiet, settle_ms=SETTLE_MS, since_ms=SINCE_MS).attempts.collect()} == {False}


def test_until_a_time_is_what_was_recorded_before_it_and_the_days_after_it_are_not_read(
    spark: SparkSession, lived: Events, tmp_path: Path
) -> None:
    sets.write(spark, lived, tmp_path)
    # Between a decision and its retry.
    until_ms = 1 + next(x["taken_ms"] for x in lived.letters if x["attempt"] == 4 and x["taken_ms"] > START_MS + 2 * DAY_MS)
    for name in ("letters", "retries", "positions"):
        _spoil(tmp_path / name, START_MS + 4 * DAY_MS, later=True)
    found = datasets.from_parquet(spark, str(tmp_path), until_ms=until_ms)
    assert found.until_ms == until_ms
    known = [
        [row for row in rows if row[when] < until_ms]
        for rows, when in ((lived.letters, "taken_ms"), (lived.sent, "sent_ms"), (lived.positions, "at_ms"))
    ]
    told = model.attempts(*known, settle_ms=SETTLE_MS, until_ms=until_ms)
    wanted = sorted((row["id"], row["attempt"], row["fate"], row["ended_ms"]) for row in told)
    assert _fates(decisions(found, settle_ms=SETTLE_MS).attempts) == wanted
    assert {"pending", "waiting"} & {row[2] for row in wanted}


def test_a_report_is_a_few_jobs_and_not_one_for_each_number(spark: SparkSession, lived: Events, tmp_path: Path) -> None:
    sets.write(spark, lived, tmp_path)
    before = _jobs(spark)
    answers = findings(spark, decisions(datasets.from_parquet(spark, str(tmp_path)), settle_ms=SETTLE_MS))
    assert answers["totals"]["letters"] == 210
    assert 0 < _jobs(spark) - before <= JOBS_MAX


def test_sums_of_all_teams_policies_and_kinds_are_those_of_each_and_the_largest_are_given(spark: SparkSession) -> None:
    rows, rests = [], []
    for n in range(6):
        told = {"team": f"t{n % 2}", "policy": f"t{n % 2}/p{n}", "exception": None if n == 3 else f"E{n}"}
        rows += [attempt(f"{n}-{k}", 1, "recovered", **told) for k in range(n + 1)]
        rests += [park(f"rest-{n}", 1, **told)]
    lived = _histories(spark, rows, rests)
    found = [row.asDict() for row in policies.largest_sums(lived, 2).collect()]
    groups = {"all": (), "team": ("team",), "policy": ("team", "policy"), "exception": ("team", "exception")}
    for of, about in groups.items():
        alone = [row.asDict() for row in policies.sums(lived.groupBy(*about)).collect()]
        own = [row for row in found if row["of"] == of]
        largest = sorted(alone, key=lambda row: -row["letters"])[:2]
        assert len(own) >= min(2, len(alone))
        for row in largest:
            (same,) = [each for each in own if all(each[name] == row[name] for name in about)]
            assert {name: same[name] for name in row} == row
            assert all(same[name] is None for name in ("team", "policy", "exception") if name not in about)
    assert len([row for row in found if row["of"] == "policy"]) < 6


def _histories(spark: SparkSession, rows: list[model.Attempt], rests: list[model.Attempt]) -> DataFrame:
    return histories(frame(spark, rows), frame(spark, rests, PARKED))


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


def _jobs(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().statusStore().jobsList(None).size())  # type: ignore[union-attr]
