"""A circuit breaker: after failures nothing is sent for a while, then one probe, and if that goes well everything.

    closed ──trip──► open ──time──► half open ──the probe goes well──► closed
                      ▲                 │
                      └──trip: open, twice as long; the doubling ends at ten minutes

What trips it, and when a probe has gone well, is said by those who keep some: `TargetCircuitBreakers` for topics,
`HostCircuitBreakers` for hosts that are called. They close one by forgetting it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from retry.policies.limits import CircuitBreakerLimits

OPEN_MS_MAX = 600_000
OPEN, HALF_OPEN = "open", "half-open"


@dataclass(slots=True)
class CircuitBreaker:
    """The state of one circuit breaker; nothing goes before `until_ms`.

    Attributes:
      open_ms: how long it was opened for last.
      probing: whether a probe went of which nothing is known yet.
    """

    until_ms: int = 0
    open_ms: int = 0
    probing: bool = False

    def is_open(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    def trip(self, open_ms: int, now_ms: int) -> None:
        """Open it; for twice as long as before, where it has not been closed since."""
        self.open_ms = max(open_ms, min(self.open_ms * 2, OPEN_MS_MAX))
        self.until_ms, self.probing = now_ms + self.open_ms, False


def describe_breakers(breakers: Mapping[str, CircuitBreaker], now_ms: int) -> dict[str, str]:
    return {name: OPEN if b.is_open(now_ms) else HALF_OPEN for name, b in breakers.items() if b.until_ms}


# A circuit breaker for each target. It trips at once when a topic refuses what is written to it.
#
# Where the policy file gives a target a breaker, it also trips when so many letters come back from the target within a time; a
# probe has gone well then once it has stayed away for long enough. Letters are counted by the worker that takes them in.

_ALL = 1 << 30
_PROBE = 1
_REFUSED_FOR_MS = 5_000


@dataclass(slots=True)
class _TargetBreaker(CircuitBreaker):
    """The breaker of a target, which is not closed since `since_ms`, and why."""

    why: str = ""
    # So long a probe must stay away; 0 where it is enough that it is taken.
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

    def admit_to_target(self, target: str, now_ms: int) -> tuple[int, str]:
        """Return how many entries may go to a target, and why not more; a half-open breaker lets one go, as its probe."""
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

    def return_probe(self, target: str) -> None:
        """Note that what was allowed did not go. If it was the probe, the probe is still to be sent."""
        with self._lock:
            if (breaker := self._breakers.get(target)) is not None:
                breaker.probing = False

    def note_refused(self, target: str, why: str, now_ms: int) -> None:
        with self._lock:
            breaker = self._not_closed(target, now_ms)
            # What was in flight when it was opened failed for the same cause, and does not make it last longer.
            if breaker is None or not breaker.is_open(now_ms):
                watch_ms = breaker.watch_ms if breaker is not None else 0
                self._trip(target, f"it refuses: {why}", _REFUSED_FOR_MS, watch_ms, now_ms)

    def note_delivered(self, target: str) -> None:
        with self._lock:
            breaker = self._breakers.get(target)
            if breaker is not None and not breaker.watch_ms:
                del self._breakers[target]

    def note_returned_letters(self, target: str, letters: int, now_ms: int) -> None:
        """Note that so many letters failed again after they were sent to a target."""
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
        with self._lock:
            for target in list(self._breakers):
                self._not_closed(target, now_ms)
            return describe_breakers(self._breakers, now_ms)

    def not_closed(self, now_ms: int) -> list[tuple[str, str, str, int]]:
        """List targets whose breaker is not closed: its state as `describe_targets` has it, why, and since when."""
        states = self.describe_targets(now_ms)
        with self._lock:
            found = ((target, state, self._breakers.get(target)) for target, state in states.items())
            return [(target, state, breaker.why, breaker.since_ms) for target, state, breaker in found if breaker is not None]

    def openness(self, now_ms: int) -> dict[str, float]:
        """Return 1 for open breakers, 0.5 for half open ones, 0 for those that are closed and configured."""
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


# A circuit breaker for each host. It trips after failures in a row; a probe has gone well once it is answered.
#
# What waits meanwhile uses up none of its attempts.

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

    def explain_block(self, host: str, now_ms: int) -> str | None:
        """Explain why nothing may be sent to a host now; None where sending is allowed."""
        breaker = self._failing.get(host)
        if breaker is None or not breaker.until_ms:
            return None
        if breaker.is_open(now_ms):
            return f"its breaker is open for {(breaker.until_ms - now_ms + 999) // 1_000} s more"
        return "its breaker is half open and a probe is under way" if breaker.probing else None

    def is_half_open(self, host: str) -> bool:
        """Whether it gets one call at a time."""
        breaker = self._failing.get(host)
        return breaker is not None and breaker.until_ms > 0

    def note_call_begun(self, host: str) -> None:
        if (breaker := self._failing.get(host)) is not None and breaker.until_ms:
            breaker.probing = True

    def return_probe(self, host: str) -> None:
        if (breaker := self._failing.get(host)) is not None:
            breaker.probing = False

    def note_answer(self, host: str) -> None:
        self._failing.pop(host, None)

    def note_failure(self, host: str, now_ms: int, wait_ms: int | None = None) -> None:
        """Note that a call failed by the host's fault; it may itself ask to be left alone for `wait_ms`."""
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
        return describe_breakers(self._failing, now_ms)

    def _make_room(self, now_ms: int) -> None:
        if len(self._failing) >= _HOSTS_MAX:
            self._failing = {h: b for h, b in self._failing.items() if now_ms - max(b.failed_at_ms, b.until_ms) < _FORGET_MS}
            while len(self._failing) >= _HOSTS_MAX:
                del self._failing[next(iter(self._failing))]
