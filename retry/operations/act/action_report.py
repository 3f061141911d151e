"""What commands and the console's API report of an action: its preview, how far it has come, and what became of each letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from retry.clock import iso
from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.action_records import CLOCKS_MS, Action, Order, Tally
from retry.delay_queue.ramp_records import Step
from retry.delivery.letter_changes import GONE
from retry.delivery.ramp import compute_upper_bound, count_recovering
from retry.errors import FilterInvalid
from retry.operations import waiting_entries
from retry.operations.act.audit import Audit, AuditLetter
from retry.operations.act.choose import Chosen
from retry.operations.act.overview import ActionOverview
from retry.operations.act.preview import Preview
from retry.operations.control_requests import ShardNumbers
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import EVERYTHING, AllOf, Filter, Not, Term, all_of, any_of
from retry.operations.listing import Cursor, Listing
from retry.settings import Settings

# The letters of an action, and what became of each: from the audit, from slices that are not worked off, from what waits.

# Not done under the key that the action names, and waiting under another one now.
MOVED, NOT_YET = "moved", "not_yet"


class MemberResult(NamedTuple):
    """One letter of an action, and when its result was written; None where there is none yet.

    `moved` and `not_yet` are results that the audit does not know.
    """

    at_ms: int | None
    shard: int
    told: AuditLetter


def list_member_results(settings: Settings, shards: ShardNumbers, about: ActionOverview) -> Iterator[MemberResult]:
    """List every letter of an action, those with a result first; raises `TopicsInvalid` where a topic cannot be read."""
    audit, since_ms, action_id = Audit(settings, shards.admin), about.action.asked_at_ms - CLOCKS_MS, about.id.hex()
    records = lambda: audit.read_records(since_ms, action_id)  # noqa: E731
    # Read twice, so that only letters that are gone are held in memory.
    gone = {told.letter for record in records() for told in record.letters if told.result == GONE} if about.tally.gone else set()
    elsewhere = _find_waiting(settings, gone) if gone else {}
    for record in records():
        for told in record.letters:
            now = elsewhere.get(told.letter) if told.result == GONE else None
            yield MemberResult(record.at_ms, record.shard, told if now is None else now)
    if about.left:
        yield from _not_yet(shards, about)


def _find_waiting(settings: Settings, letters: set[str]) -> dict[str, AuditLetter]:
    """Find which of these letters (`topic/partition/offset`) wait under another key now, by letter."""
    found = {}
    for _, table in waiting_entries.load_shard_tables(settings):
        for where, entry in waiting_entries.iterate_entries(table):
            if (name := where.letter) in letters:
                found[name] = AuditLetter(MOVED, name, where.due_at_ms, new_due_ms=where.due_at_ms, new_target=entry.destination)
    return found


def _not_yet(shards: ShardNumbers, about: ActionOverview) -> Iterator[MemberResult]:
    for shard, slices in enumerate(shards.list_records(action_records.build_slices_prefix(about.id))):
        for value in slices.values():
            for member in action_records.decode_slice(value).members:
                if returned_offsets.is_place(member.key):
                    told = AuditLetter(NOT_YET, parked=returned_offsets.describe_place(member.key, about.action.parking))
                else:
                    source = entry_keys.read_source(member.key)
                    told = AuditLetter(NOT_YET, source.letter, source.due_at_ms)
                yield MemberResult(None, shard, told)


# New failures while an action runs: letters like those that it is about, whose first failure was after it was asked for.

def build_similar_filter(action: Action, now_ms: int, *, groups: bool = False) -> Filter | None:
    """Build the filter of new failures like the letters of an action, in any state; None where its filter cannot be parsed."""
    try:
        letter_filter = remove_state_terms(parse(action.filter, groups=groups))
    except FilterInvalid:
        return None
    return all_of([letter_filter, parse(f"age:<{max(0, now_ms - action.asked_at_ms)}ms")])


def count_arrived(listing: Listing, action: Action, now_ms: int) -> int | None:
    """Count new failures that wait or are parked; None where the filter cannot be parsed. Raises as `Listing.find_letters`."""
    if (letter_filter := build_similar_filter(action, now_ms)) is None:
        return None
    found = listing.find_letters(letter_filter, Cursor())
    return sum(not action.teams or (letter.team or "") in action.teams for letter in found)


def remove_state_terms(letter_filter: Filter) -> Filter:
    """Remove what a filter says about states: a new failure waits, also where the filter is of parked letters.

    >>> str(remove_state_terms(parse("team:a -state:parked (state:waiting or key:1)")))
    'team:a'
    """
    if isinstance(letter_filter, Term):
        return EVERYTHING if letter_filter.field == "state" else letter_filter
    if isinstance(letter_filter, Not):
        return EVERYTHING if remove_state_terms(letter_filter.of) != letter_filter.of else letter_filter
    parts = [remove_state_terms(each) for each in letter_filter.of]
    if isinstance(letter_filter, AllOf):
        return all_of(parts)
    return EVERYTHING if EVERYTHING in parts else any_of(parts)


WAITS, OPEN, PASSED = "waits", "open", "passed"
_ORDER = {
    "retry": "the policy keeps the letters of one key in order: those that were sent meanwhile these follow, and do not overtake",
    "patch": "the policy keeps the letters of one key in order: they keep it",
    "edit": "the policy keeps the letters of one key in order: it keeps it",
}
_OVERTAKEN = "the policy keeps the letters of one key in order: later ones of the same key go without these from then on"
# Of each kind of group; the rest is told together.
GROUPS_SHOWN = 10
MEMBER_COLUMNS = ("letter", "result", "at", "shard", "due", "target", "new_due", "new_target", "before", "after")


def preview_object(found: Preview) -> dict[str, Any]:
    chosen, action = found.chosen, found.request.action
    groups = {name: dict(groups.most_common(GROUPS_SHOWN)) for name, groups in chosen.groups.items()}
    more = {
        name: {"values": len(found) - GROUPS_SHOWN, "letters": found.total() - sum(groups[name].values())}
        for name, found in chosen.groups.items() if len(found) > GROUPS_SHOWN
    }  # fmt: skip
    examples = [
        {"letter": each.letter, "due": iso(each.due_at_ms), "target": each.target, "diff": each.diff or None}
        for each in found.examples
    ]  # fmt: skip
    return {
        "kind": action.kind, "letters": chosen.count, "refused": dict(chosen.refused), "groups": groups, "more_groups": more,
        "examples": examples,
        "steps": None if action.ramp is None else action.ramp.steps, "silent": list(found.silent) if action.ramp else None,
        "ordered": chosen.ordered, "orders": order_objects(chosen),
    }  # fmt: skip


def order_told(kind: str) -> str:
    """Describe what an action of this kind does to the order of letters of one key, where the policy keeps that order."""
    return _ORDER.get(kind, _OVERTAKEN)


def order_objects(chosen: Chosen) -> list[dict[str, Any]]:
    """List the record keys with most letters whose order is kept, then how many letters of each topic have further keys."""
    named = Counter({order: n for order, n in chosen.orders.items() if order[1] is not None}).most_common(GROUPS_SHOWN)
    shown = [{"topic": topic, "key": (key or b"").decode(errors="replace"), "letters": n} for (topic, key), n in named]
    further: Counter[str] = Counter()
    for (topic, _), n in (chosen.orders - Counter(dict(named))).items():
        further[topic] += n
    return shown + [{"topic": topic, "key": None, "letters": n} for topic, n in further.most_common(GROUPS_SHOWN)]


def action_object(about: ActionOverview) -> dict[str, Any]:
    action = about.action
    return {
        "action": about.id.hex(), "kind": action.kind, "status": about.status, "by": action.by, "reason": action.reason,
        "asked": iso(action.asked_at_ms), "filter": action.filter, "target": action.target, "undoes": action.undoes,
        "policies": action.policies, "members": action.members, **tally_object(about.tally), "shards_left": about.left,
        "held": describe_order(about.held), "cancelled": describe_order(about.cancelled),
    }  # fmt: skip


def tally_object(tally: Tally) -> dict[str, Any]:
    return {"done": tally.done, "gone": tally.gone, "refused": tally.refused}


def ramp_object(about: ActionOverview) -> dict[str, Any] | None:
    if (ramp := about.action.ramp) is None:
        return None
    return {
        "keep": ramp.keep, "settle_ms": ramp.settle_ms, "silence_ms": ramp.silence_ms, "counts_from": about.step.since + 1,
        "passed_in_silence": about.step.silent, "steps": [_describe_step(about, n) for n in range(len(ramp.steps))],
    }  # fmt: skip


def member_row(member: MemberResult) -> dict[str, Any]:
    told = member.told
    row = (
        told.letter or told.parked, told.result, iso(member.at_ms), member.shard, iso(told.due_ms), told.target,
        iso(told.new_due_ms), told.new_target, told.before, told.after,
    )  # fmt: skip
    return dict(zip(MEMBER_COLUMNS, row, strict=True))


def _describe_step(about: ActionOverview, n: int) -> dict[str, Any]:
    """Describe a step of a ramp; its bound is that of all steps that count, up to this one."""
    counts, step = about.steps[n], about.step
    status = PASSED if n < step.step else WAITS if n > step.step else OPEN
    recovered, put = count_recovering(about.steps, step if n >= step.since else Step(), n)
    return {
        "step": n + 1, "status": "held" if status == OPEN and step.held_ms else status, "letters": counts.members,
        "worked": counts.worked, "put": counts.put, "sent": counts.sent, "failed": counts.failed,
        "passed": counts.recovered if status == PASSED else 0,
        "bound": round(compute_upper_bound(recovered, put), 4) if counts.put and put else None,
    }  # fmt: skip


def describe_order(order: Order | None) -> dict[str, Any] | None:
    return None if order is None else {"by": order.by, "at": iso(order.at_ms), "reason": order.reason}
