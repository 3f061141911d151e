"""A decision → the entry that carries it out, in a form that its topic and the changelog take."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from retry.delay_queue import entry as entries
from retry.intake.decide import Case
from retry.delay_queue.entry import Entry
from retry.record import Headers
from retry.dead_letters import retry_headers as names

_RECORD_BYTES = 1_048_588 - 256
_REFERENCE_KEY_BYTES_MAX = 1_024


class Packed(msgspec.Struct, frozen=True, gc=False):
    """An entry ready to be written; `reason` is why it parks, which its size may have decided."""

    key: bytes
    envelope: bytes
    destination: str
    reason: str | None


class Packer:
    """Makes entries.

    Args:
      changelog, parked: names of topics; `parked` takes letters whose policy names no parking topic.
      bytes_max: by topic, the largest record that it takes; the changelog's is among them.

    Attributes:
      safe_bytes: every topic takes an entry of this size.
    """

    def __init__(self, changelog: str, parked: str, bytes_max: Mapping[str, int]) -> None:
        self._changelog, self._parked, self._bytes_max = changelog, parked, bytes_max
        # Nearly every letter is smaller than what any topic takes, and needs no closer look.
        self.safe_bytes = min([_RECORD_BYTES, *bytes_max.values()])

    def pack(self, case: Case) -> Packed:
        """The entry; by reference, without payload, where the whole of it fits nowhere."""
        letter = case.letter
        if not letter.copyable():
            return self._reference(case)
        ours, target = _ours(case), case.target or self._parked
        headers = letter.kept + ours
        whole = Entry(
            target, letter.key, letter.value, headers, letter.timestamp_ms, case.route.team, case.failed_at_ms
        )
        envelope = entries.encode(whole)
        if len(envelope) <= self.safe_bytes or len(envelope) <= self._limit(target):
            return Packed(_key(case, target), envelope, target, case.reason)
        essential = [header for header in ours if header[0] in names.ESSENTIAL]
        envelope = entries.encode(msgspec.structs.replace(whole, headers=letter.kept + essential))
        if len(envelope) <= self._limit(target):
            return Packed(_key(case, target), envelope, target, case.reason)
        if case.reason is None:
            case = msgspec.structs.replace(case, reason="too_large", target=case.plan.park_to)
        return self._reference(case)

    def _reference(self, case: Case) -> Packed:
        """The letter without payload, to be parked: its coordinates say where the whole of it lies."""
        letter, target = case.letter, case.target or self._parked
        key = letter.key if letter.key is not None and len(letter.key) <= _REFERENCE_KEY_BYTES_MAX else None
        reference = Entry(target, key, None, _ours(case), letter.timestamp_ms, case.route.team, case.failed_at_ms)
        return Packed(_key(case, target), entries.encode(reference), target, case.reason)

    def _limit(self, topic: str) -> int:
        return min(self._bytes_max.get(topic, _RECORD_BYTES), self._bytes_max.get(self._changelog, _RECORD_BYTES))


def _ours(case: Case) -> Headers:
    letter = case.letter
    ours: Headers = [
        (names.ID, case.trace.id),
        (names.ATTEMPT, b"%d" % (case.attempt - 1 if case.reason else case.attempt)),
        (names.SOURCE, letter.source),
        (names.DUE_MS, b"%d" % case.due_at_ms),
        (names.POLICY, case.plan.name.encode()),
        (names.FIRST_FAILED_MS, b"%d" % case.first_failed_at_ms),
    ]
    if case.reason:
        ours.append((names.PARKED_REASON, case.reason.encode()))
    return ours


def _key(case: Case, target: str) -> bytes:
    letter, team = case.letter, case.route.team
    stem = entries.key_stem(letter.topic, letter.partition)
    ordered = case.ordered
    if ordered and letter.key is not None:
        stem = entries.order(team, letter.topic, letter.key) + stem
    return entries.key(case.due_at_ms, stem, letter.offset, entries.lane(team, letter.topic, target, ordered))
