"""Who asked the API for what: a line of the log for each call, with one JSON object.

| field | meaning |
| --- | --- |
| `at` | when it was answered |
| `team`, `token` | who asked, and the first characters of the SHA-256 of the token; empty where it is not known |
| `from` | the address that it came from; behind a proxy, the proxy's |
| `method`, `path` | what was asked for, without its query |
| `timer` | id of the timer that a POST made or found |
| `status` | how it was answered |
| `left_out` | refusals since the line before that were too many to be logged |

The log, and not the audit topic: that holds what workers did to letters, written with the effect and kept for a year. Here calls
are refused, too, so that whoever has no token could fill a topic; and no call should wait for one more record, or fail for it.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

import orjson
from starlette.requests import Request
from starlette.responses import Response

from backoff.rate_limit import Bucket, Limit
from retry import clock
from retry.scheduling.timers.callers import Token

log = logging.getLogger(__name__)

CHANGES, ALL = 1, 2
_PATH_CHARACTERS_MAX = 100
# What somebody may be answered as often as he asks.
_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS})
_REFUSALS = Limit(10, 1_000)


class CallAudit:
    """Writes calls of the API to the log: none where `told` is 0, `CHANGES` those that change timers or are refused, or `ALL`."""

    def __init__(self, told: int) -> None:
        self._told, self._refusals, self._left_out = told, Bucket(_REFUSALS), 0

    def log_call(self, request: Request, who: Token | None, response: Response | None) -> None:
        """Log one call; without a response, where the answer was a fault of the service."""
        status = HTTPStatus.INTERNAL_SERVER_ERROR if response is None else response.status_code
        if self._told < (CHANGES if request.method != "GET" or status in _REFUSED else ALL):
            return
        if status in _REFUSED and not self._refusals.take_tokens(1, clock.wall_ms()):
            self._left_out += 1
            return
        line: dict[str, object] = {
            "at": clock.iso(clock.wall_ms()), "team": who.name if who else "", "token": who.id if who else "",
            "from": request.client.host if request.client else "", "method": request.method,
            "path": request.url.path[:_PATH_CHARACTERS_MAX], "status": int(status),
        }  # fmt: skip
        if response is not None and (location := response.headers.get("location")):
            line["timer"] = location.rpartition("/")[2]
        if self._left_out:
            line["left_out"], self._left_out = self._left_out, 0
        log.info("%s", orjson.dumps(line).decode(), extra={"call": line})
