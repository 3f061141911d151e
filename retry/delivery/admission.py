"""What may be delivered just now: pauses, allow-lists, limits, and topics that refuse. One gate for all shards of a process.

An entry that may not go stays where it is, at no cost, and the gate says why.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from backoff.rate_limit import Bucket
from retry.delay_queue import control_records
from retry.intake import entry_source
from retry.delivery.circuit_breaker import Breakers
from retry.intake.entry_source import Door
from retry.delay_queue.lane import Lane
from retry.policies.registry import Registry
from retry.telemetry.health import Reason

log = logging.getLogger(__name__)

_SHARE_MIN = 0.001
# Sweeps ask for every lane that has something due, many times in this time; one that none asks for has nothing more.
_HELD_MS = 30_000
_USED_UP = "the limit is used up for now"

Closed = Callable[[set[str]], dict[str, str]]


class Gate:
    """Asked by sweeps of several threads.

    Args:
      registry: whose allow-lists and limits count.
      parking: the service's own parking topic, which is open to everybody.
      closed: asked which of some destinations cannot be written to now, and why.
      share: which part of all shards this process sweeps; a limit is that of all processes together.
      through: the doors; what came in by one goes where that one lets it.
    """

    def __init__(
        self, registry: Registry, parking: str, closed: Closed, share: Callable[[], float], through: Sequence[Door] = ()
    ) -> None:
        self.known: dict[bytes, Lane] = {}
        self._held: dict[Lane, tuple[Reason, str, int]] = {}
        self._parking, self._closed, self._share = parking, closed, share
        self._lock = threading.Lock()
        self.use(registry, through)

    def use(self, registry: Registry, through: Sequence[Door] = ()) -> None:
        """Go by another registry from now on; limits begin anew."""
        with self._lock:
            self._registry, self._doors = registry, through
            self._parked = registry.parking() | {self._parking}
            self._teams = {team: [Bucket(limit) for limit in limits] for team, limits in registry.team_limits.items()}
            self._targets = {target: Bucket(limit) for target, limit in registry.target_limits.items()}
            self.breakers = Breakers(registry.breakers)

    def take(self, lane: Lane, wanted: int, now_ms: int, standing: Mapping[bytes, bytes]) -> int:
        """See `retry.delivery.due_batch.Gate`."""
        refusal = self._refusal(lane, standing)
        if refusal:
            self.hold(lane, *refusal, now_ms)
            return 0
        let_through, why = self.breakers.allowed(lane.destination, now_ms)
        allowed = min(wanted, let_through)
        if buckets := self._buckets(lane):
            allowed = self._taken(buckets, allowed, now_ms)
        if allowed:
            self._held.pop(lane, None)
        elif let_through:
            self.breakers.unsent(lane.destination)
            self.hold(lane, Reason.LIMIT, _USED_UP, now_ms)
        else:
            self.hold(lane, Reason.BREAKER, why, now_ms)
        return allowed

    def why_not(self, lane: Lane, standing: Mapping[bytes, bytes]) -> str | None:
        """Why nothing of a lane may go, limits and breakers aside; None where it may."""
        refusal = self._refusal(lane, standing)
        return refusal[1] if refusal else None

    def _refusal(self, lane: Lane, standing: Mapping[bytes, bytes]) -> tuple[Reason, str] | None:
        paused = control_records.paused(standing, *lane)
        if paused is not None:
            return Reason.PAUSED, paused
        if lane.destination not in self._parked and not entry_source.permits(self._registry, self._doors, lane.team, lane.destination):
            why = f"the policy file does not allow team {lane.team} to send to {lane.destination} any more"
            return Reason.NOT_ALLOWED, why if self._registry.knows(lane.team) else f"team {lane.team} is not in the policy file"
        if lane.calls:
            return None
        closed = self._closed({lane.destination}).get(lane.destination)
        return (Reason.REFUSED, closed) if closed else None

    def give_back(self, lane: Lane, entries: int) -> None:
        """See `retry.delivery.due_batch.Gate`."""
        with self._lock:
            for bucket in self._buckets(lane):
                bucket.give_back(entries)
        self.breakers.unsent(lane.destination)

    def held(self, now_ms: int) -> dict[Lane, str]:
        """Why lanes wait that have something due and may send none of it."""
        return {lane: why for lane, (_, why, at_ms) in list(self._held.items()) if now_ms - at_ms < _HELD_MS}

    def reasons(self, now_ms: int) -> Counter[Reason]:
        """How many lanes are held, by reason."""
        return Counter(reason for reason, _, at_ms in list(self._held.values()) if now_ms - at_ms < _HELD_MS)

    def refused(self, destination: str, why: str, now_ms: int) -> None:
        """See `retry.delivery.due_batch.Gate`."""
        self.breakers.refused(destination, why, now_ms)

    def delivered(self, destinations: Iterable[str]) -> None:
        """See `retry.delivery.due_batch.Gate`."""
        for destination in destinations:
            self.breakers.delivered(destination)

    def _buckets(self, lane: Lane) -> list[Bucket]:
        if lane.destination in self._parked:
            return []
        target = self._targets.get(lane.destination)
        return [*self._teams.get(lane.team, []), *([target] if target else [])]

    def _taken(self, buckets: list[Bucket], wanted: int, now_ms: int) -> int:
        """What all buckets have; no more is taken out of any."""
        share = max(_SHARE_MIN, min(1.0, self._share()))
        with self._lock:
            got = []
            for bucket in buckets:
                bucket.share = share
                got.append(bucket.take(wanted, now_ms))
            for bucket, taken in zip(buckets, got, strict=True):
                bucket.give_back(taken - min(got))
        return min(got)

    def hold(self, lane: Lane, reason: Reason, why: str, now_ms: int) -> None:
        """Nothing of a lane goes just now, for a reason that the gate need not know."""
        before = self._held.get(lane)
        self._held[lane] = reason, why, now_ms
        if before is None or before[1] != why:
            # Every limit is used up again and again: that is what it is for.
            level = logging.DEBUG if reason is Reason.LIMIT else logging.WARNING
            log.log(level, "%s: letters of %s for %s wait: %s", lane.team, lane.topic, lane.destination, why)
