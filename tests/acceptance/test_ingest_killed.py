"""`retry analytics ingest`, killed in mid-run again and again while events go on arriving: each is there once in the end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from tests.support import attempts as model
from tests.support.events import SETTLE_MS, Events, events, produce, rows
from tests.support.ingesting import Ingesting, kill
from tests.support.process import await_that

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics import attempts, datasets
from retry.analytics.schemas import ATTEMPT

pytestmark = pytest.mark.check

LETTERS, BATCH = 600, "500"
# Where cores are starved Spark takes minutes to start.
BEGUN_S = 900.0
# Killed while which stream has begun a batch that is not done, after how many that are, and with Java or without.
KILLS = (("letters", 1, True), ("retries", 1, False), ("letters", 0, False), ("aside", 0, True))


@pytest.mark.slow
def test_killed_again_and_again_it_has_each_record_once(ingesting: Ingesting, spark: SparkSession) -> None:
    made = ingest_while_killed(ingesting)
    wanted = _counts(made)
    ingesting.run()
    assert _sizes(datasets.read_parquet(spark, str(ingesting.data))) == wanted
    for stream in ("letters", "retries"):
        # As if killed after the files of the last batch were listed, and before the batch was done.
        ingesting.undo(stream)
    process = ingesting.start("--continuous", "--every", "1s")
    assert process.stdout
    nothing = dict.fromkeys(wanted, 0)
    assert json.loads(process.stdout.readline()) == nothing
    produce(ingesting.producer, ingesting.outcomes, Events(letters=[{**made.letters[0], "id": "one more"}]))
    await_that("one more is there", partial(_is_next, process, {**nothing, "letters": 1}), BEGUN_S)
    process.terminate()
    assert process.wait(120) == 0, ingesting.log().read_text()
    found = datasets.read_parquet(spark, str(ingesting.data))
    _each_is_there_once(found._replace(letters=found.letters.where("id != 'one more'")), made)


def ingest_while_killed(ingesting: Ingesting) -> Events:
    """Ingest, be killed, and go on while more arrives; all that has arrived in the end."""
    ingesting.create(ingesting.outcomes)
    made = events(LETTERS, seed=8, prefix=f"{ingesting.app_id}.")
    ingesting.create(*{retry["topic"] for retry in made.sent})
    # Enough for three batches, which are not what this is about.
    made.positions = made.positions[::4]
    parts = _parts(made, len(KILLS) + 1)
    produce(ingesting.producer, ingesting.outcomes, next(parts))
    for stream, done, java_too in KILLS:
        process, wanted_done = ingesting.start("--batch", BATCH), len(ingesting.done(stream)) + done
        await_that(f"{stream} has begun a batch", partial(_in_mid_run, ingesting, process, stream, wanted_done), BEGUN_S)
        kill(process, java_too=java_too)
        produce(ingesting.producer, ingesting.outcomes, next(parts))
    return made


def _counts(made: Events) -> dict[str, int]:
    return {"letters": len(made.letters), "retries": len(made.sent), "positions": len(made.positions), "aside": 0}


def _sizes(found: datasets.Datasets) -> dict[str, int]:
    return {
        "letters": found.letters.count(), "retries": found.sent.count(), "positions": found.positions.count(),
        "aside": found.aside.count(),
    }  # fmt: skip


def _each_is_there_once(found: datasets.Datasets, made: Events) -> None:
    assert _places(found.letters, "source", "attempt") == {(x["source"], x["attempt"]) for x in made.letters}
    assert _places(found.sent, "id", "attempt") == {(x["id"], x["attempt"]) for x in made.sent}
    _the_same_is_told(found, made)


def _is_next(process: subprocess.Popen[str], wanted: dict[str, int]) -> bool:
    """Whether the next pass has added so many."""
    assert process.stdout
    return bool(json.loads(process.stdout.readline()) == wanted)


def _in_mid_run(ingesting: Ingesting, process: subprocess.Popen[str], stream: str, done: int) -> bool:
    """Whether so many batches are done and one has begun."""
    assert process.poll() is None, ingesting.log().read_text()
    return len(ingesting.done(stream)) >= done and bool(ingesting.begun(stream))


def _the_same_is_told(found: datasets.Datasets, made: Events) -> None:
    """Check that what was generated, and what lies in the sets, come to the same attempts."""
    plain = [{**retry, "sent_ms": None} for retry in made.sent]
    told = model.attempts(made.letters, plain, made.positions[:0], settle_ms=SETTLE_MS, until_ms=made.until_ms)
    decisions = attempts.select_distinct_decisions(found.letters)
    asked = attempts.compute_attempts(decisions, found.sent, found.positions.limit(0), until_ms=made.until_ms)
    names = [name for name in ATTEMPT.names if name != "bytes"]
    assert sorted(map(tuple, asked.select(*names).collect()), key=repr) == sorted(rows(told, names), key=repr)


def _parts(made: Events, count: int) -> Iterator[Events]:
    """All of it in parts, the first as large as all others together: each of its streams takes several batches."""
    for n in range(count):
        part = Events()
        for name in ("letters", "sent", "positions"):
            rows_ = getattr(made, name)
            half = len(rows_) // 2
            setattr(part, name, rows_[:half] if n == 0 else rows_[half:][n - 1 :: count - 1])
        yield part


def _places(frame: object, *names: str) -> set[tuple[object, ...]]:
    found = [tuple(row) for row in frame.select(*names).collect()]  # type: ignore[attr-defined]
    assert len(found) == len(set(found))
    return set(found)
