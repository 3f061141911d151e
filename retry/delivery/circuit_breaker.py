"""A circuit breaker: after failures nothing is sent for a while, then one probe, and if that goes well everything.

    closed ──trip──► open ──time──► half open ──the probe goes well──► closed
                      ▲                 │
                      └──trip: open, twice as long; the doubling ends at ten minutes

What trips it, and when a probe has gone well, is said by those who keep some: `target_circuit_breakers` for topics,
`webhooks.host_circuit_breaker` for hosts. They close one by forgetting it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OPEN_MS_MAX = 600_000
OPEN, HALF_OPEN = "open", "half-open"


@dataclass(slots=True)
class CircuitBreaker:
    """The state of one circuit breaker: closed, open or half open.

    Attributes:
      until_ms: nothing goes before; 0 while it is closed.
      open_ms: how long it was opened for last.
      probing: whether a probe went of which nothing is known yet.
    """

    until_ms: int = 0
    open_ms: int = 0
    probing: bool = False

    def is_open(self, now_ms: int) -> bool:
        """Whether nothing may go, not even a probe."""
        return now_ms < self.until_ms

    def trip(self, open_ms: int, now_ms: int) -> None:
        """Open it; for twice as long as before, where it has not been closed since."""
        self.open_ms = max(open_ms, min(self.open_ms * 2, OPEN_MS_MAX))
        self.until_ms, self.probing = now_ms + self.open_ms, False


def describe_breakers(breakers: Mapping[str, CircuitBreaker], now_ms: int) -> dict[str, str]:
    """Return the state of each circuit breaker that is not closed, by name: `open` or `half-open`."""
    return {name: OPEN if b.is_open(now_ms) else HALF_OPEN for name, b in breakers.items() if b.until_ms}
