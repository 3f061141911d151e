"""Who asks the API of timers: tokens, whose names are those of teams, limits for each team, and refusals that say what to do.

A line of the log tells of each call, as one JSON object:

| field | meaning |
| --- | --- |
| `at` | when it was answered |
| `team`, `token` | who asked, and the first characters of the SHA-256 of the token; empty where it is not known |
| `from` | the address that it came from; behind a proxy, the proxy's |
| `method`, `path` | what was asked for, without its query |
| `timer` | id of the timer that a POST made or found |
| `status` | how it was answered |
| `left_out` | refusals since the line before that were too many to be logged |

It is the log, and not the audit topic, since that holds what workers did to letters, written with the effect and kept for a
year. Here calls are refused, too, so that whoever has no token could fill a topic; and no call should wait for one more record,
or fail for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import msgspec
import orjson
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from backoff.rate_limit import Bucket, Limit
from retry import clock
from retry.http_server import token_file
from retry.http_server.token_file import FileKind, TokenFile
from retry.http_server.token_file import make_token as make_token

# Refusals, as `application/problem+json` (RFC 9457); each says what to do.

class ProblemJson(msgspec.Struct, frozen=True):
    """A refused request, and what to do about it."""

    type: Annotated[str, Meta(description="about:blank: the status says what kind it is of")]
    title: Annotated[str, Meta(description="the status in words")]
    status: Annotated[int, Meta(description="the status")]
    detail: Annotated[str, Meta(description="what to do")]


class Problem(Exception):
    """A refused request; `detail` tells the client what to do."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}

    def body(self) -> ProblemJson:
        return ProblemJson("about:blank", self.status.phrase, self.status.value, self.detail)


def refuse_content(detail: str) -> Problem:
    """Make the refusal of a request whose content cannot be used: status 422."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


# Who may use the API of timers: a file of tokens, whose names are those of teams; see `retry.http_server.token_file`.

TEAM = re.compile(r"[A-Za-z0-9._-]{1,100}")
Token = token_file.Token[None]


def _allow_everything(words: list[str]) -> None:
    """Grant a team all that there is to do to its timers; raises ValueError where there is more in the line."""
    if words:
        raise ValueError(words)


_KIND = FileKind("RETRY_API_TOKENS", "retry api token", TEAM, _allow_everything)


class Tokens(TokenFile[None]):
    def __init__(self, path: Path) -> None:
        super().__init__(_KIND, path)


# Limits what one team may ask of one API process: requests in a second, and timers that wait.

_RECOUNT_MS, _RECOUNT_FULL_MS = 60_000, 5_000
_SECOND_MS = 1_000


class Quotas:
    """Counts by team, for one event loop; a limit of 0 is none. `count` tells how many timers of a team wait, in a thread."""

    def __init__(self, requests_per_s: int, timers_max: int, count: Callable[[str, int], int]) -> None:
        self._limit = Limit(requests_per_s, _SECOND_MS)
        self._timers_max, self._count = timers_max, count
        self._buckets: dict[str, Bucket] = {}
        self._waiting: dict[str, _Waiting] = {}

    def request(self, team: str) -> None:
        """Count a request of a team; raises Problem where it has made too many in this second."""
        bucket = self._buckets.get(team) or self._buckets.setdefault(team, Bucket(self._limit))
        if self._limit.tokens and not bucket.take_tokens(1, clock.wall_ms()):
            raise _make_problem(f"a team may ask {self._limit.tokens:,} times in a second; ask again then", _SECOND_MS)

    async def timer(self, team: str) -> None:
        """Count a timer that a team makes; raises Problem where as many of its timers wait as are allowed."""
        if not self._timers_max:
            return
        waiting = self._waiting.setdefault(team, _Waiting())
        now_ms = clock.wall_ms()
        is_full = waiting.timers >= self._timers_max
        if abs(now_ms - waiting.counted_at_ms) >= (_RECOUNT_FULL_MS if is_full else _RECOUNT_MS):
            waiting.counted_at_ms = now_ms
            waiting.timers = await run_in_threadpool(self._count, team, self._timers_max)
        if waiting.timers >= self._timers_max:
            detail = f"{self._timers_max:,} timers of this team wait, and no more may; end some, or ask when some were called"
            raise _make_problem(detail, _RECOUNT_FULL_MS)
        waiting.timers += 1


@dataclass(slots=True)
class _Waiting:
    """Timers of a team, as counted last, and those that were made here since."""

    timers: int = 0
    counted_at_ms: int = -_RECOUNT_MS


def _make_problem(detail: str, wait_ms: int) -> Problem:
    return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": str(wait_ms // 1_000)})


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
