"""`make load`: timers made and fired in a second, by one API and one worker, beside a broker and hosts that are called.

All of it shares the machine: what the client alone can do is printed first, and is to be well above what is measured.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from retry.clock import wall_ms
from retry.kafka.local_broker import LocalBroker
from tests.bench.http_load import LoadHost, make
from tests.support.deployment import Deployment
from tests.support.process import await_that
from tests.support.timers import Api

_CONNECTIONS = 64
_SETTINGS = {"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", "RETRY_CALLS_PER_HOST": "64", "RETRY_API_REQUESTS_PER_S": "0"}


def main() -> None:
    """Run the benchmark and print its figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--timers", type=int, default=10_000)
    options.add_argument("--hosts", type=int, default=4)
    told = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalBroker(Path(folder) / "broker", heap_mb=512) as broker:
        deployment = Deployment(broker.bootstrap_servers, Path(folder) / "load", {"orders": 1}, environ=_SETTINGS).prepare()
        try:
            load(deployment, told.timers, told.hosts)
        finally:
            deployment.close()


def load(deployment: Deployment, timers: int, count: int) -> None:
    """Make so many timers for so many hosts, and print how fast they were made and fired.

    Raises:
      AssertionError: not all were made, or not all were called in ten minutes.
    """
    with LoadHost() as alone:
        seconds, _ = make(f"{alone.url}/timers", timers, _CONNECTIONS, 0, [alone.url])
        print(f"client: {timers / seconds:,.0f} requests/s, where a host answers at once")
    worker, api = deployment.worker("a").start(), Api(deployment).start()
    worker.await_ready()
    hosts = [LoadHost().__enter__() for _ in range(count)]
    try:
        _measure(f"http://127.0.0.1:{api.process.port()}/timers", hosts, timers)
        await_that("all is written down", lambda: worker.metric("retry_webhooks_total") >= timers, 60.0)
    finally:
        for host in hosts:
            host.__exit__(None, None, None)


def _measure(url: str, hosts: list[LoadHost], timers: int) -> None:
    due_ms = wall_ms() + max(10_000, timers)
    took_s, slowest_s = make(url, timers, _CONNECTIONS, due_ms, [host.url for host in hosts])
    late_ms = wall_ms() - due_ms
    print(f"made:  {timers / took_s:,.0f} timers/s over {_CONNECTIONS} connections, p99 of an answer {slowest_s * 1_000:.0f} ms")
    if late_ms > 0:
        print(f"       they were due {late_ms} ms before the last was made: give more time by fewer timers")
    await_that("they are due", lambda: wall_ms() >= due_ms)
    await_that("all are called", lambda: sum(host.count() for host in hosts) >= timers, 600.0)
    calls = sorted(call for host in hosts for call in host.calls())
    ids = {id_ for _, id_ in calls}
    print(f"fired: {timers / ((calls[-1][0] - due_ms) / 1_000):,.0f} timers/s, all due in one moment")
    print(f"       {len(ids):,} of {timers:,} were called, {len(calls) - len(ids)} more than once")


if __name__ == "__main__":
    main()
