"""A waiting entry, decided anew under the policies of today. Pure: the same question always has the same answer.

The letter is read back out of the entry. What it says of its failure is still in its headers, how often it was tried and
when it first failed in ours. Its own wish for a time was used up when it was taken in, and is not known any more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import parse_integer, parse_moment, read
from retry.delay_queue import entry_keys, ramp_records
from retry.delay_queue.control_records import Reschedule
from retry.delay_queue.entry_keys import NAMED, Source
from retry.delay_queue.envelopes import Entry
from retry.errors import SealUnopened
from retry.intake import attempts
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.intake.build_entry import CANCELLED, BuiltEntry, EntryBuilder, decide
from retry.policies.registry import Registry
from retry.record import CREATE_TIME, Header, Record

_ATTEMPT_DIGITS_MAX = 10
# Whether another entry has a key.
Taken = Callable[[bytes], bool]


def say_untaken(_key: bytes) -> bool:
    """Say that no entry has a key, as far as anybody knows who only looks."""
    return False


class Move(Enum):
    UNCHANGED = "unchanged"
    EARLIER = "earlier"
    LATER = "later"
    RETARGETED = "other target"
    PARKED = "to be parked"
    REGROUPED = "other team or order"


class Redecision(NamedTuple):
    """An entry and its new decision; where nothing changes, `packed` has the same key.

    Attributes:
      policy: by which plan, as the header `retry-policy` has it.
      shard: the only one in which it may wait; None where it stays in its own.
    """

    key: bytes
    entry: Entry
    history: LetterHistory
    packed: BuiltEntry
    policy: str
    move: Move
    shard: int | None = None

    @property
    def loses_value(self) -> bool:
        """Whether the letter is parked by reference, which is to what it was before anything changed it."""
        return self.packed.entry.value is None and self.entry.value is not None


class Redecider:
    def __init__(self, registry: Registry, entry_builder: EntryBuilder, lineages: attempts.LineageTopic, shards: int = 1) -> None:
        self.digest, self.lineages, self._shards = registry.digest, lineages, shards
        self.registry, self.entry_builder = registry, entry_builder

    def redecide_entry(
        self, key: bytes, envelope: bytes, request: Reschedule, taken: Taken = say_untaken, *, waits_in: int | None = None
    ) -> Redecision | None:
        """Decide one entry anew; None where it is not asked for, parks, failed after the request, or cannot be opened here.

        One that was acted on is decided anew only where that is asked for, too. Raises EntryUnreadable.

        Args:
          taken: keys under which it must not be moved.
          waits_in: the shard in which it waits; None where it is not to be moved, whatever is decided.
        """
        if key[0] == NAMED:
            # No policy has made it; whoever asked for it may ask anew.
            return None
        where = entry_keys.read_source(key)
        if request.topic not in (None, where.topic):
            return None
        try:
            entry = self.entry_builder.codec.decode(key, envelope)
        except SealUnopened:
            return None
        if request.team not in (None, entry.team) or (trace := read_letter_history(entry)) is None:
            return None
        mark = next((value or b"" for name, value in entry.headers if name == names.ACTION), None)
        if mark is not None and not (request.acted and self._moves_again(where.topic, entry, trace, mark)):
            # An operator has decided about this one.
            return None
        if _failed_at_ms(entry, trace) > request.since_ms:
            return None
        anew = self._anew(key, entry, trace, request.since_ms, None, taken, waits_in)
        if mark is None:
            return anew
        return None if anew.loses_value else self.set_headers(anew, (names.ACTION, mark))

    def _moves_again(self, topic: str, entry: Entry, trace: LetterHistory, mark: bytes) -> bool:
        """Whether one that was acted on may be decided anew: not if it is discarded, counted by a ramp, or was returned."""
        last = max(plan.policy.max_attempts for plan in self.registry.route(topic).plans())
        is_undoable = any(name == names.ACTION_BEFORE for name, _ in entry.headers)
        return not is_undoable and ramp_records.read_mark(mark) is None and (trace.made or 0) < last

    def set_headers(self, move: Redecision, *headers: Header) -> Redecision | None:
        packed = move.packed
        entry = msgspec.structs.replace(packed.entry, headers=names.set_in(packed.entry.headers, *headers))
        envelope = self.entry_builder.codec.encode(packed.key, entry)
        packed = msgspec.structs.replace(packed, envelope=envelope, entry=entry)
        return move._replace(packed=packed) if self.entry_builder.is_taken_by_topics(envelope, entry) else None

    def park_entry(
        self, key: bytes, envelope: bytes, now_ms: int, reason: str = CANCELLED, taken: Taken = say_untaken
    ) -> Redecision | None:
        """Decide an entry anew so that it parks, whatever its policy says; None where the entry parks already.

        Raises SealUnopened, EntryUnreadable.
        """
        entry = self.entry_builder.codec.decode(key, envelope)
        trace = read_letter_history(entry)
        return None if trace is None else self._anew(key, entry, trace, now_ms, reason, taken)

    def may_go_to(self, topic: str, target: str) -> bool:
        """Whether the policy of a dead-letter topic lets its letters be retried in this topic, which parks none."""
        route = self.registry.route(topic)
        allowed = route.retry_targets() if route.allowed_targets is None else route.allowed_targets
        return target in allowed and target not in self.registry.parking()

    def _anew(
        self, key: bytes, entry: Entry, trace: LetterHistory, now_ms: int, unfit: str | None, taken: Taken,
        waits_in: int | None = None,
    ) -> Redecision:  # fmt: skip
        where = entry_keys.read_source(key)
        route = self.registry.route(where.topic)
        letter = read(_rebuild_letter(where, entry), route.aliases)
        # The topic may be another team's by now, which counts what fails from here on.
        bound = msgspec.structs.replace(trace, id=attempts.format_retry_id(trace.number, route.team))
        decided = decide(route, letter, bound, now_ms, unfit, failed_at_ms=_failed_at_ms(entry, trace))
        decided = msgspec.structs.replace(decided, incarnation=entry_keys.read_incarnation(key))
        by_key = waits_in is not None and decided.plan.waits_by_key and decided.reason is None and letter.key is not None
        shard = entry_keys.find_shard(letter.key or b"", self._shards) if by_key else None
        packed = self.entry_builder.pack(decided)
        free = entry_keys.find_untaken_key(packed.key, lambda each: each != key and taken(each))
        if free != packed.key:
            due_ms = entry_keys.due_at_ms(free)
            packed = self.entry_builder.pack(msgspec.structs.replace(decided, due_at_ms=due_ms, decided_at_ms=due_ms))
        return Redecision(key, entry, trace, packed, decided.plan.name, _classify_move(key, entry, packed), shard)


def _rebuild_letter(where: Source, entry: Entry) -> Record:
    """The dead letter that an entry was made from, as a consumer would have it; without headers of ours."""
    headers = [header for header in entry.headers if header[0] not in names.OURS]
    place = where.topic, where.partition, where.offset
    return Record(place, entry.key, entry.value, headers, (CREATE_TIME, entry.timestamp_ms or 0))


def read_letter_history(entry: Entry) -> LetterHistory | None:
    """Read a letter's past, as known at intake, from its entry; None where the entry does not tell it, or parks."""
    ours = {name: value for name, value in entry.headers if name in names.OURS}
    if names.PARKED_REASON in ours:
        return None
    id_, attempt = ours.get(names.ID), parse_integer(ours.get(names.ATTEMPT), _ATTEMPT_DIGITS_MAX)
    if id_ is None or not attempt:
        return None
    return LetterHistory(id_, attempts.parse_retry_id(id_), 0, attempt - 1, parse_moment(ours.get(names.FIRST_FAILED_MS)), False)


def _failed_at_ms(entry: Entry, trace: LetterHistory) -> int:
    if entry.failed_at_ms is not None:
        return entry.failed_at_ms
    return max(trace.first_failed_ms or 0, entry.timestamp_ms or 0)


def _classify_move(key: bytes, entry: Entry, packed: BuiltEntry) -> Move:
    if packed.key == key:
        return Move.UNCHANGED
    if packed.reason is not None:
        return Move.PARKED
    if packed.destination != entry.destination:
        return Move.RETARGETED
    was_ms, due_ms = entry_keys.due_at_ms(key), entry_keys.due_at_ms(packed.key)
    if due_ms != was_ms:
        return Move.EARLIER if due_ms < was_ms else Move.LATER
    return Move.REGROUPED
