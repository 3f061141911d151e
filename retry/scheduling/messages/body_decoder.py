"""The body decoder of the Go scheduler's admin page: a URL that is given a schedule and answers with its value in readable form.

The scheduler sends it the schedule as JSON by `POST`, its `value` in base64; the body of an answer with status 200 replaces the
value. Without an answer within a second the value is shown as it is.
"""

from __future__ import annotations

import logging
from base64 import b64encode

import aiohttp
import orjson

from retry.scheduling.messages.schedule_json import ScheduleJson

log = logging.getLogger(__name__)

_ANSWER_S = 1.0
_BYTES_MAX = 4 << 20


async def decode(url: str, shown: ScheduleJson) -> ScheduleJson:
    """Show a schedule with its value as the decoder answers it."""
    if not shown["value"]:
        return shown
    try:
        body = await _post(url, orjson.dumps(shown))
    except (TimeoutError, aiohttp.ClientError) as error:
        log.warning("decoder %s: %s: %s", url, shown["id"], error or "no answer within a second")
        return shown
    return ScheduleJson(**{**shown, "value": b64encode(body).decode()}) if body else shown  # type: ignore[typeddict-item]


async def _post(url: str, body: bytes) -> bytes:
    timeout, headers = aiohttp.ClientTimeout(_ANSWER_S), {"Content-Type": "application/json; charset=UTF-8"}
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, data=body, headers=headers) as answer:
        answer.raise_for_status()
        decoded_value = bytearray()
        async for part in answer.content.iter_any():
            decoded_value += part
            if len(decoded_value) > _BYTES_MAX:
                raise aiohttp.ClientPayloadError(f"more than {_BYTES_MAX} bytes")
        return bytes(decoded_value) if answer.status == 200 else b""
