"""More connections that send nothing than a process may have files open: probes are answered, and the log stays small."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable

import pytest

from tests.conftest import Deploy, Schedulings
from tests.support.crowd import Crowd
from tests.support.process import WorkerProcess, await_that
from tests.support.timers import Api

pytestmark = pytest.mark.check

FILES, CROWD = "256", 300
LOG_BYTES_MAX = 20_000
LIMITED = ("-m", "tests.support.limited")
_REST = re.compile(r"rest on 127\.0\.0\.1:(\d+)")


def test_1_100_idle_connections_to_a_worker_with_1_024_files_do_not_keep_probes_out_and_are_closed(deploy: Deploy) -> None:
    worker = deploy({"orders": 1}, shards=2).worker("a").start(*LIMITED, "1024", "worker").await_ready()
    holds_out(worker, worker.port, 1_100, closed=True)


def test_idle_connections_to_a_supervisor_do_not_keep_probes_out(deploy: Deploy) -> None:
    both = deploy({"orders": 2}, shards=2).worker("both")
    both.start(*LIMITED, FILES, "worker", "--processes", "2").await_ready()
    holds_out(both, both.port, CROWD)


def test_idle_connections_to_the_api_do_not_keep_probes_out(deploy: Deploy) -> None:
    api = Api(deploy({"orders": 1}, shards=2))
    api.process.start(*LIMITED, FILES, "api", RETRY_API_ADDR="127.0.0.1:0").await_ready()
    holds_out(api.process, api.process.port, CROWD)


def test_idle_connections_to_both_servers_of_a_scheduler_do_not_keep_probes_out(scheduling: Schedulings) -> None:
    s = scheduling(1)
    scheduler = WorkerProcess("limited", s.folder, s.environ)
    s.instances.append(scheduler)
    scheduler.start(*LIMITED, FILES, "scheduler").await_ready()
    with Crowd(scheduler.port(), CROWD):
        holds_out(scheduler, lambda: int(_REST.findall(scheduler.log())[-1]), CROWD, "/liveness")
    s.schedule("a", 2_000_000_000)
    s.flush()
    await_that("schedules are taken in and shown", lambda: [each["id"] for each in s.ask(scheduler, "/schedules")] == ["a"])


def holds_out(
    process: WorkerProcess, port: Callable[[], int], size: int, path: str = "/health/live", *, closed: bool = False
) -> None:
    """While a crowd is connected, and afterwards."""
    before = len(process.log())
    with Crowd(port(), size) as crowd:
        assert [status(port(), path) for _ in range(10)] == [200] * 10
        assert crowd.open() < size
        if closed:
            await_that("all that send no request are closed", lambda: crowd.open() == 0, 90.0)
    assert status(port(), path) == 200
    await_that("it is ready", process.ready)
    assert len(process.log()) - before < LOG_BYTES_MAX, process.tail()


def status(port: int, path: str) -> int:
    """Return the status of an answer to a new connection, by a client that is as patient as a probe of the chart."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
