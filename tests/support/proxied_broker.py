"""A real broker that some clients reach through a proxy, and others beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from retry.kafka.local_broker import HOST, LocalBroker
from tests.support.cluster import PROXIED
from tests.support.ports import free_port
from tests.support.proxy import Proxy


class Way(NamedTuple):
    """A broker and the proxy to a listener that advertises it: whoever begins there stays behind it."""

    broker: LocalBroker
    proxy: Proxy

    @property
    def proxied_servers(self) -> str:
        """The way through the proxy."""
        return f"{HOST}:{self.proxy.port}"


@contextmanager
def proxied_broker(folder: Path) -> Iterator[Way]:
    """Run both for the time of a `with` block."""
    port, behind, controller = free_port(), free_port(), free_port()
    with Proxy(behind) as proxy:
        overrides = [
            f"controller.quorum.voters=1@{HOST}:{controller}",
            f"listeners=PLAINTEXT://{HOST}:{port},PROXIED://{HOST}:{behind},CONTROLLER://{HOST}:{controller}",
            f"advertised.listeners=PLAINTEXT://{HOST}:{port},PROXIED://{HOST}:{proxy.port}",
            PROXIED,
        ]
        with LocalBroker(folder, port, overrides=overrides) as broker:
            yield Way(broker, proxy)
