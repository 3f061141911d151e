"""`report` and `advise` on two executors of 1 GiB, of a cluster that Spark starts and of a standalone master.

Folders count as large here whatever their size, so few events take the way of many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.process import ROOT, await_that, end

pytest.importorskip("pyspark")

import pyspark
from pyspark.sql import SparkSession

from tests.bench import analytics

pytestmark = pytest.mark.slow

SPARK = Path(pyspark.__file__).parent / "bin"
LOOPBACK, CORES, MEMORY_MB = "127.0.0.1", 1, 1024
FEW, MANY = 3_000, 940_000
RUN_S, START_S, END_S = 3_600.0, 120.0, 30.0
JOB = """from retry.__main__ import main
from retry.analytics import decisions

decisions._MORE_BYTES = -1
main()
"""
Cluster = Callable[[Path], AbstractContextManager[str]]
POLICIES = "teams: {payments: {topics: [{dead_letters: payments.DLT, retry_to: payments.retry, max_attempts: 8}]}}\n"


@contextmanager
def cluster_of_spark(_: Path) -> Iterator[str]:
    """A cluster that the driver starts, in processes of their own."""
    yield f"local-cluster[2,{CORES},{MEMORY_MB}]"


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers."""
    address = f"spark://{LOOPBACK}:{(port := free_port())}"
    with ExitStack() as stack:
        said = folder / "master.log"
        _start(stack, said, "master.Master", "--port", str(port), "--webui-port", "0")
        for n in range(2):
            more = ("-c", str(CORES), "-m", f"{MEMORY_MB}m", "--webui-port", "0", "-d", str(folder / f"worker-{n}"), address)
            _start(stack, folder / f"worker-{n}.log", "worker.Worker", *more)
        await_that("the master knows two workers", lambda: said.read_text().count("Registering worker") == 2, START_S)
        yield address


def _start(stack: ExitStack, said: Path, name: str, *arguments: str) -> None:
    with said.open("wb") as log:
        command = [str(SPARK / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", LOOPBACK, *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=said.parent)
    stack.callback(end, process, END_S)


CLUSTERS = [pytest.param(each, id=each.__name__) for each in (cluster_of_spark, standalone)]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_report_and_advice_on_two_executors_are_the_generated_truth(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    _is_asked(cluster, spark, tmp_path, FEW)


@pytest.mark.timeout(4 * RUN_S)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_ten_million_events_are_asked_on_two_executors_of_a_gigabyte(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    most, of = _is_asked(cluster, spark, tmp_path, MANY)
    assert most < of / 2, "one task has read half of all letters and retries"


def _is_asked(cluster: Cluster, spark: SparkSession, folder: Path, lives: int) -> tuple[int, int]:
    """Ask so many original records; most rows that a task got by a shuffle, and how many letters and retries there are."""
    data = folder / "data"
    alive = analytics._lives(spark, lives)
    analytics._write(alive, str(data))
    there = sum(spark.read.parquet(str(data / name)).count() for name in ("letters", "retries"))
    with cluster(folder) as master:
        report = _submit(master, folder, "report", "--data", data.as_uri(), "--json")
        advice = _submit(master, folder, "advise", "--data", data.as_uri(), "--json", "--file", _policies(folder))
    recovered = alive.where("recovered").count()
    totals = report["totals"]
    assert (totals["letters"], totals["recovered"], totals["parked"]) == (lives, recovered, lives - recovered)
    assert sum(row["letters"] for row in advice["advice"]) == lives
    worked, most = _tasks(folder / "events")
    assert len(worked) == 2, worked
    assert min(worked.values()) > sum(worked.values()) / 10
    return most, there


def _policies(folder: Path) -> str:
    (file := folder / "policies.yaml").write_text(POLICIES)
    return str(file)


def _submit(master: str, folder: Path, *arguments: str) -> dict[str, Any]:
    (job := folder / "job.py").write_text(JOB)
    (logged := folder / "events").mkdir(exist_ok=True)
    conf = {
        "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": logged.as_uri(),
        "spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.ui.enabled": "false",
        "spark.executor.memory": f"{MEMORY_MB}m", "spark.executor.cores": str(CORES),
        # All that it is asked of few events is over before a second executor has begun.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.locality.wait": "0s",
    }  # fmt: skip
    told = (part for name, value in conf.items() for part in ("--conf", f"{name}={value}"))
    done = subprocess.run(
        [str(SPARK / "spark-submit"), "--master", master, *told, str(job), "analytics", *arguments], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "RETRY_APP_ID": "bench"},
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6_000:]
    return dict(json.loads(done.stdout))


def _tasks(logged: Path) -> tuple[Counter[str], int]:
    """How many tasks each executor has ended, and most rows that one of them got by a shuffle."""
    worked, most = Counter[str](), 0
    for file in (each for each in logged.rglob("*") if each.is_file()):
        for line in file.read_text().splitlines():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                task = json.loads(line)
                worked[task["Task Info"]["Executor ID"]] += 1
                most = max(most, task["Task Metrics"]["Shuffle Read Metrics"]["Total Records Read"])
    return worked, most
