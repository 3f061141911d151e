"""Which letters an action is about: those that wait, from the changelog, and those that rest; by the code that workers run.

What is chosen is what is done: letters that come later are not among the members.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.entry_keys import HELD_LANES, UNDELIVERED
from retry.delivery.acted_entry import EntryActions
from retry.delivery.letter_changes import RETURNED, ActedLetter, Refusal
from retry.delivery.returned_letter import NOT_OURS, LetterReturns, record_digest
from retry.errors import ActionRefused
from retry.operations.act.letter_sources import ForeseenRows, LetterSource, WaitingRow
from retry.operations.act.request import Edit, Request
from retry.operations.found_letter import FoundLetter, make_waiting_letter
from retry.policies.registry import Registry
from retry.record import Record

EXAMPLES_MAX = 20
# Their keys are held in memory, at some hundred bytes each.
MEMBERS_MAX = 2_000_000
# Of which it is told how many letters each has.
ORDERS_MAX = 1_000
GROUPED_BY = ("team", "topic", "target", "exception", "reason", "age")
_TARGET = GROUPED_BY.index("target")
# Since the first failure, in milliseconds: whoever looks wants to know whether these are of now, of today or of last month.
_AGES_MS = (3_600_000, 86_400_000, 604_800_000, 2_592_000_000)
_AGES = ("under 1h", "1h to 1d", "1d to 7d", "7d to 30d", "over 30d")
_ORDERED = bytes([entry_keys.ORDERED])
# What is held is seen, and refused.
_UNSEEN = UNDELIVERED - HELD_LANES
Selects = Callable[[FoundLetter], bool]


class Example(NamedTuple):
    """One of the members that wait, with its envelope."""

    key: bytes
    envelope: bytes


class Chosen:
    """Members of an action, and what they have in common.

    Attributes:
      keys: of the members that wait, by shard.
      resting: places of the members that rest, and `parking` the names of their topics, by the hash of their ids.
      sources: of these, numbers for where they failed: equal ones for letters with the same coordinates.
      refused: letters that are meant and are no members, by why.
      groups: by team, topic, target, exception, reason and age, how many there are of each; parked ones are in their target.
      targets: how many members are sent to each topic, as far as that is known, where they are not redirected.
      ordered: members of topics whose policy keeps the letters of one key in order.
      orders: of these, how many have which record key of which topic; None stands for keys beyond `ORDERS_MAX`, and unknown ones.
    """

    def __init__(self, now_ms: int = 0, shards: int = 1) -> None:
        self.ordered, self._now_ms = 0, now_ms
        self.orders: Counter[tuple[str, bytes | None]] = Counter()
        self.keys: list[list[bytes]] = [[] for _ in range(shards)]
        self.resting: list[bytes] = []
        self.sources = array("q")
        self.parking: dict[str, str] = {}
        self.refused: Counter[str] = Counter()
        self.groups: dict[str, Counter[str]] = {name: Counter() for name in GROUPED_BY}
        self.targets: Counter[str] = Counter()
        self.examples: list[Example] = []

    @property
    def count(self) -> int:
        """Return how many members there are, waiting and resting."""
        return sum(map(len, self.keys)) + len(self.resting)

    def add_member(self, shard: int, key: bytes, envelope: bytes, letter: FoundLetter) -> None:
        """Add one waiting letter to the members of the action and to their counts; the first few become examples."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(Example(key, envelope))
        self.keys[shard].append(key)
        self.count_in(letter, key, letter.target)

    def add_foreseen(self, rows: ForeseenRows) -> None:
        """Add waiting letters of which the source already knows what the action makes of them."""
        for shard, key in rows.members:
            self.keys[shard].append(key)
        for names, letters in rows.groups.items():
            self._count_names(names, letters)
            self._count_target(names[_TARGET], letters)
        for order, letters in rows.orders.items():
            self._count_order(order, letters)
        self.refused += rows.refused

    def count_in(self, letter: FoundLetter, key: bytes, target: str | None) -> None:
        """Count another member by what it has in common with others.

        Args:
          key: of its entry; of a letter that rests, of the entry that it would be; empty where only a worker can tell.
          target: where it is sent; None where only a worker can tell.
        """
        self._count_target(target, 1)
        if key[:1] == _ORDERED:
            self._count_order((letter.topic or "", letter.key), 1)
        age = describe_age(letter.first_failed_ms, self._now_ms)
        self._count_names((letter.team, letter.topic, letter.target, letter.failure.exception, letter.reason, age), 1)

    def _count_target(self, target: str | None, letters: int) -> None:
        if target:
            self.targets[target] += letters

    def _count_order(self, order: tuple[str, bytes | None], letters: int) -> None:
        self.ordered += letters
        self.orders[order if order in self.orders or len(self.orders) < ORDERS_MAX else (order[0], None)] += letters

    def _count_names(self, names: tuple[str | None, ...], letters: int) -> None:
        for groups, name in zip(self.groups.values(), names, strict=True):
            groups[name or ""] += letters


def describe_age(failed_ms: int | None, now_ms: int) -> str:
    """Describe in words how long ago a letter failed first; return an empty text where that is not known."""
    return "" if failed_ms is None else _AGES[bisect_right(_AGES_MS, now_ms - failed_ms)]


def choose(
    letters: Iterable[WaitingRow | ForeseenRows], shards: int, registry: Registry, selects: Selects, actions: EntryActions,
    state: ActionState, now_ms: int,
) -> Chosen:  # fmt: skip
    """Choose the waiting letters that `selects` accepts, except those for which a worker with these policies would do nothing.

    Args:
      state: of the action that is asked for; of an edit, of a retry in its place: what it makes is known of one letter alone.

    Raises:
      TopicsInvalid: the changelog cannot be read.
      ActionRefused: they are too many for one action.
    """
    chosen, codec = Chosen(now_ms, shards), actions.redecider.entry_builder.codec
    for row in letters:
        if isinstance(row, ForeseenRows):
            chosen.add_foreseen(row)
            refuse_too_many(chosen)
            continue
        shard, key, envelope = row
        if entry_keys.lane_of(key) in _UNSEEN:
            continue
        letter = make_waiting_letter(entry_keys.read_source(key), codec.decode_to_show(key, envelope), registry, "")
        if not selects(letter):
            continue
        result = actions.act_on_entry(state, Member(key, now_ms), envelope, now_ms)
        if isinstance(result, Refusal):
            chosen.refused[result.reason] += 1
        else:
            chosen.add_member(shard, key, envelope, letter)
            refuse_too_many(chosen)
    return chosen


def refuse_too_many(chosen: Chosen) -> None:
    """Raise `ActionRefused` where there are too many members for one action."""
    if chosen.count > MEMBERS_MAX:
        raise ActionRefused(f"more than {MEMBERS_MAX:,} letters are meant; ask for fewer at a time, by topic or team")


# Which letters that rest an action is about: records of parking topics, and of the topic of discarded letters.
#
# They are held against the code that workers run, so that what a worker would refuse is counted and left alone. What was
# returned before is known from the changelog.


class RestingExample(NamedTuple):
    """One of the members.

    Attributes:
      returned: what becomes of it; None where only a worker can tell, which fetches it whole, and of what is not ours.
      unpatched: of a patch, what would become of it without.
      is_ours: whether this service put it there.
    """

    name: str
    record: Record
    returned: ActedLetter | None
    unpatched: ActedLetter | None
    is_ours: bool = True


def choose_resting(
    letters: LetterSource, selects: Selects, returns: LetterReturns, state: ActionState, now_ms: int, chosen: Chosen
) -> list[RestingExample]:
    """Add letters that rest and are meant, less those for which a worker would do nothing; some of them in full.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
      ActionRefused: they are too many for one action.
    """
    examples = list[RestingExample]()
    for letter in filter(selects, letters.iterate_resting()):
        place = letters.returned.resolve_place(letter.place)
        chosen.parking[place.topic.hex()] = letter.place.topic
        is_returned = letters.returned.is_record_returned(letter.place)
        result = Refusal(RETURNED) if is_returned else _result(letter, returns, state, now_ms)
        if isinstance(result, Refusal):
            chosen.refused[result.reason] += 1
            continue
        chosen.resting.append(place.encode())
        chosen.sources.append(hash(letter.source or letter.place))
        key, target = (b"", None) if result is None else (result.key, result.entry.destination)
        chosen.count_in(letter, key, target)
        refuse_too_many(chosen)
        if len(examples) < EXAMPLES_MAX:
            unpatched = _find_unpatched(letter, returns, state, now_ms)
            examples.append(RestingExample(letter.name, letter.record, result, unpatched, letter.is_ours))
    return examples


def _find_unpatched(letter: FoundLetter, returns: LetterReturns, state: ActionState, now_ms: int) -> ActedLetter | None:
    if state.action.kind != action_records.PATCH:
        return None
    as_it_is = state._replace(action=msgspec.structs.replace(state.action, kind=action_records.RETRY))
    result = _result(letter, returns, as_it_is, now_ms)
    return None if isinstance(result, Refusal) else result


def _result(
    letter: FoundLetter, returns: LetterReturns, state: ActionState, now_ms: int
) -> ActedLetter | Refusal | None:
    record = letter.record
    if state.action.kind == action_records.ERASE:
        return None
    if not letter.is_ours:
        # It is only marked, and nothing is made of it.
        return None if state.action.kind == action_records.DISCARD else Refusal(NOT_OURS)
    if (refused := returns.find_refusal(record)) is not None:
        return refused
    if letter.is_reference:
        return None
    return returns.return_letter(state, record, record, now_ms, now_ms)


# An edit of the one letter that rests and is meant: the member that asks for it, and what a worker makes of that.

class EditedParkedLetter(NamedTuple):
    """An edit of one letter that rests: its member, and the letter as it would be returned without the edit and with it."""

    member: Member
    before: ActedLetter
    after: ActedLetter


def edit_resting(
    request: Request, edit: Edit, place: bytes, example: RestingExample, returns: LetterReturns, now_ms: int
) -> EditedParkedLetter | Refusal:
    """Edit a letter that rests as it will be once it is returned; or return why a worker would do nothing.

    The `place` is how a member names it. Raises `ActionRefused` where the letter cannot be edited like this.
    """
    before = example.returned
    if before is None:
        return Refusal("reference")
    edited = returns.codec.encode(before.key, edit.apply_to(before.entry))
    member = Member(place, now_ms, record_digest(example.record, returns.codec), edited)
    after = returns.return_letter(request.build_initial_state(), example.record, example.record, now_ms, now_ms, edited)
    return after if isinstance(after, Refusal) else EditedParkedLetter(member, before, after)
