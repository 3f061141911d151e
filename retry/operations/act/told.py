"""An action, its preview and its letters as JSON has them, for the commands and for the console's API."""

from __future__ import annotations

from collections import Counter
from typing import Any

from retry.clock import iso
from retry.delay_queue.action_records import Order, Tally
from retry.delay_queue.ramp_records import Step
from retry.delivery.ramp import recovering, upper_bound
from retry.operations.act.choose import Chosen
from retry.operations.act.members import MemberResult
from retry.operations.act.overview import ActionOverview
from retry.operations.act.preview import Preview

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
    examples = [
        {"letter": each.letter, "due": iso(each.due_at_ms), "target": each.target, "diff": each.diff or None}
        for each in found.examples
    ]  # fmt: skip
    return {
        "kind": action.kind, "letters": chosen.count, "refused": dict(chosen.refused), "groups": groups, "examples": examples,
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
    """Who asked for what, and how far it has come."""
    action = about.action
    return {
        "action": about.id.hex(), "kind": action.kind, "status": about.status, "by": action.by, "reason": action.reason,
        "asked": iso(action.asked_at_ms), "filter": action.filter, "target": action.target, "undoes": action.undoes,
        "policies": action.policies, "members": action.members, **tally_object(about.tally), "shards_left": about.left,
        "held": _describe_order(about.held), "cancelled": _describe_order(about.cancelled),
    }  # fmt: skip


def tally_object(tally: Tally) -> dict[str, Any]:
    """Return the counts of an action's letters by what became of them."""
    return {"done": tally.done, "gone": tally.gone, "refused": tally.refused}


def ramp_object(about: ActionOverview) -> dict[str, Any] | None:
    """A ramp; None where the action is none."""
    if (ramp := about.action.ramp) is None:
        return None
    return {
        "keep": ramp.keep, "settle_ms": ramp.settle_ms, "silence_ms": ramp.silence_ms, "counts_from": about.step.since + 1,
        "passed_in_silence": about.step.silent, "steps": [_describe_step(about, n) for n in range(len(ramp.steps))],
    }  # fmt: skip


def member_row(member: MemberResult) -> dict[str, Any]:
    """One letter of an action, by the columns above."""
    told = member.told
    row = (
        told.letter or told.parked, told.result, _iso(member.at_ms), member.shard, _iso(told.due_ms), told.target,
        _iso(told.new_due_ms), told.new_target, told.before, told.after,
    )  # fmt: skip
    return dict(zip(MEMBER_COLUMNS, row, strict=True))


def _describe_step(about: ActionOverview, n: int) -> dict[str, Any]:
    """One step; its bound is that of all steps that count, up to this one."""
    counts, step = about.steps[n], about.step
    status = PASSED if n < step.step else WAITS if n > step.step else OPEN
    recovered, put = recovering(about.steps, step if n >= step.since else Step(), n)
    return {
        "step": n + 1, "status": "held" if status == OPEN and step.held_ms else status, "letters": counts.members,
        "worked": counts.worked, "put": counts.put, "sent": counts.sent, "failed": counts.failed,
        "passed": counts.recovered if status == PASSED else 0,
        "bound": round(upper_bound(recovered, put), 4) if counts.put and put else None,
    }  # fmt: skip


def _describe_order(order: Order | None) -> dict[str, Any] | None:
    return None if order is None else {"by": order.by, "at": iso(order.at_ms), "reason": order.reason}


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
