"""Which letters an action is about: the changelog, a partition at a time, and the code that workers run.

What is chosen is what is done: letters that come later are not among the members.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from retry.delay_queue import entry_keys
from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.entry_keys import HELD_LANES, UNDELIVERED
from retry.delivery.acted_entry import EntryActions, Refusal
from retry.errors import ActionRefused
from retry.operations import waiting_entries
from retry.operations.letters.found_letter import FoundLetter, make_waiting_letter
from retry.policies.registry import Registry
from retry.settings import Settings

EXAMPLES_MAX = 20
# Their keys are held in memory, at some hundred bytes each.
MEMBERS_MAX = 2_000_000
# Of which it is told how many letters each has.
ORDERS_MAX = 1_000
GROUPED_BY = ("team", "topic", "target", "exception", "reason", "age")
# Since the first failure, in milliseconds: whoever looks wants to know whether these are of now, of today or of last month.
_AGES = ((3_600_000, "under 1h"), (86_400_000, "1h to 1d"), (604_800_000, "1d to 7d"), (2_592_000_000, "7d to 30d"))
_ORDERED = bytes([entry_keys.ORDERED])
# What is held is seen, and refused.
_UNSEEN = UNDELIVERED - HELD_LANES
Meant = Callable[[FoundLetter], bool]


class Example(NamedTuple):
    """One of the members.

    Attributes:
      envelope: as it waits.
    """

    key: bytes
    envelope: bytes


class Chosen:
    """Members of an action, and what they have in common.

    Attributes:
      keys: of the members that wait, by shard.
      resting: places of the members that rest, and `parking` the names of their topics, by the hash of their ids.
      sources: of these, numbers for where they failed: equal ones for letters with the same coordinates.
      refused: letters that are meant and are no members, by why.
      groups: by team, topic, target, exception, reason and age, how many members there are of each.
      examples: the first members.
      ordered: members of topics whose policy keeps the letters of one key in order.
      orders: of these, how many have which record key of which topic; None stands for keys beyond `ORDERS_MAX`, and unknown ones.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.ordered, self._now_ms = 0, now_ms
        self.orders: Counter[tuple[str, bytes | None]] = Counter()
        self.keys: list[list[bytes]] = []
        self.resting: list[bytes] = []
        self.sources = array("q")
        self.parking: dict[str, str] = {}
        self.refused: Counter[str] = Counter()
        self.groups: dict[str, Counter[str]] = {name: Counter() for name in GROUPED_BY}
        self.examples: list[Example] = []

    @property
    def count(self) -> int:
        """Return how many members there are, waiting and resting."""
        return sum(map(len, self.keys)) + len(self.resting)

    def add_member(self, key: bytes, envelope: bytes, letter: FoundLetter) -> None:
        """Another member, of the shard that was begun last."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(Example(key, envelope))
        self.count_in(letter, key)
        self.keys[-1].append(key)

    def count_in(self, letter: FoundLetter, key: bytes) -> None:
        """Count another member by what it has in common with others.

        Args:
          key: of its entry; of a letter that rests, of the entry that it would be; empty where only a worker can tell.
        """
        if key[:1] == _ORDERED:
            self.ordered += 1
            order = letter.topic or "", letter.key
            self.orders[order if order in self.orders or len(self.orders) < ORDERS_MAX else (order[0], None)] += 1
        age = _age(letter.first_failed_ms, self._now_ms)
        names = letter.team, letter.topic, letter.target, letter.failure.exception, letter.reason, age
        for groups, name in zip(self.groups.values(), names, strict=True):
            groups[name or ""] += 1


def _age(failed_ms: int | None, now_ms: int) -> str:
    if failed_ms is None:
        return ""
    return next((words for most_ms, words in _AGES if now_ms - failed_ms < most_ms), "over 30d")


def choose(
    settings: Settings, registry: Registry, meant: Meant, actions: EntryActions, state: ActionState, now_ms: int,
    *, waits: bool = True,
) -> Chosen:
    """The waiting letters that are meant, less those for which a worker with these policies would do nothing.

    Args:
      state: of the action that is asked for; of an edit, of a retry in its place: what it makes is known of one letter alone.

    Raises:
      TopicsInvalid: the changelog cannot be read.
      ActionRefused: they are too many for one action.
    """
    chosen, codec = Chosen(now_ms), actions.judge.packer.codec
    for _, table in waiting_entries.load_shard_tables(settings):
        chosen.keys.append([])
        if not waits:
            continue
        for key, envelope in waiting_entries.scan_rows(table):
            if entry_keys.lane_of(key) in _UNSEEN:
                continue
            letter = make_waiting_letter(entry_keys.source(key), codec.decode_to_show(key, envelope), registry, "")
            if not meant(letter):
                continue
            result = actions.act_on_entry(state, Member(key, now_ms), envelope, now_ms)
            if isinstance(result, Refusal):
                chosen.refused[result.reason] += 1
            else:
                chosen.add_member(key, envelope, letter)
        refuse_too_many(chosen)
    return chosen


def refuse_too_many(chosen: Chosen) -> None:
    """Look at how many members there are.

    Raises:
      ActionRefused: they are too many for one action.
    """
    if chosen.count > MEMBERS_MAX:
        raise ActionRefused(f"more than {MEMBERS_MAX:,} letters are meant; ask for fewer at a time, by topic or team")
