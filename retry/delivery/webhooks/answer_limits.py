"""What a host may send in answer to one call beside the body: bounded, whatever it consists of.

aiohttp bounds a line, a header and how many of them there are. It does not bound what they come to together, answers that only
announce another (1xx), or what surrounds the chunks of a body. A connection has one call at a time, so its bytes can be counted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import ClientError, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import set_exception

# The heads of all answers, sizes and extensions of chunks, and trailers.
BESIDE_BODY_BYTES_MAX = 64 << 10
# What comes at once is parsed in parts, so that no more than one of them is beyond the bound.
_PART_BYTES = 16 << 10
# Answers that nobody has read yet, those that announce another among them; parsed they take far more memory than they have bytes.
_UNREAD_MAX = 16


class AnswerTooLarge(ClientError):
    """A host sends more than an answer may have."""


class Connector(TCPConnector):
    """Makes connections whose answers are bounded; one at a time.

    Attributes:
      protocol: of the connection that was made last.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.protocol: BoundedAnswers | None = None
        self._factory = self._make_protocol  # type: ignore[assignment]

    def _make_protocol(self) -> BoundedAnswers:
        self.protocol = BoundedAnswers(asyncio.get_running_loop())
        return self.protocol


class BoundedAnswers(ResponseHandler):
    """The protocol of one connection, which bounds what its host may send in answer to a call.

    Attributes:
      came_bytes: bytes that have come since the last request.
      resting: whether nobody has asked for anything.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.came_bytes, self.resting = 0, False
        self._opened: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened = transport

    def abort_connection(self) -> None:
        """Close it with whatever is still to be sent, even where that was to be closed once it is."""
        if isinstance(self._opened, asyncio.WriteTransport):
            self._opened.abort()
        self.abort()

    def address(self) -> str | None:
        """The IP address of the other side, while it is connected."""
        return None if self.transport is None else str(self.transport.get_extra_info("peername")[0]).partition("%")[0]

    def set_response_params(self, **parameters: Any) -> None:
        # A request is about to be sent: what is counted is the answer to that.
        self.came_bytes, self._payload = 0, None
        super().set_response_params(**parameters)

    def data_received(self, data: bytes) -> None:
        if self.resting and data:
            # An answer to nobody must not be taken for that to the next call.
            self.abort()
            return
        # No data at all means that the payload asks for what was left over.
        for at in range(0, max(1, len(data)), _PART_BYTES):
            part = data[at : at + _PART_BYTES]
            self.came_bytes += len(part)
            super().data_received(part)
            body_bytes = 0 if self._payload is None else self._payload.total_bytes
            if self.came_bytes - body_bytes > BESIDE_BODY_BYTES_MAX or len(self._buffer) > _UNREAD_MAX:
                self._reject_answer()
            if self.transport is None:
                return

    def _reject_answer(self) -> None:
        error, payload = AnswerTooLarge("the host sends more than an answer may have"), self._payload
        self.abort()
        self.set_exception(error)
        if payload is not None:
            set_exception(payload, error)
