"""Limits what one team may ask of one API process: requests in a second, and timers that wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool

from backoff.rate_limit import Bucket, Limit
from retry import clock
from retry.scheduling.timers.problem_json import Problem

_RECOUNT_MS, _RECOUNT_FULL_MS = 60_000, 5_000
_SECOND_MS = 1_000


class Quotas:
    """Counts by team; for one event loop.

    Args:
      requests_per_s: of one team; 0 is no limit.
      timers_max: that wait, of one team; 0 is no limit.
      count: how many timers of a team wait, counted up to a number; called in a thread.
    """

    def __init__(self, requests_per_s: int, timers_max: int, count: Callable[[str, int], int]) -> None:
        self._limit = Limit(requests_per_s, _SECOND_MS)
        self._timers_max, self._count = timers_max, count
        self._buckets: dict[str, Bucket] = {}
        self._waiting: dict[str, _Waiting] = {}

    def request(self, team: str) -> None:
        """Count a request of a team.

        Raises:
          Problem: it has made too many requests in this second.
        """
        bucket = self._buckets.get(team) or self._buckets.setdefault(team, Bucket(self._limit))
        if self._limit.tokens and not bucket.take_tokens(1, clock.wall_ms()):
            raise _make_problem(f"a team may ask {self._limit.tokens:,} times in a second; ask again then", _SECOND_MS)

    async def timer(self, team: str) -> None:
        """Count a timer that a team makes.

        Raises:
          Problem: as many of its timers wait as are allowed.
        """
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
