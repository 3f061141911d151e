"""What a host may send in answer to one call beside the body: bounded, whatever it consists of.

aiohttp bounds a line, a header and how many of them there are. It does not bound what they come to together, answers that only
announce another (1xx), or what surrounds the chunks of a body. A connection is for one call, so its bytes can be counted.
"""

from __future__ import annotations

import asyncio
from functools import partial
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
    """Makes connections whose answers are bounded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_Bounded, loop=asyncio.get_running_loop())  # type: ignore[assignment]


class _Bounded(ResponseHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._came_bytes = 0

    def data_received(self, data: bytes) -> None:
        # No data at all means that the payload asks for what was left over.
        for at in range(0, max(1, len(data)), _PART_BYTES):
            part = data[at : at + _PART_BYTES]
            self._came_bytes += len(part)
            super().data_received(part)
            body_bytes = 0 if self._payload is None else self._payload.total_bytes
            if self._came_bytes - body_bytes > BESIDE_BODY_BYTES_MAX or len(self._buffer) > _UNREAD_MAX:
                self._refuse()
            if self.transport is None:
                return

    def _refuse(self) -> None:
        error, payload = AnswerTooLarge("the host sends more than an answer may have"), self._payload
        self.abort()
        self.set_exception(error)
        if payload is not None:
            set_exception(payload, error)
