"""The files of a client certificate, which are replaced one after the other while processes have them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from tests.support.process import WorkerProcess
from tests.support.secured import Right, SecuredBroker, as_environ


class ClientFiles:
    """A certificate and its key. They are of different holders in turn, so that brokers tell them apart.

    Attributes:
      environ: the settings of a process that shows it.
    """

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        self._broker, self._certificate, self._key = broker, folder / "client.pem", folder / "client.key"
        self.environ = {
            "RETRY_BOOTSTRAP_SERVERS": broker.mutual_servers,
            **as_environ({
                "security.protocol": "SSL", "ssl.ca.location": str(broker.authority),
                "ssl.certificate.location": str(self._certificate), "ssl.key.location": str(self._key),
            }),
        }  # fmt: skip

    def replace(self, holder: str, ends: timedelta | None = None) -> Iterator[None]:
        """First the certificate, and when asked again its key.

        Args:
          ends: how long it is valid.
        """
        yield from self.put(*self._broker.certificate(holder, ends=ends))

    def put(self, certificate: Path, key: Path) -> Iterator[None]:
        """Put a certificate and a key in place, of whatever authority."""
        for made, mine in ((certificate, self._certificate), (key, self._key)):
            mine.with_suffix(".new").write_bytes(made.read_bytes())
            mine.with_suffix(".new").chmod(0o600)
            mine.with_suffix(".new").rename(mine)
            yield


def rights(holder: str) -> list[Right]:
    """To all that a deployment of the tests has."""
    me = f"User:{holder}"
    own = [Right(me, kind, "t", "all", prefixed=True) for kind in ("topic", "group", "transactional-id")]
    return [*own, Right(me, "cluster", "kafka-cluster", "idempotent-write"), Right(me, "topic", "__consumer_offsets", "describe")]


def ends_s(process: WorkerProcess) -> list[float]:
    """When the certificate of each process ends that answers at this address, in seconds since 1970."""
    lines = process.get("/metrics")[1].splitlines()
    return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("retry_client_certificate_ends_timestamp_seconds")]


def all_show(process: WorkerProcess, processes: int, after_s: float) -> bool:
    """Whether so many have begun anew with one that ends later, and are ready."""
    assert process.running(), f"{process.name} ended with {process.exit_code()}:\n{process.tail()}"
    found = ends_s(process)
    return len(found) == processes and min(found) > after_s and process.ready()
