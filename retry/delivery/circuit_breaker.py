"""A breaker for each target: after failures nothing is sent for a while, then a probe, and if that goes well everything.

    closed ──failures──► open ──time──► half open ──the probe is taken, and does not come back──► closed
                          ▲                 │
                          └──it fails: open, twice as long

A failure is a topic that refuses what is written to it, at once; or so many letters that come back from a target within a
time, where the policy file gives it a breaker. Letters are counted by the worker that takes them in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from retry.policies.limits import Breaker

_ALL = 1 << 30
_PROBE = 1
_REFUSED_FOR_MS, _OPEN_MS_MAX = 5_000, 600_000


@dataclass(slots=True)
class _Open:
    """A breaker that is not closed.

    Attributes:
      until_ms: nothing goes before.
      for_ms: how long it was opened for.
      watch_ms: how long a probe must stay away; 0 where it is enough that it is taken.
      probed_at_ms: when the probe went.
    """

    why: str
    until_ms: int
    for_ms: int
    watch_ms: int
    probed_at_ms: int | None = None

    @property
    def watched(self) -> bool:
        """Whether a probe went that must stay away."""
        return self.watch_ms > 0 and self.probed_at_ms is not None


class Breakers:
    """The breakers of all targets, for several threads."""

    def __init__(self, configured: Mapping[str, Breaker]) -> None:
        self._configured = configured
        self._open: dict[str, _Open] = {}
        self._came_back: dict[str, deque[int]] = {}
        self._lock = threading.Lock()

    def allowed(self, target: str, now_ms: int) -> tuple[int, str]:
        """How many entries may go to a target, and why not more."""
        with self._lock:
            opened = self._not_closed(target, now_ms)
            if opened is None:
                return _ALL, ""
            if now_ms < opened.until_ms:
                return 0, opened.why
            if opened.watched:
                return 0, f"{opened.why}; a probe is under way"
            opened.probed_at_ms = now_ms
            return _PROBE, opened.why

    def unsent(self, target: str) -> None:
        """What was allowed did not go. If it was the probe, that is still to be sent."""
        with self._lock:
            opened = self._open.get(target)
            if opened is not None:
                opened.probed_at_ms = None

    def refused(self, target: str, why: str, now_ms: int) -> None:
        """A target took nothing of what was written to it."""
        with self._lock:
            opened = self._not_closed(target, now_ms)
            # What was under way when it was opened failed for the same cause, and does not make it last longer.
            if opened is None or now_ms >= opened.until_ms:
                watch_ms = opened.watch_ms if opened is not None else 0
                self._trip(target, f"it refuses: {why}", _REFUSED_FOR_MS, watch_ms, now_ms)

    def delivered(self, target: str) -> None:
        """A target took what was written to it."""
        with self._lock:
            opened = self._open.get(target)
            if opened is not None and not opened.watch_ms:
                del self._open[target]

    def came_back(self, target: str, letters: int, now_ms: int) -> None:
        """So many letters failed again after they were sent to a target."""
        limit = self._configured.get(target)
        if limit is None or letters == 0:
            return
        with self._lock:
            opened = self._not_closed(target, now_ms)
            if opened is not None and now_ms < opened.until_ms:
                return
            # Until the probe went, what comes back was sent before.
            probe_failed = opened is not None and opened.watched
            seen = self._came_back.setdefault(target, deque(maxlen=limit.failures))
            seen.extend([now_ms] * min(letters, limit.failures))
            if probe_failed or (len(seen) == limit.failures and now_ms - seen[0] <= limit.within_ms):
                seen.clear()
                why = f"its breaker is open: {limit.failures} letters came back within {limit.within_ms} ms"
                self._trip(target, why, limit.open_for_ms, limit.open_for_ms, now_ms)

    def states(self, now_ms: int) -> dict[str, str]:
        """Targets whose breaker is not closed: `open` or `half-open`."""
        with self._lock:
            found = {target: self._not_closed(target, now_ms) for target in list(self._open)}
            return {t: "open" if now_ms < opened.until_ms else "half-open" for t, opened in found.items() if opened}

    def openness(self, now_ms: int) -> dict[str, float]:
        """1 of open breakers, 0.5 of half open ones, 0 of those that are closed and configured."""
        return dict.fromkeys(self._configured, 0.0) | {
            target: 1.0 if state == "open" else 0.5 for target, state in self.states(now_ms).items()
        }

    def _not_closed(self, target: str, now_ms: int) -> _Open | None:
        """The breaker of a target, if it is not closed; a probe that stayed away for long enough closes it."""
        opened = self._open.get(target)
        if opened is not None and opened.watched and now_ms >= (opened.probed_at_ms or 0) + opened.watch_ms:
            del self._open[target]
            return None
        return opened

    def _trip(self, target: str, why: str, for_ms: int, watch_ms: int, now_ms: int) -> None:
        before = self._open.get(target)
        for_ms = for_ms if before is None else max(for_ms, min(before.for_ms * 2, _OPEN_MS_MAX))
        self._open[target] = _Open(why, now_ms + for_ms, for_ms, watch_ms)
