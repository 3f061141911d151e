"""What one call came to, and what follows from it: the one place that says what an answer means.

| answer | verdict |
| --- | --- |
| 2xx, read to its end | delivered |
| 410 | gone: never called again |
| 429, 502, 503, 504, or no answer at all | failed, and the host has a failure: several in a row open its breaker |
| any other, 3xx among them | failed: this call, not the host |

`Retry-After` says when the next attempt may be made, whichever failure it came with; for a host that throttles it holds back
all calls to that host.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple

RETRY_AFTER_MS_MAX = 24 * 3_600_000
_THROTTLES = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip


class Verdict(Enum):
    """The consequence of one call for its entry."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


class Answer(NamedTuple):
    """The result of one call, answered or not.

    Attributes:
      status: of the answer; None where none came.
      error: why it counts as failed: a status, or in a word what went wrong before there was one; None where it does not.
      body: the beginning of the answer's body.
      took_ms: from the lookup of the host to the end of the answer.
      retry_after_ms: how long the host asks to wait.
    """

    status: int | None
    error: str | None
    body: bytes = b""
    took_ms: int = 0
    retry_after_ms: int | None = None

    @property
    def verdict(self) -> Verdict:
        """See the table above."""
        if self.status == HTTPStatus.GONE:
            return Verdict.GONE
        return Verdict.DELIVERED if self.error is None else Verdict.FAILED

    @property
    def blames_host(self) -> bool:
        """Whether the next call to the same host would hardly fare better."""
        return self.error is not None and (self.status is None or self.status in _THROTTLES) and self.error != "not_allowed"


def retry_after_ms(text: str | None, now_ms: int) -> int | None:
    """How long a `Retry-After` header asks to wait: seconds, or a date; at most a day. None where it says nothing.

    >>> retry_after_ms("120", 0), retry_after_ms("Thu, 01 Jan 1970 00:00:30 GMT", 10_000), retry_after_ms("soon", 0)
    (120000, 20000, None)
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1_000, RETRY_AFTER_MS_MAX)
    try:
        moment = parsedate_to_datetime(text)
        at_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError, TypeError):
        return None
    return max(0, min(at_ms - now_ms, RETRY_AFTER_MS_MAX))
