"""Client certificates are replaced under load and kill -9: who runs goes on, who starts shows the new one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.faults import Runs
from tests.support.load import Load
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail
from tests.support.secured import Right, SecuredBroker, as_environ

LETTERS_PER_S, DELAY_MS, MORE_S = 100, 2_000, 180.0
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
OLD, NEW = "holder-of-the-old-certificate", "holder-of-the-new-certificate"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


class Files:
    """A certificate and its key, which are replaced one after the other. Of two holders, so that brokers tell them apart."""

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        self._broker, self._certificate, self._key = broker, folder / "client.pem", folder / "client.key"
        self.environ = {
            "RETRY_BOOTSTRAP_SERVERS": broker.mutual_servers,
            **as_environ({
                "security.protocol": "SSL", "ssl.ca.location": str(broker.authority),
                "ssl.certificate.location": str(self._certificate), "ssl.key.location": str(self._key),
            }),
        }  # fmt: skip

    def replace(self, holder: str) -> Iterator[None]:
        """First the certificate, and when asked again its key."""
        for made, mine in zip(self._broker.certificate(holder), (self._certificate, self._key), strict=True):
            mine.with_suffix(".new").write_bytes(made.read_bytes())
            mine.with_suffix(".new").chmod(0o600)
            mine.with_suffix(".new").rename(mine)
            yield


def rights(holder: str) -> list[Right]:
    """To all that a deployment of the tests has."""
    me = f"User:{holder}"
    own = [Right(me, kind, "t", "all", prefixed=True) for kind in ("topic", "group", "transactional-id")]
    return [*own, Right(me, "cluster", "kafka-cluster", "idempotent-write"), Right(me, "topic", "__consumer_offsets", "describe")]


@pytest.mark.fault("client certificate replaced under load, with SIGKILL between its two files")
def test_a_client_certificate_is_replaced_while_workers_run_and_one_is_killed(
    deploy: Deploy, secured: SecuredBroker, tmp_path: Path, runs: Runs
) -> None:
    files = Files(secured, tmp_path)
    for holder in (OLD, NEW):
        secured.grant(rights(holder))
    list(files.replace(OLD))
    deployment = deploy({"one": 1, "three": 3}, shards=4, defaults=POLICY, on=secured.inner, environ=files.environ)
    a, b = (deployment.worker(name).start() for name in ("a", "b"))
    for worker in (a, b):
        worker.await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(LETTERS_PER_S, MORE_S)
        replacing = files.replace(NEW)
        next(replacing)
        a.kill()
        runs.add()
        a.start()
        await_that("a certificate without its key is refused", lambda: not a.running())
        assert a.exit_code() == 1
        assert "RETRY_KAFKA_SSL_" in a.log() and "Traceback" not in a.log(), a.tail()
        # Which takes clients that are made just now.
        await_that("the other one takes over", lambda: b.metric("retry_shards_ready") == deployment.shards)
        assert "the certificate that was read before stays in use" in b.log()
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
        list(replacing)
        a.start().await_ready()
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
        restart(b, runs)
        secured.withdraw(rights(OLD))
        # Nobody is known by the old one any more.
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
        restart(a, runs)
    tail.close()
    nothing_is_wrong(deployment, load.sender, MORE_S)
    for worker in (a, b):
        assert "uthorization" not in worker.log(), worker.tail()


def restart(worker: WorkerProcess, runs: Runs) -> None:
    """By SIGKILL, from what it has run with until now."""
    assert worker.running(), worker.tail()
    worker.kill()
    runs.add()
    worker.start().await_ready()
