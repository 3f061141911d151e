"""A circuit breaker for each host. It trips after failures in a row; a probe has gone well once it is answered.

What waits meanwhile uses up none of its attempts.
"""

from __future__ import annotations

from dataclasses import dataclass

from retry.delivery import circuit_breaker
from retry.delivery.circuit_breaker import OPEN_MS_MAX, CircuitBreaker

FAILURES = 5
OPEN_MS = 5_000
# Nobody has called it for so long that nothing is known of it.
_FORGET_MS = 3_600_000
_HOSTS_MAX = 100_000


@dataclass(slots=True)
class _HostBreaker(CircuitBreaker):
    """The breaker of a host that has failed since it last answered; closed until `failures` in a row are enough."""

    failures: int = 0
    failed_at_ms: int = 0


class HostCircuitBreakers:
    """The breakers of all hosts; for one thread."""

    def __init__(self) -> None:
        self._failing: dict[str, _HostBreaker] = {}

    def why_not(self, host: str, now_ms: int) -> str | None:
        """Why nothing may be sent to a host now; None where it may."""
        breaker = self._failing.get(host)
        if breaker is None or not breaker.until_ms:
            return None
        if breaker.is_open(now_ms):
            return f"its breaker is open for {(breaker.until_ms - now_ms + 999) // 1_000} s more"
        return "its breaker is half open and a probe is under way" if breaker.probing else None

    def half_open(self, host: str) -> bool:
        """Whether it gets one call at a time."""
        breaker = self._failing.get(host)
        return breaker is not None and breaker.until_ms > 0

    def began(self, host: str) -> None:
        """A call is in flight."""
        if (breaker := self._failing.get(host)) is not None and breaker.until_ms:
            breaker.probing = True

    def unbegun(self, host: str) -> None:
        """The call that was to be in flight could not begin."""
        if (breaker := self._failing.get(host)) is not None:
            breaker.probing = False

    def note_answer(self, host: str) -> None:
        """Forget the failures of a host that has answered, which closes its breaker."""
        self._failing.pop(host, None)

    def note_failure(self, host: str, now_ms: int, wait_ms: int | None = None) -> None:
        """A call failed for what is the host's fault.

        Args:
          wait_ms: how long the host itself asks to be left alone.
        """
        if host not in self._failing:
            self._make_room(now_ms)
        breaker = self._failing.setdefault(host, _HostBreaker())
        breaker.failed_at_ms = now_ms
        breaker.failures += 1
        # What was in flight when it opened failed for the same cause, and does not make it last longer.
        if not breaker.is_open(now_ms):
            if breaker.probing or breaker.failures >= FAILURES:
                breaker.trip(OPEN_MS, now_ms)
            breaker.probing = False
        if wait_ms:
            breaker.until_ms = max(breaker.until_ms, now_ms + min(wait_ms, OPEN_MS_MAX))

    def describe_hosts(self, now_ms: int) -> dict[str, str]:
        """Hosts whose breaker is not closed: `open` or `half-open`."""
        return circuit_breaker.describe_breakers(self._failing, now_ms)

    def _make_room(self, now_ms: int) -> None:
        if len(self._failing) >= _HOSTS_MAX:
            self._failing = {h: b for h, b in self._failing.items() if now_ms - max(b.failed_at_ms, b.until_ms) < _FORGET_MS}
            while len(self._failing) >= _HOSTS_MAX:
                del self._failing[next(iter(self._failing))]
