"""HTTP timers while something is wrong: a host that hangs, a worker that is killed while it calls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from retry.clock import wall_ms
from tests.conftest import Deploy
from tests.support.hosts import Call, Host, hang, ok
from tests.support.process import await_that
from tests.support.timers import Api

pytestmark = pytest.mark.check

LOOPBACK = {"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8"}
# Longer than all the rest takes on a starved core.
HANG_MS = 300_000
A_ROUND = 200


def lateness_ms(host: Host) -> list[int]:
    """How late the calls that it got came, in order; each says itself when it was due."""
    return sorted(call.at_ms - json.loads(call.body)["due_ms"] for call in host.calls)


def spread(api: Api, url: str, count: int, begins_in_ms: int, over_ms: int) -> list[str]:
    """Make timers that are due one after another over a time; their ids."""
    begin_ms = wall_ms() + begins_in_ms
    due = [begin_ms + over_ms * n // count for n in range(count)]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda due_ms: api.make(url, at=due_ms, body={"due_ms": due_ms}), due))


def p99(sorted_ms: list[int]) -> int:
    return sorted_ms[len(sorted_ms) * 99 // 100]


@pytest.mark.fault("a host that is called hangs")
def test_2_3_a_host_that_hangs_does_not_delay_others(deploy: Deploy) -> None:
    """The figures are printed: with `-s`, p99 of the others with and without a host that hangs for minutes."""
    deployment = deploy({"orders": 1}, shards=2, environ={**LOOPBACK, "RETRY_CALL_TIMEOUT_MS": str(HANG_MS)})
    worker, api = deployment.worker("a").start(), Api(deployment).start()
    worker.await_ready()
    with Host() as before, Host() as fast, Host(hang) as slow:
        spread(api, before.url, A_ROUND, 3_000, 4_000)
        await_that("all were called", lambda: len(before.calls) == A_ROUND)
        for _ in range(100):
            api.make(slow.url, after="0s")
        await_that("as many hang as may", lambda: len(slow.calls) == 32)
        hanging_since_ms = wall_ms()
        spread(api, fast.url, A_ROUND, 3_000, 4_000)
        await_that("all were called", lambda: len(fast.calls) == A_ROUND)
        assert wall_ms() - hanging_since_ms < HANG_MS, "the others were called while the slow one still hung"
        assert len(slow.calls) == 32, "no more at a time"
        alone, beside = lateness_ms(before), lateness_ms(fast)
        print(f"p99 of others: alone {p99(alone)} ms, beside a host that hangs {p99(beside)} ms")
        assert min(beside) >= 0
        # A slow machine is late by itself, but not by a part of what it would have waited for.
        assert p99(beside) < max(HANG_MS // 10, 5 * p99(alone))
        assert worker.metric("retry_webhooks_in_flight") == 32


@pytest.mark.fault("the worker that calls timers killed")
@pytest.mark.slow
def test_2_4_2_6_when_the_worker_that_calls_is_killed_every_timer_is_called(deploy: Deploy) -> None:
    """At least once: a call without its null is made again, under the same id, and there are no others twice."""
    deployment = deploy({"orders": 1}, shards=4, environ=LOOPBACK)
    workers = [deployment.worker(name).start() for name in ("a", "b")]
    api = Api(deployment).start()
    for worker in workers:
        worker.await_ready()
    await_that("both have shards", lambda: all(worker.metric("retry_shards_owned") == 2 for worker in workers))

    async def soon(call: Call, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        await ok(call, writer)

    with Host(soon) as host:
        made = spread(api, host.url, 800, 4_000, 6_000)
        await_that("it is in the middle of it", lambda: len(host.calls) > 200)
        workers[0].kill()
        await_that("another third went", lambda: len(host.calls) > 500)
        workers[0].start()
        await_that("all are called", lambda: {call.headers["webhook-id"] for call in host.calls} >= set(made))
        await_that("nothing waits", lambda: api.ask("GET", "/timers")[1]["timers"] == [])
        times = Counter(call.headers["webhook-id"] for call in host.calls)
    assert times.keys() == set(made)
    verified = deployment.command("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    again = sum(count - 1 for count in times.values())
    print(f"{len(made)} timers, none lost, {again} called once more than once")
    assert min(lateness_ms(host)) >= 0
    # Its shards move twice: to the other worker when it is killed, and back when it is there again.
    assert again <= 4 * 32, "no more of each shard than were under way, or not written down yet, when it moved: two, and back"
    assert max(times.values()) <= 3
