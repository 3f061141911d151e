"""Many passes of `retry analytics ingest`, and compactions that are killed at every point: each record is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.events import Events, events, produce
from tests.support.ingesting import Ingesting
from tests.support.process import ROOT

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics import datasets, spark_kafka_options
from retry.analytics.ingest import Ingest

pytestmark = pytest.mark.check

# A batch is what a pass finds after ten minutes: a year of them has fifty thousand, and these are eight of letters. So Spark
# repeats a set's list every third batch, not every tenth.
LETTERS, BATCH, OVER_MS = 60, 45, 2 * 86_400_000
REPEATED = "spark.sql.streaming.fileSink.log.compactInterval"
# By part of the events, where compactions after it are killed: the list is repeated between the parts.
KILLS = (("staged:3", "written:1", "switched:1"), ("removed:3", "unchecked:1"))


@pytest.mark.slow
def test_killed_at_every_point_compaction_leaves_each_record_there_once(ingesting: Ingesting, spark: SparkSession) -> None:
    ingesting.create(ingesting.outcomes)
    made = events(LETTERS, seed=9, over_ms=OVER_MS, prefix=f"{ingesting.app_id}.")
    ingesting.create(*{retry["topic"] for retry in made.sent})
    made.positions = made.positions[::10]
    spark.conf.set(REPEATED, "3")
    options = spark_kafka_options.build_options(ingesting.servers, {})
    passes = Ingest(spark, options, ingesting.outcomes, str(ingesting.data), batch_records=BATCH)
    so_far, first = Events(), set[Path]()
    for part, points in zip(_parts(made, len(KILLS)), KILLS, strict=True):
        produce(ingesting.producer, ingesting.outcomes, part)
        _extend(so_far, part)
        assert passes.run() == _counts(part)
        first = first or list_letter_files(ingesting)
        for point in points:
            assert run_until_felled(ingesting, point) == -9, ingesting.log().read_text()
            _each_is_there_once(ingesting, spark, so_far)
    spark.conf.unset(REPEATED)
    files = _files(ingesting)
    done = _compact(ingesting)["letters"]
    assert done["made"] > 0
    assert _files(ingesting) < files
    assert len(first & list_letter_files(ingesting)) < len(first)
    _each_is_there_once(ingesting, spark, made)


def _parts(made: Events, count: int) -> Iterator[Events]:
    for n in range(count):
        yield Events(letters=made.letters[n::count], sent=made.sent[n::count], positions=made.positions[n::count])


def _extend(all_of: Events, part: Events) -> None:
    for name in ("letters", "sent", "positions"):
        getattr(all_of, name).extend(getattr(part, name))


def _counts(made: Events) -> dict[str, int]:
    return {"letters": len(made.letters), "retries": len(made.sent), "positions": len(made.positions), "aside": 0}


def _each_is_there_once(ingesting: Ingesting, spark: SparkSession, made: Events) -> None:
    found = datasets.read_parquet(spark, str(ingesting.data))
    for frame, wanted, names in (
        (found.letters, made.letters, ("source", "attempt")),
        (found.sent, made.sent, ("id", "attempt")),
        (found.positions, made.positions, ("group", "partition", "offset", "at_ms")),
    ):
        rows = Counter(tuple(row) for row in frame.select(*names).collect())
        assert rows == Counter(tuple(row[name] for name in names) for row in wanted)


def run_until_felled(ingesting: Ingesting, point: str) -> int:
    with ingesting.log().open("a") as log:
        return subprocess.run(
            [sys.executable, "-m", "tests.acceptance.felled_compaction", str(ingesting.data), point],
            cwd=ROOT, env=ingesting.environ, stdout=log, stderr=log, start_new_session=True, timeout=900, check=False,
        ).returncode  # fmt: skip


def _compact(ingesting: Ingesting) -> dict[str, dict[str, int]]:
    done = subprocess.run(
        [sys.executable, "-m", "retry", "analytics", "compact", str(ingesting.data), "--keep", "1ms"],
        cwd=ROOT, env=ingesting.environ, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def list_letter_files(ingesting: Ingesting) -> set[Path]:
    return {*(ingesting.data / "letters").glob("day=*/*/*.parquet")}


def _files(ingesting: Ingesting) -> int:
    lists = (ingesting.data / "letters" / "_spark_metadata").glob("*.compact")
    listed = max(lists, key=lambda each: int(each.name.split(".")[0]))
    return len(listed.read_text().splitlines()) - 1
