"""`make load`: timers made and fired in a second, by one API and one worker, beside a broker and hosts that are called."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import aiohttp

from retry.clock import monotonic_s, wall_ms
from retry.kafka.local_broker import LocalBroker
from tests.support.deployment import Deployment
from tests.support.hosts import Host
from tests.support.process import await_that
from tests.support.timers import Api

_CONNECTIONS = 32
_SETTINGS = {"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", "RETRY_CALLS_PER_HOST": "64", "RETRY_API_REQUESTS_PER_S": "0"}


def main() -> None:
    """Print the figures."""
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
    worker, api = deployment.worker("a").start(), Api(deployment).start()
    worker.await_ready()
    hosts = [Host().__enter__() for _ in range(count)]
    due_ms = wall_ms() + max(10_000, timers * 3)
    took_s, slowest = asyncio.run(_made(api.process.port(), [host.url for host in hosts], timers, due_ms))
    late_ms = wall_ms() - due_ms
    print(f"made:  {timers / took_s:,.0f} timers/s over {_CONNECTIONS} connections, p99 of an answer {slowest * 1_000:.0f} ms")
    if late_ms > 0:
        print(f"       they were due {late_ms} ms before the last was made: give more time by fewer timers")
    await_that("all are called", lambda: sum(len(host.calls) for host in hosts) >= timers, 600.0)
    calls = sorted(call.at_ms for host in hosts for call in host.calls)
    ids = {call.headers["webhook-id"] for host in hosts for call in host.calls}
    fired_s = (calls[-1] - due_ms) / 1_000
    print(f"fired: {timers / fired_s:,.0f} timers/s, all due in one moment")
    print(f"       {len(ids):,} of {timers:,} were called, {len(calls) - len(ids)} more than once")
    await_that("all is written down", lambda: worker.metric("retry_webhooks_total") >= timers, 60.0)
    for host in hosts:
        host.__exit__(None, None, None)


async def _made(port: int, urls: list[str], timers: int, due_ms: int) -> tuple[float, float]:
    """Seconds for all of them, and the 99th percentile of seconds for one."""
    left, took = iter(range(timers)), list[float]()
    connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one_after_another() -> None:
            for n in left:
                wish = {"url": f"{urls[n % len(urls)]}/{n}", "at": due_ms, "body": {"n": n}}
                began_s = monotonic_s()
                async with session.post(f"http://127.0.0.1:{port}/timers", json=wish) as answer:
                    body = await answer.read()
                    if answer.status != 201:
                        raise AssertionError(json.loads(body))
                took.append(monotonic_s() - began_s)

        began_s = monotonic_s()
        await asyncio.gather(*(one_after_another() for _ in range(_CONNECTIONS)))
        return monotonic_s() - began_s, sorted(took)[len(took) * 99 // 100]


if __name__ == "__main__":
    main()
