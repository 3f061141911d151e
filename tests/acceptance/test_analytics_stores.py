"""Analytics in a folder on an object store and on HDFS, by `spark-submit` as the page says: each record is there once."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retry.jars import fetch_jars
from tests.acceptance.sets_told import NAMES
from tests.support.events import Events, events, produce
from tests.support.ingesting import Ingesting
from tests.support.process import ROOT, await_that
from tests.support.stores import Store, hdfs, s3

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

pytestmark = pytest.mark.release

LETTERS, BATCH, OVER_MS = 40, "40", 2 * 86_400_000
# Of the ingest that is killed: it has so many batches that one of them is seen to have begun.
SMALL_BATCH = "10"
RUN_S = 900.0
JOB, FELLED, TOLD = "examples/spark_job.py", "tests/acceptance/felled_compaction.py", "tests/acceptance/sets_told.py"
# Spark repeats a set's list every third batch, not every tenth.
CONFIG = {
    "spark.sql.streaming.fileSink.log.compactInterval": "3", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
}  # fmt: skip
# By part of the events: while which stream has begun a batch that is not done the ingest is killed, and then compaction where.
KILLS = ((("letters", 1), ("staged:2", "switched:1")), (("retries", 0), ("removed:2",)))


class Submitted:
    """Commands on a folder of a store, each a job of its own."""

    def __init__(self, ingesting: Ingesting, store: Store) -> None:
        self._ingesting, self.store = ingesting, store
        spark = importlib.util.find_spec("pyspark")
        assert spark and spark.origin
        config = {**CONFIG, **store.config}
        self._command = [
            str(Path(spark.origin).parent / "bin" / "spark-submit"), "--master", "local[2]",
            "--jars", ",".join([*map(str, fetch_jars("spark")), *store.jars]),
            *(part for name, value in config.items() for part in ("--conf", f"{name}={value}")),
        ]  # fmt: skip

    def start(self, job: str, *arguments: str) -> subprocess.Popen[str]:
        """Begin, in a process group of its own."""
        environ = {**self._ingesting.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        with self._ingesting.log().open("a") as log:
            return subprocess.Popen(
                [*self._command, str(ROOT / job), *arguments], cwd=self._ingesting.folder, env=environ,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def ended(self, job: str, *arguments: str) -> tuple[int, str]:
        """How it ended, and what it printed."""
        process = self.start(job, *arguments)
        try:
            out, _ = process.communicate(timeout=RUN_S)
        except BaseException:
            _kill(process)
            raise
        return process.returncode, out

    def answered(self, job: str, *arguments: str) -> dict[str, Any]:
        """The JSON that it printed last."""
        code, out = self.ended(job, *arguments)
        assert code == 0, self._ingesting.log().read_text()[-8_000:]
        return dict(json.loads(out.splitlines()[-1]))

    def killed_in(self, stream: str, done: int) -> None:
        """Ingest, and be killed when so many batches of a stream are done and another has begun."""
        before = len(self._numbers(stream, "commits"))
        process = self.start(JOB, "analytics", "ingest", self.store.url, "--batch", SMALL_BATCH)
        try:
            await_that(f"{stream} has begun a batch", partial(self._in_mid_run, process, stream, before + done), RUN_S)
        finally:
            _kill(process)

    def _in_mid_run(self, process: subprocess.Popen[str], stream: str, done: int) -> bool:
        assert process.poll() is None, self._ingesting.log().read_text()[-8_000:]
        committed = self._numbers(stream, "commits")
        return len(committed) >= done and bool(self._numbers(stream, "offsets") - committed)

    def _numbers(self, stream: str, kind: str) -> set[str]:
        return {name for name in self.store.names(f"_checkpoints/{stream}/{kind}") if name.isdigit()}


@pytest.fixture(params=[s3, hdfs], ids=["s3a", "hdfs"])
def submitted_store(
    request: pytest.FixtureRequest, ingesting: Ingesting, spark: SparkSession, tmp_path: Path
) -> Iterator[Submitted]:
    with request.param(tmp_path, spark) as store:
        yield Submitted(ingesting, store)


def test_ingest_compact_and_report_work_there_and_each_record_is_there_once_through_kill_9(
    submitted_store: Submitted, ingesting: Ingesting
) -> None:
    ingesting.create(ingesting.outcomes)
    made = events(LETTERS, seed=20, over_ms=OVER_MS, prefix=f"{ingesting.app_id}.")
    ingesting.create(*{retry["topic"] for retry in made.sent})
    made.positions = made.positions[::10]
    so_far = Events()
    for n, (ingest, points) in enumerate(KILLS):
        part = _part(made, n)
        produce(ingesting.producer, ingesting.outcomes, part)
        for name in ("letters", "sent", "positions"):
            getattr(so_far, name).extend(getattr(part, name))
        submitted_store.killed_in(*ingest)
        submitted_store.answered(JOB, "analytics", "ingest", submitted_store.store.url, "--batch", BATCH)
        for point in points:
            assert submitted_store.ended(FELLED, submitted_store.store.url, point)[0] != 0, point
        _each_is_there_once(submitted_store, so_far)
    done = submitted_store.answered(JOB, "analytics", "compact", submitted_store.store.url, "--keep", "1ms")
    assert done["letters"]["removed"] > 0
    # What killed compactions left is gone as well.
    assert submitted_store.store.names("letters/_compacting") <= {"_compacting"}
    _each_is_there_once(submitted_store, so_far)
    report = submitted_store.answered(JOB, "analytics", "report", "--data", submitted_store.store.url, "--json")
    assert report["totals"]["letters"] == LETTERS


def _part(made: Events, n: int) -> Events:
    parts = len(KILLS)
    return Events(letters=made.letters[n::parts], sent=made.sent[n::parts], positions=made.positions[n::parts])


def _each_is_there_once(submitted: Submitted, made: Events) -> None:
    told = submitted.answered(TOLD, submitted.store.url)
    for name, names in NAMES.items():
        wanted = Counter(tuple(row[each] for each in names) for row in getattr(made, name))
        assert Counter({tuple(row): count for row, count in told[name]}) == wanted


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
