"""TLS connections, which wait for the other side before they are connections of HTTP.

asyncio would let each take a minute for its handshake and half a minute for its end, and count neither: whoever connects and says
nothing would keep others out. Here a connection counts from its first packet on, and is held to the same times as all others.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from functools import partial
from typing import TYPE_CHECKING, Any

from retry.http_server.connections import Connection

if TYPE_CHECKING:
    from retry.http_server.certificate import Certificate

# For the other side's word that it has heard the end.
_END_S = 1.0


class Handshake(SSLProtocol):
    """TLS below one connection."""

    # As large as what is read in one go; four times that, asyncio's own measure, is much for a thousand of them.
    max_size = 64 << 10

    def __init__(self, certificate: Certificate, **given: Any) -> None:
        self._connection = connection = Connection(**given)
        super().__init__(
            connection.loop, connection, certificate.current(), None,  # type: ignore[arg-type] # nobody waits for it
            server_side=True, ssl_shutdown_timeout=_END_S,
        )  # fmt: skip

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and begin."""
        self._connection.note_accepted(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no longer: where the handshake did not succeed nobody else does so."""
        self._connection.connections.discard(self._connection)
        super().connection_lost(exc)


def handshakes(certificate: Certificate) -> Any:
    """Makes connections with TLS, as uvicorn makes those without."""
    return partial(Handshake, certificate)
