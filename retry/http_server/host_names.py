"""Which hosts are answered for: addresses, localhost, where the server listens, and the names of `RETRY_HTTP_HOSTS`.

Without that a page of another site could read what is here, under a name of its own that it has made point to this address (DNS
rebinding). Nobody can do so with an IP address, so probes and Prometheus, which ask by address, need no setting.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Iterable
from functools import lru_cache

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)

_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:@/]+))(?::[0-9]*)?")

_refused = PlainTextResponse("this server has another name: ask by IP address, or list this name in RETRY_HTTP_HOSTS\n", 400)


class OwnHosts:
    """An application that answers 400 for hosts that are not ours: not `bound`, nor among `hosts`, see `HttpServer`."""

    def __init__(self, app: ASGIApp, bound: str, hosts: str) -> None:
        names = {name.strip().lower() for name in hosts.split(",")} - {""}
        self._app, self._any = app, "*" in names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = names | {"localhost", bound.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app if self.is_ours(_host(scope["headers"])) else _refused
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            # It left while it sent its request: nobody is there to be answered.
            log.debug("a client left before its request was complete")

    def is_ours(self, host: str) -> bool:
        """Whether a `Host` header says an address or one of our names. Browsers always send one."""
        if self._any or not host:
            return True
        parts = _HOST.fullmatch(host.lower())
        name = (parts[1] or parts[2].rstrip(".")) if parts else ""
        return name in self._names or name.endswith(self._suffixes) or _is_address(name)


def is_loopback(host: str) -> bool:
    """Whether nobody else can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host(headers: Iterable[tuple[bytes, bytes]]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == b"host"), "")


@lru_cache(1_000)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
