"""Finds what stands still though there is work before it. A worker that does so is not ready; then it ends, to be started again.

Three things look alike from outside, and only the last is mended by a new process:

- a broker does not answer      nothing counts until it does, and then all begins anew
- every try fails               whoever tries again is not stuck: a new process would do the same
- a part makes no step          a thread that hangs, a client that has gone deaf

What waits for its turn while its thread is at work for others makes no step either: of such a time only its share counts.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from retry import clock
from retry.errors import Stalled
from retry.telemetry.health import Blocked, HealthProbe, PartitionId, Reason

log = logging.getLogger(__name__)

EVERY_S = 1.0
_ASK_EVERY_S = 5.0
# A process that was frozen, or did not get a processor, has seen nothing of the time in between.
_SEEN_S_MAX = 2 * EVERY_S
# So much of the patience is over when a part is told to be not ready.
_PART = 4
_NAMED = 4


class _Standing(NamedTuple):
    """A part and for how long it has stood still, without the time since its thread got on last.

    Attributes:
      among: how many parts of its thread stood still with it, at most; 0 where it has no thread that others share, or goes on.
    """

    part: HealthProbe
    stood_s: float = 0.0
    among: int = 0


class Watchdog:
    """Looks at all parts every second, and asks brokers for the ends of what they read, every five."""

    def __init__(
        self, parts: Callable[[], Iterable[HealthProbe]], ends: Callable[[Iterable[PartitionId]], dict[PartitionId, int]],
        stalled_s: float,
    ) -> None:  # fmt: skip
        self._parts, self._ends, self._stalled_s = parts, ends, stalled_s
        self._stood: dict[str, _Standing] = {}
        # By thread, since when nothing of what it does in turns got on.
        self._idle_s: dict[str, float] = {}
        self._known: dict[PartitionId, int] = {}
        self._silent: set[PartitionId] = set()
        self._looked_at_s = clock.monotonic_s()
        self._ask_at_s = 0.0

    def check_parts(self) -> None:
        """Look once at all parts, count for how long each has stood still, and raise `Stalled` where that is too long."""
        now_s = clock.monotonic_s()
        seen_s, self._looked_at_s = min(now_s - self._looked_at_s, _SEEN_S_MAX), now_s
        parts, before = list(self._parts()), self._stood
        still = [part for part in parts if part.name in before and _same(before[part.name].part, part)]
        if now_s >= self._ask_at_s:
            self._probe_brokers(parts)
        counts = {part.name for part in still if part.trouble or self._working(part)} if not self._silent else set()
        self._measure(parts, counts, seen_s)
        stuck = {each.part.name: self._sum_standing_s(each) for each in self._stood.values() if not each.part.trouble}
        if stuck and max(stuck.values()) >= self._stalled_s:
            # A broker may have gone away since it was asked.
            self._probe_brokers(parts)
            if self._silent:
                self._stood, self._idle_s = {}, {}
                return
            # One that hangs holds up others, which are noticed sooner or later than it.
            names = [name for name, stood_s in stuck.items() if stood_s >= self._stalled_s / 2]
            raise Stalled(", ".join(names[:_NAMED]), max(stuck.values()))

    def _measure(self, parts: Iterable[HealthProbe], counts: set[str], seen_s: float) -> None:
        """Let the time that was seen count for what stands still though it has work.

        Of 300 partitions the last may have to wait for 299: while its thread is at work for others, a part is charged with the
        time of one turn only, as if all that waited with it had taken turns.
        """
        before, waiting = self._stood, Counter(part.thread for part in parts if part.name in counts)
        working = {p.thread for p in parts if p.name in before and before[p.name].part.done != p.done}
        passed_s = {thread: self._idle_s.get(thread, 0.0) + seen_s for thread in waiting}
        stood = dict[str, _Standing]()
        for part in parts:
            standing = _Standing(part)
            if part.name in counts:
                among = max(before[part.name].among, waiting[part.thread]) if part.thread else 0
                turn_s = passed_s[part.thread] / (1 + among) if part.thread in working else 0.0
                standing = _Standing(part, before[part.name].stood_s + (turn_s if part.thread else seen_s), among)
            stood[part.name] = standing
        # Whole, since others look at it.
        self._stood = stood
        self._idle_s = {thread: 0.0 if thread in working else idle_s for thread, idle_s in passed_s.items() if thread}

    def _sum_standing_s(self, standing: _Standing) -> float:
        return standing.stood_s + (self._idle_s.get(standing.part.thread, 0.0) if standing.among else 0.0)

    def _probe_brokers(self, parts: Iterable[HealthProbe]) -> None:
        self._ask_at_s = clock.monotonic_s() + _ASK_EVERY_S
        places = {part.place for part in parts if part.place is not None}
        self._known = self._ends(places) if places else {}
        silent = places - set(self._known)
        if silent != self._silent:
            log.warning("brokers do not answer for %d partitions", len(silent)) if silent else log.info("brokers answer again")
        self._silent = silent

    def _working(self, part: HealthProbe) -> bool:
        return part.busy or (part.place is not None and self._known.get(part.place, 0) > part.offset)

    def list_blocked(self) -> list[Blocked]:
        found = [Blocked(Reason.BROKERS, f"no answer for {', '.join(_name_places(self._silent))}")] if self._silent else []
        if (away_s := clock.monotonic_s() - self._looked_at_s) >= self._stalled_s:
            found.append(Blocked(Reason.STALLED, f"the watchdog has not looked for {away_s:.0f} s: restart the worker"))
        for each in list(self._stood.values()):
            part, stood_s = each.part, self._sum_standing_s(each)
            if stood_s >= self._stalled_s / _PART:
                reason = Reason.FAILING if part.trouble else Reason.STALLED
                why = f": {part.trouble}" if part.trouble else ""
                found.append(Blocked(reason, f"{part.name} has not got on for {stood_s:.0f} s{why}", part.shard))
        return found

    def run(self) -> None:
        """Look every second, and end the process when something is stuck: what hangs cannot be asked to stop."""
        while True:
            clock.pause(EVERY_S)
            try:
                self.check_parts()
            except Exception:
                # Whatever it is: a worker that nobody watches is no better off than one that hangs.
                log.critical("cannot go on", exc_info=True)
                faulthandler.dump_traceback(sys.stderr, all_threads=True)
                os._exit(1)


def _same(before: HealthProbe, now: HealthProbe) -> bool:
    return before.done == now.done and bool(before.trouble) == bool(now.trouble)


def _name_places(places: set[PartitionId]) -> list[str]:
    first = sorted(places)[:_NAMED]
    return [f"{topic}/{partition}" for topic, partition in first] + (["…"] if len(places) > len(first) else [])
