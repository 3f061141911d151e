"""A worker whose wall clock steps by an hour, and one that starts with a wrong one.

libfaketime moves the clock of librdkafka, too, whose waits then never end; so a library of our own moves Python's alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Deploy
from tests.support import policies
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.check

LETTERS = 100
SOURCE = Path(__file__).parents[1] / "support" / "wrong_clock.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library that stands between a worker and the machine's wall clock."""
    compiler, built = shutil.which("cc"), tmp_path_factory.mktemp("clock") / "wrong_clock.so"
    if compiler is None:
        pytest.skip("there is no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"], check=True)
    return built


class Clock:
    """The clock that a worker sees, as an offset from the machine's."""

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self.is_off(0)
        self.environ = {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(file)}

    def is_off(self, by_s: int) -> None:
        """Step the clock by so many seconds."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{by_s}\n")
        new.rename(self._file)


def read_block_reason(worker: WorkerProcess) -> str:
    """Why nothing is delivered."""
    return json.loads(worker.get("/health/ready")[1] or "{}").get("blocked", {}).get("everything", "")


@pytest.fixture
def clock(tmp_path: Path, library: Path) -> Clock:
    """Right, until it is stepped."""
    return Clock(tmp_path / "clock", library)


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    """One topic whose letters are due soon, and one whose letters are due within the hour."""
    made = deploy({"soon": 1, "later": 1}, shards=2)
    soon, later = made.dead_letters
    patient = policies.topic(made, later, "backoff: {kind: constant, delay: 40m}")
    made.policy_file.write_text(policies.text({"t": policies.team(policies.topic(made, soon), patient)}))
    return made


def send(deployment: Deployment, name: str) -> None:
    sender = Sender(deployment.bootstrap_servers)
    for topic in deployment.dead_letters:
        for n in range(LETTERS):
            sender.send(topic, b"k", b"%s-%d" % (name.encode(), n))
    sender.finish()


@pytest.mark.slow
@pytest.mark.fault("clock stepped by an hour, to and fro")
def test_a_clock_that_steps_delivers_nothing_early_and_nothing_twice(deployment: Deployment, clock: Clock, runs: Runs) -> None:
    worker = deployment.worker().start(**clock.environ).await_ready()
    tail, came = Tail(deployment.bootstrap_servers, deployment.retry_topics()), 0
    for off_s, said in ((3_600, "the clock is 3600 s ahead of"), (-3_600, "the clock is 3600 s behind")):
        send(deployment, f"before {off_s}")
        came += LETTERS
        tail.await_seen(came)
        clock.is_off(off_s)
        await_that("it is noticed", lambda said=said: read_block_reason(worker).replace("3599", "3600").startswith(said))  # type: ignore[misc]
        runs.add()
        await_that("it is not trusted", lambda: worker.metric("retry_clock_trusted") == 0)
        send(deployment, f"during {off_s}")
        assert tail.quiet(4.0) == []
        clock.is_off(0)
        came += LETTERS
        tail.await_seen(came)
        await_that("it is trusted again", lambda: worker.metric("retry_clock_trusted") == 1)
        await_that("nothing is held", lambda: read_block_reason(worker) == "")
    assert tail.quiet(2.0) == []
    tail.close()
    worker.terminate()
    soon, later = deployment.retry_topics()
    back = read(deployment.bootstrap_servers, [soon], COMMITTED)
    assert [n for n in Counter(record.value for record in back).values() if n != 1] == []
    assert [record for record in back if record.timestamp_ms < int(record.header("retry-due-ms"))] == []
    assert read(deployment.bootstrap_servers, [later], COMMITTED) == []


@pytest.mark.slow
@pytest.mark.fault("started with a clock that is an hour off")
@pytest.mark.parametrize("off_s", [3_600, -3_600])
def test_a_worker_that_starts_with_a_wrong_clock_waits_for_a_right_one(
    deployment: Deployment, clock: Clock, off_s: int
) -> None:
    worker = deployment.worker().start(**clock.environ).await_ready()
    send(deployment, "waits")
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LETTERS)
    worker.terminate()
    clock.is_off(off_s)
    worker.start(**clock.environ).await_ready()
    await_that("it is noticed", lambda: read_block_reason(worker).replace("3599", "3600").startswith("the clock is 3600 s"))
    assert tail.quiet(3.0) == []
    clock.is_off(0)
    send(deployment, "soon")
    tail.await_seen(2 * LETTERS)
    assert {record.topic for record in tail.records} == {deployment.retry_topics()[0]}
    assert len(tail.records) == 2 * LETTERS
    tail.close()
    worker.terminate()
