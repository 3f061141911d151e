"""The body decoder of the Go scheduler's admin page: a URL that is given a schedule and answers with its value in readable form.

It is asked by `POST` with the schedule as JSON, its `value` in base64, and what it answers with status 200 takes the value's
place. Without an answer within a second the value is shown as it is.
"""

from __future__ import annotations

import logging
from base64 import b64encode

import aiohttp
import orjson

from retry.scheduling.messages.schedule_json import Shown

log = logging.getLogger(__name__)

_ANSWER_S = 1.0
_BYTES_MAX = 4 << 20


async def decoded(url: str, shown: Shown) -> Shown:
    """The schedule, its value as the decoder has it."""
    if not shown["value"]:
        return shown
    try:
        body = await _asked(url, orjson.dumps(shown))
    except (TimeoutError, aiohttp.ClientError) as error:
        log.warning("decoder %s: %s: %s", url, shown["id"], error or "no answer within a second")
        return shown
    return Shown(**{**shown, "value": b64encode(body).decode()}) if body else shown  # type: ignore[typeddict-item]


async def _asked(url: str, body: bytes) -> bytes:
    timeout, headers = aiohttp.ClientTimeout(_ANSWER_S), {"Content-Type": "application/json; charset=UTF-8"}
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, data=body, headers=headers) as answer:
        answer.raise_for_status()
        found = bytearray()
        async for part in answer.content.iter_any():
            found += part
            if len(found) > _BYTES_MAX:
                raise aiohttp.ClientPayloadError(f"more than {_BYTES_MAX} bytes")
        return bytes(found) if answer.status == 200 else b""
