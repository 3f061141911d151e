"""What may be delivered just now: pauses, allow-lists, limits, and topics that refuse. One for all shards of a process.

An entry that may not go stays where it is, at no cost, and admission says why.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from backoff.rate_limit import Bucket
from retry.delay_queue import control_records, entry_keys
from retry.delay_queue.entry_keys import Lane
from retry.delivery.circuit_breakers import OPEN, TargetCircuitBreakers
from retry.intake import entry_source
from retry.intake.entry_source import EntrySource
from retry.kafka.record_limits import RecordLimits
from retry.policies.registry import Registry
from retry.telemetry.health import Reason

log = logging.getLogger(__name__)

_SHARE_MIN = 0.001
# Sweeps ask for every lane that has something due, many times in this time; one that none asks for has nothing more.
_BLOCKED_MS, _DOUBTS_MS = 30_000, 60_000
_USED_UP = "the limit is used up for now"

# Entries of which their topic has refused the record for what it is, while it takes others.
#
# Such an entry is put back once, for half a minute. If its topic still refuses it then, it is parked: see
# `retry.delivery.park_refused`. Kept in memory only: whoever owns its shard next puts it back once more.

_ENTRIES_MAX = 10_000
# An entry that was put back comes again long before that, unless its lane is held up.
_FORGET_MS = 600_000


class RefusedEntry(NamedTuple):
    """An entry whose topic does not take it, first found at `since_ms`; `letter` is its `topic/partition/offset`."""

    letter: str
    destination: str
    why: str
    since_ms: int


class RefusedEntries:
    """Remembers which entries were refused, at most 10,000 of them. For several threads."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), dict[bytes, RefusedEntry]()

    def __len__(self) -> int:
        return len(self._known)

    def note_refusal(self, key: bytes, destination: str, why: str, now_ms: int) -> None:
        with self._lock:
            if len(self._known) < _ENTRIES_MAX:
                letter = entry_keys.read_source(key).letter
                self._known.setdefault(entry_keys.extract_identity(key), RefusedEntry(letter, destination, why, now_ms))

    def drop_entry(self, key: bytes) -> None:
        with self._lock:
            self._known.pop(entry_keys.extract_identity(key), None)

    def select_known(self, rows: Sequence[tuple[bytes, bytes]], until_ms: int) -> list[tuple[bytes, bytes]]:
        """Select rows, keys and envelopes, whose entries were refused at this time or before."""
        if not self._known:
            return []
        known = ((row, self._known.get(entry_keys.extract_identity(row[0]))) for row in rows)
        return [row for row, entry in known if entry is not None and entry.since_ms <= until_ms]

    def list_entries(self, now_ms: int) -> list[RefusedEntry]:
        """List what is remembered, the oldest first; what was refused long ago and never came again is forgotten."""
        with self._lock:
            for identity, entry in list(self._known.items()):
                if now_ms - entry.since_ms > _FORGET_MS:
                    del self._known[identity]
            return list(self._known.values())


Closed = Callable[[set[str]], dict[str, str]]


class Admission:
    """Says what a process may send just now; asked by sweeps of several threads. `lanes` are those that were read, by key prefix.

    Args:
      parking: the service's own topics that letters rest in, which are open to everybody.
      closed: asked which of some destinations cannot be written to now, and why, before anything goes there.
      look: asks the cluster the same after something went wrong.
      share: which part of all shards this process sweeps; a limit is that of all processes together.
      through: the entry sources; what came in by one goes where that one lets it.
    """

    def __init__(
        self, registry: Registry, parking: Collection[str], closed: Closed, share: Callable[[], float],
        through: Sequence[EntrySource] = (), look: Closed | None = None, record_limits: RecordLimits | None = None,
    ) -> None:  # fmt: skip
        self.lanes: dict[bytes, Lane] = {}
        self.record_limits = record_limits or RecordLimits()
        self.refused_entries = RefusedEntries()
        self._blocked: dict[Lane, tuple[Reason, str, int]] = {}
        self._parking, self._share, self.find_closed, self.probe_targets = parking, share, closed, look or closed
        self._lock, self._doubts_until_ms = threading.Lock(), 0
        self.use(registry, through)

    def use(self, registry: Registry, through: Sequence[EntrySource] = ()) -> None:
        """Go by another registry from now on; limits begin anew."""
        with self._lock:
            self._registry, self._sources = registry, through
            self._parked = registry.parking().union(self._parking)
            self._teams = {team: [Bucket(limit) for limit in limits] for team, limits in registry.team_limits.items()}
            self._targets = {target: Bucket(limit) for target, limit in registry.target_limits.items()}
            self.breakers = TargetCircuitBreakers(registry.breakers)

    def acquire_permits(self, lane: Lane, wanted: int, now_ms: int, standing: Mapping[bytes, bytes]) -> int:
        """Return how many entries of a lane may go now, at most `wanted`, and count them as sent."""
        refusal = self._find_blocking_reason(lane, standing, now_ms)
        if refusal:
            self.block(lane, *refusal, now_ms)
            return 0
        let_through, why = self.breakers.admit_to_target(lane.destination, now_ms)
        allowed = min(wanted, let_through)
        if buckets := self._buckets(lane):
            allowed = self._take_permits(buckets, allowed, now_ms)
        if allowed:
            self._blocked.pop(lane, None)
        elif let_through:
            self.breakers.return_probe(lane.destination)
            self.block(lane, Reason.RATE_LIMIT, _USED_UP, now_ms)
        else:
            self.block(lane, Reason.CIRCUIT_BREAKER, why, now_ms)
        return allowed

    def renews_timestamp(self, lane: Lane) -> bool:
        """Whether an entry of a lane that is too old for its topic is sent with the time of now; else it is parked."""
        return lane.destination in self._parked or self._registry.route(lane.topic).renews_timestamps

    def explain_block(self, lane: Lane, standing: Mapping[bytes, bytes], now_ms: int) -> str | None:
        """Explain why no entry of a lane may go, apart from limits and circuit breakers; None where entries may go."""
        refusal = self._find_blocking_reason(lane, standing, now_ms)
        return refusal[1] if refusal else None

    def _find_blocking_reason(self, lane: Lane, standing: Mapping[bytes, bytes], now_ms: int) -> tuple[Reason, str] | None:
        paused = control_records.find_pause(standing, *lane, now_ms)
        if paused is not None:
            return Reason.PAUSED, paused
        if not self._is_permitted(lane):
            why = f"the policy file does not allow team {lane.team} to send to {lane.destination} any more"
            return Reason.NOT_ALLOWED, why if self._registry.knows(lane.team) else f"team {lane.team} is not in the policy file"
        if lane.calls:
            return None
        closed = self.find_closed({lane.destination}).get(lane.destination)
        return (Reason.REFUSED, closed) if closed else None

    def _is_permitted(self, lane: Lane) -> bool:
        to = lane.destination
        return to in self._parked or entry_source.is_target_permitted(self._registry, self._sources, lane.team, to)

    def give_back(self, lane: Lane, entries: int) -> None:
        """Release what `acquire_permits` let through, for so many entries that did not go."""
        with self._lock:
            for bucket in self._buckets(lane):
                bucket.give_back(entries)
        self.breakers.return_probe(lane.destination)

    def list_blocked(self, now_ms: int) -> dict[Lane, str]:
        return {lane: why for lane, (_, why, at_ms) in list(self._blocked.items()) if now_ms - at_ms < _BLOCKED_MS}

    def count_reasons(self, now_ms: int) -> Counter[Reason]:
        return Counter(reason for reason, _, at_ms in list(self._blocked.values()) if now_ms - at_ms < _BLOCKED_MS)

    def note_doubt(self, now_ms: int) -> None:
        """Note that a producer had to be given up after a transaction failed, and nobody knows for whose fault."""
        self._doubts_until_ms = now_ms + _DOUBTS_MS

    def has_doubts(self, now_ms: int) -> bool:
        return now_ms < self._doubts_until_ms

    def note_refused(self, destination: str, why: str, now_ms: int) -> None:
        """Note that a destination took nothing of what was written to it."""
        self.breakers.note_refused(destination, why, now_ms)

    def note_delivered(self, destinations: Iterable[str]) -> None:
        for destination in destinations:
            self.breakers.note_delivered(destination)

    def list_tripped(self, destinations: set[str], now_ms: int) -> list[str]:
        states = self.breakers.describe_targets(now_ms)
        return sorted(destination for destination in destinations if states.get(destination) == OPEN)

    def _buckets(self, lane: Lane) -> list[Bucket]:
        if lane.destination in self._parked:
            return []
        target = self._targets.get(lane.destination)
        return [*self._teams.get(lane.team, []), *([target] if target else [])]

    def _take_permits(self, buckets: list[Bucket], wanted: int, now_ms: int) -> int:
        """Take from each bucket as many tokens as all of them have, at most `wanted`, and return how many."""
        share = max(_SHARE_MIN, min(1.0, self._share()))
        with self._lock:
            got = []
            for bucket in buckets:
                bucket.share = share
                got.append(bucket.take_tokens(wanted, now_ms))
            for bucket, taken in zip(buckets, got, strict=True):
                bucket.give_back(taken - min(got))
        return min(got)

    def block(self, lane: Lane, reason: Reason, why: str, now_ms: int) -> None:
        """Note that no entry of a lane goes at present, for a reason that the caller gives; log the reason where it is new."""
        before = self._blocked.get(lane)
        self._blocked[lane] = reason, why, now_ms
        if before is None or before[1] != why:
            # Every limit is used up again and again: that is what it is for.
            level = logging.DEBUG if reason is Reason.RATE_LIMIT else logging.WARNING
            log.log(level, "%s: letters of %s for %s wait: %s", lane.team, lane.topic, lane.destination, why)
