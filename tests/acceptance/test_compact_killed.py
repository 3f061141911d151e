"""Many passes of `retry analytics ingest`, and compactions that are killed at every point: each record is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.events import Events, events, produce
from tests.support.ingesting import Ingesting
from tests.support.process import ROOT

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics import datasets

pytestmark = pytest.mark.check

# A batch is what a pass finds after ten minutes: a year of them has fifty thousand, and these are some twenty of letters.
LETTERS, BATCH, OVER_MS = 60, "12", 2 * 86_400_000
# By part of the events, where compactions after it are killed: Spark repeats a set's list between the parts.
KILLS = (("staged:3", "written:1", "switched:1"), ("unchecked:1", "removed:3"))


@pytest.mark.slow
def test_killed_at_every_point_compaction_leaves_each_record_there_once(ingesting: Ingesting, spark: SparkSession) -> None:
    ingesting.create(ingesting.outcomes)
    made = events(LETTERS, seed=9, over_ms=OVER_MS, prefix=f"{ingesting.app_id}.")
    ingesting.create(*{retry["topic"] for retry in made.sent})
    made.positions = made.positions[::10]
    so_far, added = Events(), Counter[str]()
    for part, points in zip(_parts(made, len(KILLS)), KILLS, strict=True):
        produce(ingesting.producer, ingesting.outcomes, part)
        _extend(so_far, part)
        added.update(ingesting.run("--batch", BATCH))
        assert added == _counts(so_far)
        for point in points:
            assert _felled(ingesting, point) == -9, ingesting.log().read_text()
            _each_is_there_once(ingesting, spark, so_far)
    files = _files(ingesting)
    done = _compact(ingesting)["letters"]
    assert done["made"] > 0
    assert done["removed"] > 0
    assert _files(ingesting) < files
    _each_is_there_once(ingesting, spark, made)
    assert all(set(done.values()) == {0} for done in _compact(ingesting).values())
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
    found = datasets.from_parquet(spark, str(ingesting.data))
    for frame, wanted, names in (
        (found.letters, made.letters, ("source", "attempt")),
        (found.sent, made.sent, ("id", "attempt")),
        (found.positions, made.positions, ("group", "partition", "offset", "at_ms")),
    ):
        rows = Counter(tuple(row) for row in frame.select(*names).collect())
        assert rows == Counter(tuple(row[name] for name in names) for row in wanted)


def _felled(ingesting: Ingesting, point: str) -> int:
    with ingesting.log().open("a") as log:
        return subprocess.run(
            [sys.executable, "-m", "tests.acceptance.felled_compaction", str(ingesting.data), point],
            cwd=ROOT, env=ingesting.environ, stdout=log, stderr=log, start_new_session=True, timeout=280, check=False,
        ).returncode  # fmt: skip


def _compact(ingesting: Ingesting) -> dict[str, dict[str, int]]:
    done = subprocess.run(
        [sys.executable, "-m", "retry", "analytics", "compact", str(ingesting.data), "--keep", "1ms"],
        cwd=ROOT, env=ingesting.environ, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _files(ingesting: Ingesting) -> int:
    lists = (ingesting.data / "letters" / "_spark_metadata").glob("*.compact")
    listed = max(lists, key=lambda each: int(each.name.split(".")[0]))
    return len(listed.read_text().splitlines()) - 1
