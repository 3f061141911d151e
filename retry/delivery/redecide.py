"""A waiting entry, decided anew under the policies of today. Pure: the same question always has the same answer.

The letter is read back out of the entry. What it says of its failure is still in its headers, how often it was tried and
when it first failed in ours. Its own wish for a time was used up when it was taken in, and is not known any more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from retry.delay_queue import entry as entries
from retry.intake import attempts
from retry.delay_queue.control_records import Reschedule
from retry.intake.decide import decide
from retry.delay_queue.entry import NAMED, Entry, Source
from retry.record import Headers
from retry.intake.build_entry import Packed, Packer
from retry.policies.registry import Registry
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import integer, moment, read
from retry.intake.attempts.attempt_counter import Trace

_ATTEMPT_DIGITS_MAX = 10
_CREATE_TIME = 1


class Move(Enum):
    """What a new decision changes."""

    UNCHANGED = "unchanged"
    EARLIER = "earlier"
    LATER = "later"
    RETARGETED = "other target"
    PARKED = "to be parked"
    REGROUPED = "other team or order"


class Anew(NamedTuple):
    """An entry and its new decision.

    Attributes:
      packed: what it is to be replaced by; the same key where nothing changes.
      policy: by which plan, as the header `retry-policy` has it.
    """

    key: bytes
    entry: Entry
    packed: Packed
    policy: str
    move: Move


class Judge:
    """Decides entries anew by one policy file.

    Args:
      registry: what the file says; its digest is compared with what a request asks for.
      packer: makes entries.
    """

    def __init__(self, registry: Registry, packer: Packer) -> None:
        self.digest = registry.digest
        self._registry, self._packer = registry, packer

    def decided(self, key: bytes, envelope: bytes, request: Reschedule) -> Anew | None:
        """What becomes of one entry; None where it is not asked for, is parked already, or failed after the request.

        Raises:
          EntryUnreadable: not an entry that this version can read.
        """
        if key[0] == NAMED:
            # No policy has made it; whoever asked for it may ask anew.
            return None
        where = entries.source(key)
        if request.topic not in (None, where.topic):
            return None
        entry = entries.decode(envelope)
        if request.team not in (None, entry.team):
            return None
        ours = {name: value for name, value in entry.headers if name in names.OURS}
        trace = _trace(ours)
        if trace is None or names.PARKED_REASON in ours:
            return None
        failed_at_ms = _failed_at_ms(entry, trace)
        if failed_at_ms > request.since_ms:
            return None
        route = self._registry.route(where.topic)
        letter = read(_Stored(where, entry), route.aliases)
        case = decide(route, letter, trace, request.since_ms, failed_at_ms=failed_at_ms)
        packed = self._packer.pack(case)
        return Anew(key, entry, packed, case.plan.name, _move(key, entry, packed))


class _Stored:
    """The dead letter that an entry was made from, as a consumer would have it; without headers of ours."""

    def __init__(self, where: Source, entry: Entry) -> None:
        self.topic, self.partition, self.offset = (lambda: where.topic), (lambda: where.partition), (lambda: where.offset)
        self.key, self.value = (lambda: entry.key), (lambda: entry.value)
        stamp = (_CREATE_TIME, entry.timestamp_ms or 0)
        self.timestamp: Callable[[], tuple[int, int]] = lambda: stamp
        self._headers = [header for header in entry.headers if header[0] not in names.OURS]

    def headers(self) -> Headers:
        """Those of the letter."""
        return self._headers


def _trace(ours: dict[str, bytes | None]) -> Trace | None:
    """The letter's past, as it was known when it was taken in; None where the entry does not tell."""
    id_, attempt = ours.get(names.ID), integer(ours.get(names.ATTEMPT), _ATTEMPT_DIGITS_MAX)
    if id_ is None or not attempt:
        return None
    return Trace(id_, attempts.from_header(id_), 0, attempt - 1, moment(ours.get(names.FIRST_FAILED_MS)), False)


def _failed_at_ms(entry: Entry, trace: Trace) -> int:
    if entry.failed_at_ms is not None:
        return entry.failed_at_ms
    return max(trace.first_failed_ms or 0, entry.timestamp_ms or 0)


def _move(key: bytes, entry: Entry, packed: Packed) -> Move:
    if packed.key == key:
        return Move.UNCHANGED
    if packed.reason is not None:
        return Move.PARKED
    if packed.destination != entry.destination:
        return Move.RETARGETED
    was_ms, due_ms = entries.due_at_ms(key), entries.due_at_ms(packed.key)
    if due_ms != was_ms:
        return Move.EARLIER if due_ms < was_ms else Move.LATER
    return Move.REGROUPED
