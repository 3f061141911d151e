"""The way between workers and their broker is cut, half open, slow, reset or forgotten, while letters arrive.

Workers go through a proxy, to a listener that advertises it; letters are sent and read beside it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from retry.clock import Deadline
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.load import Load
from tests.support.proxied_broker import Way, proxied_broker
from tests.support.reading import Tail

pytestmark = pytest.mark.slow

DELAY_MS = 2_000
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
LETTERS_PER_S = 200
MORE, MORE_S = LETTERS_PER_S * 2, 120.0
# A session lasts 6 s, and a transaction no longer.
CUTS_S = 3.0, 9.0
# A client waits a minute for an answer by default; then all begins anew, on a busy machine.
STRANDED_S = 180.0
SLOW_S = 0.3
# A client that waits for an answer which was lost with its connection leaves its group late.
ENDS_WITHIN_S = 60.0
LARGE, LARGE_BYTES, NARROW_BYTES_PER_S, NARROW_S = 3_000, 3_000, 500_000, 300.0
RESETS, RESET_EVERY_S = 20, 0.5


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    with proxied_broker(tmp_path_factory.mktemp("proxied")) as made:
        yield made


@pytest.fixture
def deployment(deploy: Deploy, way: Way) -> Iterator[Deployment]:
    """Two workers behind the proxy, ready."""
    made = deploy({"one": 1, "three": 3}, on=way.broker, shards=4, defaults=POLICY)
    for name in ("a", "b"):
        made.worker(name).start(RETRY_BOOTSTRAP_SERVERS=way.proxied_servers)
    for worker in made.workers.values():
        worker.await_ready()
    yield made
    way.proxy.restore()


def broken(deployment: Deployment, way: Way, runs: Runs, faults: list[Callable[[], None]], seconds: Sequence[float]) -> None:
    """Make faults under load, each for some seconds; after each all goes on, with the same workers."""
    pids = {name: worker.pid for name, worker in deployment.workers.items()}
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for fault, lasts_s in zip(faults, seconds, strict=True):
            tail.await_more(MORE, MORE_S)
            fault()
            tail.quiet(lasts_s)
            way.proxy.restore()
            way.broker.signal(signal.SIGCONT)
            runs.add()
            tail.await_more(MORE, MORE_S)
    tail.close()
    nothing_is_wrong(deployment, load.sender, ends_within_s=ENDS_WITHIN_S)
    assert {name: worker.pid for name, worker in deployment.workers.items()} == pids


@pytest.mark.fault("network cut: nothing comes through, for 3 s and for 9 s")
def test_a_cut_for_a_moment_and_past_all_sessions(deployment: Deployment, way: Way, runs: Runs) -> None:
    broken(deployment, way, runs, [way.proxy.drop] * 2, CUTS_S)


@pytest.mark.fault("half-open: answers do not come through, for 3 s and for 9 s")
def test_requests_arrive_and_answers_do_not(deployment: Deployment, way: Way, runs: Runs) -> None:
    broken(deployment, way, runs, [way.proxy.half_open] * 2, CUTS_S)


@pytest.mark.fault("the only broker frozen past all sessions (SIGSTOP, 9 s)")
def test_the_only_broker_stops_answering_and_comes_back(deployment: Deployment, way: Way, runs: Runs) -> None:
    broken(deployment, way, runs, [partial(way.broker.signal, signal.SIGSTOP)], CUTS_S[1:])


@pytest.mark.fault("slow network: 300 ms more each way, for 9 s")
def test_a_slow_network(deployment: Deployment, way: Way, runs: Runs) -> None:
    broken(deployment, way, runs, [partial(way.proxy.delay, SLOW_S)], CUTS_S[1:])


@pytest.mark.fault("a link that takes 500 kB a second, a fraction of what is in a transaction")
def test_a_link_that_is_slower_than_the_transactions(deployment: Deployment, way: Way, runs: Runs) -> None:
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LARGE):
        sender.send(next(iter(deployment.dead_letters)), b"k%d" % n, os.urandom(LARGE_BYTES))
    way.proxy.narrow(NARROW_BYTES_PER_S)
    runs.add()
    sender.finish()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LARGE, NARROW_S)
    way.proxy.restore()
    tail.close()
    nothing_is_wrong(deployment, sender, ends_within_s=ENDS_WITHIN_S)


@pytest.mark.fault("all connections reset, every half second for 10 s")
def test_connections_are_reset_again_and_again(deployment: Deployment, way: Way, runs: Runs) -> None:
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(MORE, MORE_S)
        for _ in range(RESETS):
            way.proxy.reset()
            runs.add()
            tail.quiet(RESET_EVERY_S)
        tail.await_more(MORE, MORE_S)
    tail.close()
    nothing_is_wrong(deployment, load.sender, ends_within_s=ENDS_WITHIN_S)


@pytest.mark.fault("all connections forgotten: they never end, and nothing comes through")
def test_connections_that_never_end_are_given_up(deployment: Deployment, way: Way, runs: Runs) -> None:
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(MORE, MORE_S)
        way.proxy.strand()
        runs.add()
        stopped = Deadline(STRANDED_S)
        tail.await_more(MORE, STRANDED_S)
        print(f"went on after {STRANDED_S - stopped.remaining_s():.1f} s")
    tail.close()
    nothing_is_wrong(deployment, load.sender, STRANDED_S, ends_within_s=STRANDED_S)
