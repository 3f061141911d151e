"""A preview: the members of an action, how wide it reaches, and examples of what it does. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import Member
from retry.delivery.acted_entry import ActedEntry, EntryActions, Refusal
from retry.errors import ActionRefused
from retry.kafka import topics
from retry.operations import reschedule_dry_run
from retry.operations.act.choose import Chosen, Meant, choose
from retry.operations.act.differences import differences
from retry.operations.act.request import Request
from retry.policies.registry import Registry
from retry.settings import Settings

_WORDS = {
    "named": "they are schedules, tasks or timers; cancel them where they came in",
    "parks": "they are about to be parked",
    "discarded": "they are to be discarded already; `retry actions undo` brings them back",
    "not_allowed": "their policy does not let them go there: add the topic to `allowed_targets`",
    "not_json": "they have a value that is no JSON",
    "unchanged": "they would stay as they are",
    "too_large": "they would be too large for their topic",
    "gone": "they do not wait there any more: they were sent, moved or parked",
}


class ExampleChange(NamedTuple):
    """What becomes of one member.

    Attributes:
      letter: `due/topic/partition/offset`, as `retry letters` prints it.
      due_at_ms: when it is due from then on.
      target: where it goes then.
      diff: of an edit or a patch.
    """

    letter: str
    due_at_ms: int
    target: str
    diff: list[str]


class Preview(NamedTuple):
    """What would be done, and what is done where the action is started.

    Attributes:
      at_ms: when the members were chosen.
    """

    request: Request
    chosen: Chosen
    at_ms: int
    examples: list[ExampleChange]

    def members(self) -> list[Iterator[Member]]:
        """By shard."""
        if self.request.edit is None:
            return self.request.members(self.chosen.keys, self.at_ms)
        (edited,) = self.chosen.examples
        member = self.request.member(edited.key, edited.envelope, self.at_ms)
        return [iter([member] if keys else []) for keys in self.chosen.keys]


def preview(settings: Settings, registry: Registry, request: Request, meant: Meant, now_ms: int) -> Preview:
    """Choose the members, as of `now_ms`.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
      ActionRefused: nothing like that can be done, as an edit of two letters.
    """
    judge = reschedule_dry_run.judge(settings, registry)
    actions = EntryActions(judge, topics.names(settings.app_id).discarded)
    state = request.state()
    if request.edit is not None:
        # What it makes is known of one letter alone, and that is looked at below.
        state = state._replace(action=msgspec.structs.replace(state.action, kind=action_records.RETRY))
    chosen = choose(settings, registry, meant, actions, state, now_ms)
    if request.edit is not None and chosen.count > 1:
        raise ActionRefused(f"{chosen.count:,} letters are like this, and an edit is of one: name it with --letter")
    return Preview(request, chosen, now_ms, [_change(actions, request, *each, now_ms) for each in chosen.examples])


def _change(actions: EntryActions, request: Request, key: bytes, envelope: bytes, now_ms: int) -> ExampleChange:
    acted = actions.acted(request.state(), request.member(key, envelope, now_ms), envelope, now_ms)
    if isinstance(acted, Refusal):
        raise ActionRefused(f"nothing can be done for these letters: {told(acted.reason)}")
    packed = acted.move.packed
    diff = _diff(acted) if request.action.kind in (action_records.EDIT, action_records.PATCH) else []
    return ExampleChange(str(entry_keys.source(key)), entry_keys.due_at_ms(packed.key), packed.destination, diff)


def _diff(acted: ActedEntry) -> list[str]:
    return differences(acted.move.entry, envelopes.decode(acted.move.packed.envelope))


def told(reason: str) -> str:
    """Why nothing is done for letters, in words."""
    return _WORDS.get(reason, reason)
