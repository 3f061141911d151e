"""What rescheduling would do, computed from the changelog and the policy file; nothing is written."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from retry.delay_queue import entry_keys
from retry.delay_queue.control_records import Reschedule
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelope_codec import make_codec
from retry.delay_queue.table.interface import Table
from retry.delivery.redecide import Move, Redecider
from retry.intake.attempts import LineageTopic
from retry.intake.build_entry import EntryBuilder
from retry.kafka import client_config, topics
from retry.operations import waiting_entries
from retry.policies.registry import Registry
from retry.settings import Settings

_EXAMPLES = 3
# Nothing is moved.
_NOWHERE = LineageTopic("", 1)

Group = tuple[str, str]


class Example(NamedTuple):
    """One entry that would move: what it is, when it would be due, and where it would go."""

    was: Source
    due_at_ms: int
    target: str
    reason: str | None


class Rehearsed(NamedTuple):
    """The changes that rescheduling would make to entries that wait.

    Attributes:
      counts: entries by team and new policy, then by what changes.
      examples: a few of each kind of change.
      left_alone: entries that are not asked for, parked already, or sealed under a key that is not given.
    """

    counts: dict[Group, Counter[Move]]
    examples: dict[Move, list[Example]]
    left_alone: int


def redecider(settings: Settings, registry: Registry) -> Redecider:
    """Decide on entries as a worker with these policies would; raises `TopicsInvalid` where topics are not as they should be."""
    admin, names = client_config.admin(settings), topics.build_topic_names(settings.app_id)
    limits = topics.limits(admin, topics.check(admin, settings.app_id), registry.list_targets())
    return Redecider(registry, EntryBuilder(names.changelog, names.parked, limits, make_codec(settings)), _NOWHERE)


def rehearse_request(table: Table, redecider: Redecider, request: Reschedule) -> Rehearsed:
    """Compute what `request` would do to the entries of a table."""
    counts: dict[Group, Counter[Move]] = {}
    examples: dict[Move, list[Example]] = {}
    left_alone = 0
    for key, envelope in waiting_entries.scan_rows(table):
        anew = redecider.redecide_entry(key, envelope, request)
        if anew is None:
            left_alone += 1
            continue
        counts.setdefault((anew.entry.team, anew.policy), Counter())[anew.move] += 1
        some = examples.setdefault(anew.move, [])
        if anew.move is not Move.UNCHANGED and len(some) < _EXAMPLES:
            packed = anew.packed
            some.append(Example(entry_keys.source(key), entry_keys.due_at_ms(packed.key), packed.destination, packed.reason))
    return Rehearsed(counts, {move: some for move, some in examples.items() if some}, left_alone)
