"""A breaker for each host: after failures in a row nothing is sent for a while, then one probe, and if that goes well everything.

    closed ──failures──► open ──time──► half open ──the probe is answered──► closed
                          ▲                 │
                          └──it fails: open, twice as long

What waits meanwhile uses up none of its attempts.
"""

from __future__ import annotations

from dataclasses import dataclass

FAILURES = 5
OPEN_MS, OPEN_MS_MAX = 5_000, 600_000
# Nobody has called it for so long that nothing is known of it.
_FORGET_MS = 3_600_000
_HOSTS_MAX = 100_000


@dataclass(slots=True)
class _Host:
    """One that has failed since it last answered.

    Attributes:
      failures: in a row.
      until_ms: nothing goes before; 0 where its breaker is closed.
      for_ms: how long it was opened for.
      probing: whether a call is under way that decides.
    """

    seen_at_ms: int
    failures: int = 0
    until_ms: int = 0
    for_ms: int = 0
    probing: bool = False


class Hosts:
    """The breakers of all hosts; for one thread."""

    def __init__(self) -> None:
        self._failing: dict[str, _Host] = {}

    def why_not(self, host: str, now_ms: int) -> str | None:
        """Why nothing may be sent to a host now; None where it may."""
        known = self._failing.get(host)
        if known is None or not known.until_ms:
            return None
        if now_ms < known.until_ms:
            return f"its breaker is open for {(known.until_ms - now_ms + 999) // 1_000} s more"
        return "its breaker is half open and a probe is under way" if known.probing else None

    def half_open(self, host: str) -> bool:
        """Whether it gets one call at a time."""
        known = self._failing.get(host)
        return known is not None and known.until_ms > 0

    def began(self, host: str) -> None:
        """A call is under way."""
        if (known := self._failing.get(host)) is not None and known.until_ms:
            known.probing = True

    def answered(self, host: str) -> None:
        """It works."""
        self._failing.pop(host, None)

    def failed(self, host: str, now_ms: int, wait_ms: int | None = None) -> None:
        """A call failed for what is the host's fault.

        Args:
          wait_ms: how long the host itself asks to be left alone.
        """
        known = self._failing.get(host)
        if known is None:
            self._make_room(now_ms)
            known = self._failing[host] = _Host(now_ms)
        known.seen_at_ms = now_ms
        known.failures += 1
        # What was under way when it opened failed for the same cause, and does not make it last longer.
        late = now_ms < known.until_ms
        if not late and (known.probing or known.failures >= FAILURES):
            known.for_ms = min(max(OPEN_MS, known.for_ms * 2), OPEN_MS_MAX)
            known.until_ms = now_ms + known.for_ms
        if wait_ms:
            known.until_ms = max(known.until_ms, now_ms + min(wait_ms, OPEN_MS_MAX))
        known.probing = known.probing and late

    def states(self, now_ms: int) -> dict[str, str]:
        """Hosts whose breaker is not closed: `open` or `half-open`."""
        held = {host: known.until_ms for host, known in self._failing.items() if known.until_ms}
        return {host: "open" if now_ms < until_ms else "half-open" for host, until_ms in held.items()}

    def _make_room(self, now_ms: int) -> None:
        if len(self._failing) >= _HOSTS_MAX:
            self._failing = {h: k for h, k in self._failing.items() if now_ms - max(k.seen_at_ms, k.until_ms) < _FORGET_MS}
            while len(self._failing) >= _HOSTS_MAX:
                del self._failing[next(iter(self._failing))]
