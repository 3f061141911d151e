"""So many in so long: the limit as it is written, and the bucket that holds to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backoff.duration import duration_ms, duration_text
from backoff.errors import PolicyInvalid, quote_value

_WRITTEN = re.compile("([0-9]{1,10})/([0-9a-z]{1,20})")
_TOKENS_MAX = 1_000_000
_PERIOD_MS_MIN = 1_000
_PERIOD_MS_MAX = 31 * 86_400_000
# Set back by less, a clock is waited for; by more, it is believed.
_SETBACK_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Limit:
    tokens: int
    period_ms: int

    def format_limit(self) -> str:
        """Write the limit as text, which `parse_rate` reads back.

        >>> Limit(500, 1_000).format_limit(), Limit(50_000, 7 * 86_400_000).format_limit()
        ('500/s', '50000/7d')
        """
        period = duration_text(self.period_ms)
        return f"{self.tokens}/{period[1:] if period in ('1s', '1m', '1h', '1d') else period}"


def parse_rate(value: object, path: str = "") -> Limit:
    """Parse a rate limit from a text: 1 to 1,000,000, a slash, and a unit of time or a duration from 1s to 31d.

    >>> [parse_rate(text) for text in ("500/s", "2000/1h")]
    [Limit(tokens=500, period_ms=1000), Limit(tokens=2000, period_ms=3600000)]

    Raises PolicyInvalid where it is not such a text; `path` says where it stands.
    """
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise PolicyInvalid(path, f"{quote_value(value)} is not a rate; write it like 500/s, 100/m or 50000/1d")
    tokens, period = int(found[1]), found[2]
    if not 1 <= tokens <= _TOKENS_MAX:
        raise PolicyInvalid(path, f"{value} is not from 1 to {_TOKENS_MAX:,} in a period")
    period_ms = duration_ms(period if period[0].isdigit() else f"1{period}", path)
    if not _PERIOD_MS_MIN <= period_ms <= _PERIOD_MS_MAX:
        raise PolicyInvalid(path, f"{value} has a period that is not from 1s to 31d")
    return Limit(tokens, period_ms)


class Bucket:
    """Holds a share of a limit. It begins full, with the tokens of one period, and fills evenly as time goes by.

    So all tokens of a period may go at once, and in the period after a rest nearly twice as many; in the long run the
    limit holds. A share of less than one token still holds one, which takes as long to come back as the limit says.

    A clock that is set back by up to a minute brings nothing until it is there again; set back by more, it is believed,
    and the time that it repeats fills the bucket again, once. Nothing is taken away in either case.

    >>> bucket = Bucket(Limit(tokens=10, period_ms=1_000))
    >>> bucket.take_tokens(8, now_ms=0), bucket.take_tokens(8, now_ms=0), bucket.take_tokens(8, now_ms=500)
    (8, 2, 5)
    """

    # What is held is counted in tokens times period: whole numbers, so that no token is lost to rounding.

    def __init__(self, limit: Limit, share: float = 1.0) -> None:
        self._limit = limit
        self._held = float(limit.tokens * limit.period_ms)
        self._at_ms: int | None = None
        self.share = share

    @property
    def share(self) -> float:
        """The part of the limit that is ours, above 0 and up to 1. What is held beyond a smaller share is dropped."""
        return self._share

    @share.setter
    def share(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a share is above 0 and up to 1, not {share}")
        self._share = share
        self._set_level(self._held)

    def take_tokens(self, wanted: int, now_ms: int) -> int:
        """Take up to `wanted` tokens out of the bucket now, and return how many, from 0 to `wanted`."""
        self._fill(now_ms)
        taken = max(0, min(wanted, int(self._held / self._limit.period_ms)))
        self._held -= taken * self._limit.period_ms
        return taken

    def give_back(self, unused: int) -> None:
        """Put back what was taken and not used; what does not fit is dropped."""
        self._set_level(self._held + unused * self._limit.period_ms)

    def _fill(self, now_ms: int) -> None:
        since_ms = now_ms if self._at_ms is None else self._at_ms
        if since_ms - _SETBACK_MS_MAX <= now_ms <= since_ms:
            self._at_ms = since_ms
            return
        self._at_ms = now_ms
        self._set_level(self._held + max(0, now_ms - since_ms) * self._limit.tokens * self._share)

    def _set_level(self, held: float) -> None:
        self._held = min(held, max(1.0, self._limit.tokens * self._share) * self._limit.period_ms)
