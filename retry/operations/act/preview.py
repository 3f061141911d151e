"""A preview: the members of an action, how wide it reaches, and examples of what it does. Nothing is written."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import orjson

from backoff.rate_limit import Limit
from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import REDIRECT, RETRY, Member
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.ramp_records import Ramp
from retry.delivery.acted_entry import EntryActions
from retry.delivery.foreseen_acts import ForeseenActs
from retry.delivery.letter_changes import ActedLetter, Refusal
from retry.delivery.returned_letter import LetterReturns
from retry.errors import ActionRefused
from retry.kafka import topics
from retry.operations import waiting_entries
from retry.operations.act.choose import (
    EXAMPLES_MAX,
    Chosen,
    EditedParkedLetter,
    RestingExample,
    Selects,
    choose,
    choose_resting,
    edit_resting,
)
from retry.operations.act.letter_sources import LetterSource
from retry.operations.act.request import Edit, Request
from retry.policies.registry import Registry
from retry.settings import Settings

# What an edit or a patch changes in a letter, as lines of a unified diff.

def diff_letters(before: Entry, after: Entry, shown: Callable[[bytes], bytes | None] | None = None) -> list[str]:
    """List the lines of headers and of the value that differ between two entries, with two equal lines around each difference.

    JSON is laid out, so that each field has a line of its own.

    Args:
      shown: tells the JSON of values that are framed for a schema registry.
    """
    former, new = (list(_format_entry(each, shown)) for each in (before, after))
    return list(difflib.unified_diff(former, new, "before", "after", lineterm="", n=2))


def _format_entry(entry: Entry, shown: Callable[[bytes], bytes | None] | None) -> Iterator[str]:
    for name, value in entry.headers:
        yield f"{name}: {_format_value(value)}"
    if entry.value is None:
        yield "no value"
        return
    value = (shown(entry.value) if shown else None) or entry.value
    try:
        yield from orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2).decode().splitlines()
    except orjson.JSONDecodeError:
        yield from _format_value(value).splitlines()


def _format_value(raw: bytes | None) -> str:
    if raw is None:
        return "null"
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"{len(raw)} bytes, hexadecimal: {raw.hex()}"


_WORDS = {
    "named": "they are schedules, tasks or timers; cancel them where they came in",
    "parks": "they are about to be parked",
    "discarded": "they are to be discarded already; `retry actions undo` brings them back",
    "not_allowed": "their policy does not let them go there: add the topic to `allowed_targets`",
    "not_json": "they have a value that is no JSON",
    "unchanged": "they would stay as they are",
    "too_large": "they would be too large for their topic",
    "refused": "the topic of discarded letters refuses them as they were; the worker's log says why",
    "returned": "they were returned before",
    "parked": "they are parked, and cannot be parked there",
    "reference": "only a reference to them was parked: patch them, or return them and edit them while they wait",
    "erased": "they were erased, and nothing is left of them",
    "superseded": "they are former versions of letters that were changed",
    "not_a_letter": "they are parked schedules, tasks or timers",
    "not_ours": "this service did not park them where they lie; they can be discarded, and nothing else",
    "no_target": "their policy has no topic for them to be retried in",
    "source_gone": "the whole of them is gone from where they failed, and only a reference was parked",
    "source_unreadable": "their records could not be read: the right to read them is missing, or no broker answered",
    "null_value": "they are nulls, which cancel other letters",
    "sealed": "they are sealed under a key that is not here: see RETRY_ENCRYPTION_KEYS",
    "gone": "they do not wait there any more: they were sent, moved or parked",
}


class ExampleChange(NamedTuple):
    """The change that an action makes to one member.

    Attributes:
      letter: `due/topic/partition/offset`, as `retry letters` prints it.
      diff: what an edit or a patch changes, as lines of a unified diff.
    """

    letter: str
    due_at_ms: int
    target: str
    diff: list[str]


class Preview(NamedTuple):
    """An action that is not started, and its members: what is previewed is what is done once it is started.

    Attributes:
      at_ms: when the members were chosen.
      silent: of a ramp, the targets for which the policy file names no consumer group.
      edited: the member, where the action edits a letter that rests.
    """

    request: Request
    chosen: Chosen
    at_ms: int
    examples: list[ExampleChange]
    silent: Sequence[str] = ()
    codec: EnvelopeCodec = PLAIN
    edited: Member | None = None

    def with_ramp(self, ramp: Ramp | None, groups: Mapping[str, set[str]]) -> Preview:
        """Add a ramp, and note the targets that no group reads; `groups` has by consumer group the topics that it reads."""
        targets = {self.request.action.target} if self.request.action.target else set(self.chosen.targets)
        silent = sorted(targets.difference(*groups.values()))
        request = self.request._replace(action=msgspec.structs.replace(self.request.action, ramp=ramp))
        return self._replace(request=request, silent=silent)

    def iterate_resting(self) -> Iterator[Member]:
        """Yield the members of the action that are parked or discarded; of an edit, only the edited letter."""
        if self.edited is not None:
            return iter([self.edited])
        return self.request.iterate_resting(self.chosen.resting, self.chosen.sources, self.at_ms)

    def list_members(self) -> list[Iterator[Member]]:
        """Return the members that wait, one iterator for each shard."""
        if self.request.edit is None or self.edited is not None:
            return self.request.build_members(self.chosen.keys, self.at_ms)
        (edited,) = self.chosen.examples
        member = self.request.build_member(edited.key, edited.envelope, self.at_ms, self.codec)
        return [iter([member] if keys else []) for keys in self.chosen.keys]


def preview(
    settings: Settings, registry: Registry, request: Request, selects: Selects, now_ms: int, letters: LetterSource
) -> Preview:
    """Choose the members, as of `now_ms`.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
      ActionRefused: records cannot be read, or nothing like that can be done, as an edit of two letters.
    """
    redecider = waiting_entries.make_redecider(settings, registry)
    actions = EntryActions(redecider, topics.build_topic_names(settings.app_id).discarded)
    state = request.build_initial_state()
    waiting = letters.iterate_waiting(ForeseenActs(actions, state).foresee)
    if request.edit is not None:
        # What it makes is known of one letter alone, and that is looked at below.
        state = state._replace(action=msgspec.structs.replace(state.action, kind=action_records.RETRY))
    chosen = choose(waiting, letters.shards, registry, selects, actions, state, now_ms)
    examples, edited = list[ExampleChange](), None
    returns = LetterReturns(redecider, actions.discarded, letters.shards)
    at_rest = choose_resting(letters, selects, returns, state, now_ms, chosen)
    if letters.gone:
        chosen.refused["gone"] += letters.gone
    if request.edit is not None and chosen.count > 1:
        raise ActionRefused(f"{chosen.count:,} letters are like this, and an edit is of one: name it with --letter")
    if request.edit is not None and at_rest:
        made = edit_resting(request, request.edit, chosen.resting[0], at_rest[0], returns, now_ms)
        if isinstance(made, Refusal):
            raise ActionRefused(f"nothing can be done for this letter: {describe_reason(made.reason)}")
        edited, examples = made.member, [_edit_example(request.edit, at_rest[0].name, made)]
    else:
        examples = [_return_example(request, each, now_ms) for each in at_rest]
    examples = [*(_build_example(actions, request, *each, now_ms) for each in chosen.examples), *examples][:EXAMPLES_MAX]
    teams = sorted(chosen.groups["team"])
    request = request._replace(action=msgspec.structs.replace(request.action, teams=teams))
    return Preview(request, chosen, now_ms, examples, codec=redecider.entry_builder.codec, edited=edited)


def _edit_example(edit: Edit, name: str, made: EditedParkedLetter) -> ExampleChange:
    diff = diff_letters(made.before.entry, made.after.entry, edit.framing.decode_json if edit.framing else None)
    return ExampleChange(name, made.member.due_at_ms, made.after.entry.destination, diff)


def _return_example(request: Request, example: RestingExample, now_ms: int) -> ExampleChange:
    if not example.is_ours:
        return ExampleChange(example.name, now_ms, "nowhere: it stays where others wrote it, and is not listed any more", [])
    if example.returned is None:
        return ExampleChange(example.name, now_ms, "where its policy says, once it is fetched whole", [])
    due_at_ms = entry_keys.due_at_ms(example.returned.key)
    if request.due.at_ms is not None:
        due_at_ms = request.due.at_ms
    diff: list[str] = []
    if example.unpatched is not None:
        diff = diff_letters(example.unpatched.entry, example.returned.entry)
    return ExampleChange(example.name, due_at_ms + request.due.postpone_ms, example.returned.entry.destination, diff)


def _build_example(actions: EntryActions, request: Request, key: bytes, envelope: bytes, now_ms: int) -> ExampleChange:
    member = request.build_member(key, envelope, now_ms, actions.redecider.entry_builder.codec)
    acted = actions.act_on_entry(request.build_initial_state(), member, envelope, now_ms)
    if isinstance(acted, Refusal):
        raise ActionRefused(f"nothing can be done for these letters: {describe_reason(acted.reason)}")
    diff = _diff(acted, request) if request.action.kind in (action_records.EDIT, action_records.PATCH) else []
    return ExampleChange(str(entry_keys.read_source(key)), entry_keys.due_at_ms(acted.key), acted.entry.destination, diff)


def _diff(acted: ActedLetter, request: Request) -> list[str]:
    framing = request.edit.framing if request.edit else None
    return diff_letters(acted.before or acted.entry, acted.entry, framing.decode_json if framing else None)


def describe_reason(reason: str) -> str:
    """Describe in words why nothing is done for letters; return the reason itself where no words are known for it."""
    return _WORDS.get(reason, reason)


# When an action will be done at the earliest: by when its letters are due, by rate limits, and by what its steps wait for.

# What a shard does in a second; see docs/evidence.
_LETTERS_S = 3_000


class Estimate(NamedTuple):
    """How long it takes at least, and what of all that holds it up takes longest, in words."""

    ms: int
    slowest: str


def estimate(found: Preview, registry: Registry, shards: int) -> Estimate:
    """Estimate how long an action takes if every letter recovers and nothing else is sent to the same targets."""
    count, request = found.chosen.count, found.request
    worked = Estimate(count * 1_000 // (_LETTERS_S * shards), f"workers act on some {_LETTERS_S:,} letters/s in each shard")
    sent = max((worked, *_estimate_limits(found, registry)), key=lambda each: each.ms)
    waits = [sent]
    if request.due.at_ms is not None:
        waits.append(Estimate(max(0, request.due.at_ms - found.at_ms), "they are due at a later time"))
    waits.append(Estimate(request.due.spread_ms + request.due.postpone_ms, "they are spread or postponed"))
    if (ramp := request.action.ramp) is not None:
        each_ms = max(ramp.settle_ms, ramp.silence_ms) if found.silent else ramp.settle_ms
        waits.append(Estimate(each_ms * len(ramp.steps), f"{len(ramp.steps)} steps are judged after {each_ms / 1_000:g} s each"))
    return Estimate(sum(each.ms for each in waits), max(waits, key=lambda each: each.ms).slowest)


def _estimate_limits(found: Preview, registry: Registry) -> Iterator[Estimate]:
    """Estimate the duration by each rate limit, of a target or a team, that holds for the letters that are sent."""
    action, groups = found.request.action, found.chosen.groups
    if action.kind not in (RETRY, REDIRECT):
        return
    targets: Mapping[str, int] = {action.target: found.chosen.count} if action.target else found.chosen.targets
    for target, count in targets.items():
        if (limit := registry.target_limits.get(target)) is not None:
            yield _make_estimate(f"target {target}", count, [limit])
    for team, count in groups["team"].items():
        if limits := registry.team_limits.get(team):
            yield _make_estimate(f"team {team}", count, limits)


def _make_estimate(whose: str, count: int, limits: Sequence[Limit]) -> Estimate:
    slowest = max(limits, key=lambda limit: limit.period_ms / limit.tokens)
    return Estimate(count * slowest.period_ms // slowest.tokens, f"{whose} may have {slowest.format_limit()}")
