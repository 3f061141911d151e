"""What the API says of previews, actions and pauses, as JSON has it; pages show the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from retry.clock import iso
from retry.console.acting.previews import KeptPreview
from retry.delay_queue import control_records
from retry.delay_queue.action_records import UNDO
from retry.delay_queue.control_records import Pause
from retry.delivery.acted_entry import UNDO_MS
from retry.operations import pauses
from retry.operations.act.estimate import estimate
from retry.operations.act.options import UNASKED_MAX
from retry.operations.act.overview import ActionOverview
from retry.operations.act.preview import Preview
from retry.operations.act.preview import describe_reason as told_reason
from retry.operations.act.start import PREVIEW_MS_MAX
from retry.operations.act.told import action_object, order_told, preview_object, ramp_object
from retry.policies.registry import Registry


def kept_object(kept: KeptPreview, registry: Registry) -> dict[str, Any]:
    """A preview, whether it is worked out or not."""
    state = "started" if kept.is_started else "working" if not kept.done.is_set() else "refused" if kept.fault else "ready"
    told = {
        "id": kept.id, "state": state, "kind": kept.kind, "filter": kept.words, "made": iso(kept.made_ms),
        "expires": iso(kept.made_ms + PREVIEW_MS_MAX), "fault": str(kept.fault) if kept.fault else None, "notes": kept.notes,
    }  # fmt: skip
    return {**told, **(_found_object(kept.found, registry) if kept.found else {})}


def _found_object(found: Preview, registry: Registry) -> dict[str, Any]:
    chosen, action = found.chosen, found.request.action
    takes = estimate(found, registry, max(1, len(chosen.keys)))
    refused = [{"reason": why, "letters": n, "told": told_reason(why)} for why, n in chosen.refused.most_common()]
    return {
        **preview_object(found), "refused": refused, "target": action.target, "reason": action.reason, "teams": action.teams,
        "order": order_told(action.kind) if chosen.ordered else None,
        "takes_ms": takes.ms, "takes_by": takes.slowest, "keep": action.ramp.keep if action.ramp else None,
        "count_is_asked": chosen.count > UNASKED_MAX and action.kind != UNDO,
    }  # fmt: skip


def about_object(about: ActionOverview, now_ms: int) -> dict[str, Any]:
    """An action with its steps, and what can be ordered of it."""
    action, can = about.action, []
    if about.left and about.cancelled is None:
        can = ["resume" if about.held else "hold", "cancel"]
    until_ms = action.asked_at_ms + UNDO_MS if action.kind == "discard" and not about.left else None
    if until_ms is not None and until_ms > now_ms:
        can.append("undo")
    return {
        **action_object(about), "teams": action.teams, "ramp": ramp_object(about), "can": can,
        "undo_until": None if until_ms is None else iso(until_ms),
    }  # fmt: skip


def pause_objects(standing: Mapping[tuple[str, str], Pause]) -> list[dict[str, Any]]:
    """Pauses, the oldest first."""
    rows = sorted(standing.items(), key=lambda each: each[1].since_ms)
    return [
        {"scope": scope, "name": name or None, "told": pauses.describe_scope(scope, name), "since": iso(pause.since_ms),
         "until": None if pause.until_ms is None else iso(pause.until_ms), "reason": pause.reason or None, "by": pause.by or None}
        for (scope, name), pause in rows
    ]  # fmt: skip


def list_pauses(controls: Iterable[Mapping[bytes, bytes]], now_ms: int) -> dict[tuple[str, str], Pause]:
    """The pauses of all shards."""
    found: dict[tuple[str, str], Pause] = {}
    for shard in controls:
        found |= control_records.pauses(shard, now_ms)
    return found
