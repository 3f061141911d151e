"""A circuit breaker for each target. It trips at once when a topic refuses what is written to it.

Where the policy file gives a target a breaker, it also trips when so many letters come back from the target within a time; a
probe has gone well then once it has stayed away for long enough. Letters are counted by the worker that takes them in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from retry.delivery import circuit_breaker
from retry.delivery.circuit_breaker import OPEN, CircuitBreaker
from retry.policies.limits import CircuitBreakerLimits

_ALL = 1 << 30
_PROBE = 1
_REFUSED_FOR_MS = 5_000


@dataclass(slots=True)
class _TargetBreaker(CircuitBreaker):
    """The breaker of a target that is not closed.

    Attributes:
      why: it is not.
      watch_ms: how long a probe must stay away; 0 where it is enough that it is taken.
      probed_at_ms: when the last probe went.
      since_ms: when it was tripped first.
    """

    why: str = ""
    watch_ms: int = 0
    probed_at_ms: int = 0
    since_ms: int = 0

    @property
    def watched(self) -> bool:
        """Whether a probe went that must stay away."""
        return self.watch_ms > 0 and self.probing


class TargetCircuitBreakers:
    """The breakers of all targets, for several threads."""

    def __init__(self, configured: Mapping[str, CircuitBreakerLimits]) -> None:
        self._configured = configured
        self._breakers: dict[str, _TargetBreaker] = {}
        self._came_back_at_ms: dict[str, deque[int]] = {}
        self._lock = threading.Lock()

    def count_allowed(self, target: str, now_ms: int) -> tuple[int, str]:
        """How many entries may go to a target, and why not more."""
        with self._lock:
            breaker = self._not_closed(target, now_ms)
            if breaker is None:
                return _ALL, ""
            if breaker.is_open(now_ms):
                return 0, breaker.why
            if breaker.watched:
                return 0, f"{breaker.why}; a probe is under way"
            breaker.probing, breaker.probed_at_ms = True, now_ms
            return _PROBE, breaker.why

    def unsent(self, target: str) -> None:
        """Note that what was allowed did not go. If it was the probe, the probe is still to be sent."""
        with self._lock:
            if (breaker := self._breakers.get(target)) is not None:
                breaker.probing = False

    def note_refused(self, target: str, why: str, now_ms: int) -> None:
        """A target took nothing of what was written to it."""
        with self._lock:
            breaker = self._not_closed(target, now_ms)
            # What was in flight when it was opened failed for the same cause, and does not make it last longer.
            if breaker is None or not breaker.is_open(now_ms):
                watch_ms = breaker.watch_ms if breaker is not None else 0
                self._trip(target, f"it refuses: {why}", _REFUSED_FOR_MS, watch_ms, now_ms)

    def note_delivered(self, target: str) -> None:
        """A target took what was written to it."""
        with self._lock:
            breaker = self._breakers.get(target)
            if breaker is not None and not breaker.watch_ms:
                del self._breakers[target]

    def came_back(self, target: str, letters: int, now_ms: int) -> None:
        """So many letters failed again after they were sent to a target."""
        limit = self._configured.get(target)
        if limit is None or letters == 0:
            return
        with self._lock:
            breaker = self._not_closed(target, now_ms)
            if breaker is not None and breaker.is_open(now_ms):
                return
            # Until the probe went, what comes back was sent before.
            probe_failed = breaker is not None and breaker.watched
            at_ms = self._came_back_at_ms.setdefault(target, deque(maxlen=limit.failures))
            at_ms.extend([now_ms] * min(letters, limit.failures))
            if probe_failed or (len(at_ms) == limit.failures and now_ms - at_ms[0] <= limit.within_ms):
                at_ms.clear()
                why = f"its breaker is open: {limit.failures} letters came back within {limit.within_ms} ms"
                self._trip(target, why, limit.open_for_ms, limit.open_for_ms, now_ms)

    def describe_targets(self, now_ms: int) -> dict[str, str]:
        """Targets whose breaker is not closed: `open` or `half-open`."""
        with self._lock:
            for target in list(self._breakers):
                self._not_closed(target, now_ms)
            return circuit_breaker.describe_breakers(self._breakers, now_ms)

    def not_closed(self, now_ms: int) -> list[tuple[str, str, str, int]]:
        """Targets whose breaker is not closed: state as of `describe_targets`, why, and since when."""
        states = self.describe_targets(now_ms)
        with self._lock:
            found = ((target, state, self._breakers.get(target)) for target, state in states.items())
            return [(target, state, breaker.why, breaker.since_ms) for target, state, breaker in found if breaker is not None]

    def openness(self, now_ms: int) -> dict[str, float]:
        """1 of open breakers, 0.5 of half open ones, 0 of those that are closed and configured."""
        not_closed = {target: 1.0 if state == OPEN else 0.5 for target, state in self.describe_targets(now_ms).items()}
        return dict.fromkeys(self._configured, 0.0) | not_closed

    def _not_closed(self, target: str, now_ms: int) -> _TargetBreaker | None:
        """The breaker of a target, if it is not closed; a probe that stayed away for long enough closes it."""
        breaker = self._breakers.get(target)
        if breaker is not None and breaker.watched and now_ms >= breaker.probed_at_ms + breaker.watch_ms:
            del self._breakers[target]
            return None
        return breaker

    def _trip(self, target: str, why: str, open_ms: int, watch_ms: int, now_ms: int) -> None:
        breaker = self._breakers.setdefault(target, _TargetBreaker(since_ms=now_ms))
        breaker.why, breaker.watch_ms = why, watch_ms
        breaker.trip(open_ms, now_ms)
