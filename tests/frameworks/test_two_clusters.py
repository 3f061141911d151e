"""Letters on cluster A and the service on cluster B, with Kafka Connect between them, as docs/how-to/two-clusters.md says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from retry.kafka.local_broker import HOST, LocalBroker
from tests.fixtures.capture.running import classpath
from tests.support.attached import undo
from tests.support.checker import verify_deployment
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.letters import Headers, Sender
from tests.support.mirrored import JARS, Mirror, snippet
from tests.support.ports import free_port
from tests.support.process import await_that, let_pass
from tests.support.proxy import Proxy
from tests.support.reading import COMMITTED, Tail, admin, read
from tests.support.topics import create

pytestmark = pytest.mark.release

PARTITIONS = 3
DEAD_LETTERS, RETRIES = "payments.orders.DLT", "payments.orders.retry"
_PAGE_DELAYS, _SOON = "delays: [1m, 5m, 30m]", "delays: [1s]"
# What a converter could change: text like a number, bytes that are no text, nothing at all, a name that is there twice.
HEADERS: Headers = (("exception-class", b"shop.GatewayTimeout"), ("tries", b"007"), ("raw", b"\xff\x00"), ("none", None),
                    ("tag", b"new"), ("tag", b"urgent"))  # fmt: skip
# Ten letters each twentieth of a second, and so many must have come back between one fault and the next.
_ROUND, _EACH_S, _MORE = 10, 0.05, 500
_SLOW_S, _AWAY_S, _BACK_S = 0.2, 5.0, 400.0


class Clusters:
    """Both of them, what copies there and back, and a consumer on A that sees what comes back."""

    def __init__(self, folder: Path, a: LocalBroker, b: LocalBroker, link: Proxy) -> None:
        self.a, self.b, self._link, jars = a, b, link, classpath("mirror", JARS)
        self.there = Mirror(jars, folder / "there", near=b, far=a, topic=DEAD_LETTERS)
        self.back = Mirror(jars, folder / "back", near=a, far=b, topic=RETRIES)
        self.service = Deployment(b.bootstrap_servers, folder / "work", {}, alone=True)
        policies = snippet("yaml")
        assert _PAGE_DELAYS in policies
        self.service.policy_file.write_text(policies.replace(_PAGE_DELAYS, _SOON))
        for broker in (a, b):
            client = admin(broker.bootstrap_servers)
            create(client, DEAD_LETTERS, PARTITIONS)
            create(client, RETRIES, PARTITIONS, APPEND_TIME)
        self.came = Tail(a.bootstrap_servers, [RETRIES])

    def await_seen(self, count: int) -> None:
        """Wait until so many retries are on A, and mend meanwhile."""

        def has_seen_all() -> bool:
            self.there.mend()
            self.back.mend()
            self.came.read(1.0)
            return len(self.came.seen) >= count

        await_that(f"{count} came back to A", has_seen_all, _BACK_S)

    def fail(self) -> None:
        """Whatever can be away is so, while letters are copied both ways; then the link is slow."""
        both_ways = [self.there, self.back]
        for gone in ([self.there], [self.back], both_ways, [self.a], [self.b], [self.a, self.b, *both_ways]):
            self.await_seen(len(self.came.seen) + _MORE)
            for each in gone:
                each.kill()
            let_pass(_AWAY_S)
            for each in gone:
                each.start()
        self.await_seen(len(self.came.seen) + _MORE)
        self._link.delay(_SLOW_S)
        self.await_seen(len(self.came.seen) + _MORE)
        self._link.restore()

    def close(self) -> None:
        self.came.close()
        self.there.kill()
        self.back.kill()
        self.service.close()


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    with Proxy(free_port()) as link:
        advertised = [f"advertised.listeners=PLAINTEXT://{HOST}:{link.port}"]
        with LocalBroker(tmp_path / "a", link.target_port, overrides=advertised) as a, LocalBroker(tmp_path / "b") as b:
            both = Clusters(tmp_path, a, b, link)
            try:
                yield both
            finally:
                both.close()


def test_each_letter_of_a_comes_back_once_whatever_is_away_between(clusters: Clusters) -> None:
    a, b, service = clusters.a.bootstrap_servers, clusters.b.bootstrap_servers, clusters.service
    undo(a, DEAD_LETTERS)
    undo(b, RETRIES)
    sender, over = Sender(a), threading.Event()
    sending = threading.Thread(target=_send_until, args=(over, sender), daemon=True)
    clusters.there.start().attach()
    clusters.back.start().attach()
    service.prepare().worker().start().await_ready()
    sending.start()
    clusters.fail()
    over.set()
    sending.join()
    letters = len(sender.finish())
    clusters.await_seen(letters)
    # What is on one cluster is on the other, in its order: nothing lost, twice or changed; letters keep their times.
    assert read_seen(a, DEAD_LETTERS, times=True) == read_seen(b, DEAD_LETTERS, times=True)
    assert read_seen(a, RETRIES) == read_seen(b, RETRIES)
    found = read(a, [RETRIES], COMMITTED)
    assert sorted(int(record.value or b"") for record in found) == list(range(letters))
    assert all([header for header in record.headers if not header[0].startswith("retry-")] == list(HEADERS) for record in found)
    assert verify_deployment(service)["findings"] == {}
    service.worker().terminate()


def _send_until(over: threading.Event, sender: Sender) -> None:
    n = 0
    while not over.wait(_EACH_S):
        for value in range(n, n + _ROUND):
            sender.send(DEAD_LETTERS, b"order-%d" % (value % 500), b"%d" % value, HEADERS)
        n += _ROUND


def read_seen(bootstrap_servers: str, topic: str, *, times: bool = False) -> Sequence[object]:
    """Read what consumers see in a topic, by partition and in order; no offsets, since ends of transactions take some, too."""
    found = read(bootstrap_servers, [topic], COMMITTED)
    ordered = sorted(found, key=lambda record: (record.partition, record.offset))
    return [(r.partition, r.key, r.value, r.headers, times and r.timestamp_ms) for r in ordered]
