"""A resolver that hangs: whose names do not resolve waits, at the cost of no attempt and no breaker, and nobody else does.

The threads, the client and the host that is called are real; only the machine's resolver answers as it is told.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from retry.clock import wall_ms
from retry.delay_queue import envelopes
from retry.delay_queue.envelopes import Call
from retry.delivery.webhook_calls import advance_calls
from retry.delivery.webhooks_in_flight import Limits, WebhooksInFlight
from retry.errors import LookupsBusy
from retry.http_client.client import HttpRequest, WebhookClient
from retry.http_client.ssrf_guard import Lookups, SsrfGuard, parse_allowlist
from retry.kafka.topics import build_topic_names
from retry.scheduling.timers import entry_source as source
from retry.telemetry.call_records import Called
from retry.telemetry.health import Reason
from tests.support.bench import CHANGELOG, Bench
from tests.support.hosts import Host
from tests.support.process import await_that

HANGING, GOOD = 200, 50
LONG_S = 600.0


class Resolver:
    """Resolves every name to loopback; those that begin with `hang` once it is told to let go."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.let_go = threading.Event()

    def __call__(self, host: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        if host.startswith("hang"):
            self.let_go.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    def hanging(self) -> int:
        """How many names it hangs on."""
        return sum(count for host, count in self.asked.items() if host.startswith("hang"))


class World:
    """A shard and the calls of its process, as a worker puts them together."""

    def __init__(self, lookup_s: float) -> None:
        self.bench, self.told, self.held = Bench(), list[Called](), dict[str, Reason]()
        self.names = build_topic_names("app")
        self.bench.log.create(self.names.calls, 1)
        self.bench.admission.block = lambda lane, reason, _why, _now: self.held.update({lane.destination: reason})  # type: ignore[attr-defined]
        self.lookups = Lookups(lookup_s=lookup_s)
        client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8"), self.lookups.addresses))
        limits = Limits(512, 32, int(LONG_S * 1_000))
        self.calls = WebhooksInFlight(client.call, limits, self.names, self.told.extend, self.lookups.is_crowded, client.close)

    def put(self, team: str, timer_id: str, origin: str) -> None:
        call = Call(f"{origin}/{timer_id}", "POST", timer_id, 1, "", int(LONG_S * 1_000))
        key, entry = source.build_timer_entry(timer_id, team, origin, wall_ms(), 1, b"", [], call, b"mark")
        self.bench.write([(key, envelopes.encode(entry))])

    def ended(self) -> list[Called]:
        """Wait for what came of calls so far; those that are due and may be are begun."""
        advance_calls(self.calls, self.bench.table, self.bench.writer, CHANGELOG, self.bench.admission, wall_ms(), 1_000)
        return self.told


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.let_go.set()


def test_a_team_whose_names_do_not_resolve_waits_without_attempts_or_breakers_and_others_are_called(resolver: Resolver) -> None:
    world = World(LONG_S)
    with Host() as host:
        for n in range(HANGING):
            world.put("hangs", f"hang-{n}", f"http://hang-{n}.test:{host.port}")
        world.ended()
        await_that("lookups hang", lambda: world.ended() == [] and resolver.hanging() >= 64)
        for n in range(GOOD):
            world.put("other", f"good-{n}", f"http://good-{n % 10}.test:{host.port}")
        await_that("the other team is called", lambda: len(world.ended()) == GOOD)
        assert {(called.team, called.decision) for called in world.told} == {("other", "delivered")}
        assert 64 <= resolver.hanging() < 128
        assert max(count for name, count in resolver.asked.items() if name.startswith("hang")) == 1
        assert world.calls.breakers() == Counter()
        unbegun = {f"http://hang-{n}.test:{host.port}" for n in range(HANGING) if not resolver.asked[f"hang-{n}.test"]}
        assert {world.held[origin] for origin in unbegun} == {Reason.RATE_LIMIT}
        resolver.let_go.set()
        await_that("the first team is called as well", lambda: len(world.ended()) == GOOD + HANGING)
        assert {(called.decision, called.attempt) for called in world.told} == {("delivered", 1)}
    world.calls.close()


def test_a_lookup_has_a_time_limit_of_its_own_and_a_name_is_looked_up_once_at_a_time(resolver: Resolver) -> None:
    client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8"), Lookups(lookup_s=0.05).addresses))

    async def calls() -> list[str | None]:
        asked = [HttpRequest("t", "POST", f"http://hang.test:{port}/", {}, b"", LONG_S, "team") for port in range(1, 9)]
        return [answer.error for answer in await asyncio.gather(*map(client.call, asked))]

    assert asyncio.run(calls()) == ["timeout"] * 8
    # By a thread of its own, which may come to it after those who wait have given up.
    await_that("it was looked up once", lambda: resolver.asked == {"hang.test": 1})


def test_each_team_that_hangs_leaves_half_of_what_is_free(resolver: Resolver) -> None:
    lookups = Lookups(total=16, lookup_s=0.0)

    async def count_begun(team: str) -> int:
        for n in range(20):
            assert lookups.is_crowded(team, f"hang-{team}-{n}") is (n >= most)
            try:
                await lookups.addresses(f"hang-{team}-{n}", team)
            except TimeoutError:
                continue
            except LookupsBusy:
                return n
        return 20

    for team, most in (("a", 8), ("b", 4), ("c", 2), ("d", 1), ("e", 1), ("f", 0)):
        assert asyncio.run(count_begun(team)) == most
    assert asyncio.run(lookups.addresses("127.0.0.1", "f")) == ["127.0.0.1"], "an address takes no lookup"
    assert not lookups.is_crowded("f", "hang-a-0"), "it shares the one that is under way"
    resolver.let_go.set()
    await_that("all have ended", lambda: not lookups.is_crowded("f", "another"))
