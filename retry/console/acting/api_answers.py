"""Answers of the API: how bodies and fields are read, and letters, previews, actions and pauses as JSON; pages show the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from retry.clock import iso
from retry.console.acting.previews import KeptPreview
from retry.console.reading.action_outcomes import ActionOutcome
from retry.console.rows import AuditRow, Freshness, Group, LetterRow, Now, Scope
from retry.console.web import masks
from retry.console.web.app import body_of, demand_found
from retry.console.web.masks import MaskedParts
from retry.console.web.rights import Sight
from retry.delay_queue.action_records import UNDO
from retry.delivery.acted_entry import UNDO_MS
from retry.operations.act.action_report import action_object, order_told, preview_object, ramp_object
from retry.operations.act.options import UNASKED_MAX
from retry.operations.act.overview import ActionOverview
from retry.operations.act.preview import Preview, describe_reason, estimate
from retry.operations.act.start import PREVIEW_MS_MAX
from retry.operations.found_letter import FoundLetter
from retry.policies.masks import KEY, MESSAGE
from retry.policies.registry import Registry
from retry.record import decode_text, encode_base64, encode_base64_headers

_LIMIT, _LIMIT_MAX = 100, 1_000
Body = TypeVar("Body", bound=msgspec.Struct)
_Found = TypeVar("_Found")
# Written into the changelog, where every worker keeps it.
Words = Annotated[str, msgspec.Meta(max_length=1_000)]


def read(request: Request, decode: Callable[[bytes], Body]) -> Body:
    """Decode the JSON that was sent, an empty object where nothing was; raises HTTPException 400 where it is something else."""
    try:
        return decode(body_of(request) or b"{}")
    except msgspec.MsgspecError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from None


def limit_of(given: dict[str, str]) -> int:
    """Return how many rows a page is to have; raises HTTPException 400 where that is not from 1 to 1,000."""
    text = given.get("limit", str(_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _LIMIT_MAX):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"limit: it is not from 1 to {_LIMIT_MAX:,}")
    return int(text)


def demand(found: _Found | None, what: str) -> _Found:
    """Return what was found; raises HTTPException 404 where it is not there, or is another team's."""
    return demand_found(found, f"there is no such {what}, or it is no more")


def respond_json(body: Any, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")


# What the replica has, as the API says it in JSON.

def describe_letter(row: LetterRow, masked: MaskedParts) -> dict[str, Any]:
    """Describe a letter as JSON without headers and payload; null stands in place of what is masked."""
    key, message = (None if KEY in masked.others else row.key), (None if MESSAGE in masked.others else row.message)
    return {
        "name": row.name, "state": row.state, "kind": row.kind, "team": row.team, "letter": row.letter, "target": row.target,
        "key": decode_text(key), "key_base64": encode_base64(key),
        "attempt": row.attempt, "due": iso(row.due_at_ms), "failed": iso(row.failed_ms),
        "first_failed": iso(row.first_failed_ms), "label": row.label,
        "exception": row.exception, "cause": row.cause, "message": message, "fingerprint": row.fingerprint,
        "group": row.group, "policy": row.policy, "reason": row.reason, "id": row.lineage, "consumer_group": row.consumer_group,
        "bytes": row.size_bytes, "behind": row.behind, "action": row.action,
        "masked": masked.list_all(),
    }  # fmt: skip


def describe_payload(found: FoundLetter, masked: MaskedParts, framed_json: bytes | None) -> dict[str, Any]:
    """Describe headers and payload of a letter as JSON, only for viewers who may see them.

    Args:
      masked: where fields are, the value is JSON, or null where there is none in which they could be found; masked headers
        are null.
      framed_json: what its schema makes of a framed value.
    """
    value = found.value
    if masked.paths and value is not None:
        text = masks.mask_json(framed_json or value, masked.paths)
        value = None if text is None else text.encode()
    headers = [(name, None if masked.hides_header(name, held, found.failure) else held) for name, held in found.headers]
    return {"value_base64": encode_base64(value), "headers": encode_base64_headers(headers)}


def describe_group(row: Group, *, is_message_masked: bool) -> dict[str, Any]:
    return {
        "id": row.id, "cause": row.cause, "message": None if is_message_masked else row.message,
        "waiting": row.waiting, "parked": row.parked,
        "trend": list(row.trend), "first_seen": iso(row.first_ms), "last_seen": iso(row.last_ms), "sent": row.sent,
        "came_back": row.came_back, "pending": row.pending, "owner": row.owner, "note": row.note, "link": row.link,
        "resolved": iso(row.resolved_at_ms), "state": row.state,
        "merged": list(row.merged), "topics": list(row.topics), "teams": list(row.teams),
        "consumer_groups": list(row.consumer_groups),
    }  # fmt: skip


def build_audit_object(row: AuditRow) -> dict[str, Any]:
    return {
        "at": iso(row.at_ms), "action": row.action or None, "kind": row.kind, "by": row.by, "reason": row.reason,
        "shard": None if row.shard < 0 else row.shard, "letters": row.letters, "done": row.done, "results": row.results,
        "examples": list(row.examples),
    }  # fmt: skip


def build_now_object(found: Now, fresh: Freshness, scope: Scope) -> dict[str, Any]:
    """Build the JSON object of `/api/now`; `scope` decides only whether it says what is wrong with the replica."""
    held = [
        {"what": each.what, "scope": each.scope, "name": each.name, "since": iso(each.since_ms), "until": iso(each.until_ms),
         "reason": each.reason, "by": each.by, "letters": each.letters}
        for each in found.held
    ]  # fmt: skip
    return {
        "as_of": iso(found.as_of_ms), "freshness": freshness(fresh, scope), "waiting": found.waiting, "parked": found.parked,
        "discarded": found.discarded, "named": found.named, "new_groups": found.new_groups, "overdue": found.overdue,
        "lateness_ms": found.lateness_ms, "near_retention": found.near_retention, "held": held,
        "due": [{"from": iso(bar.from_ms), "to": iso(bar.to_ms), "letters": bar.count} for bar in found.due],
        "recovery": [asdict(each) for each in found.recovery], "shards": [asdict(each) for each in found.shards],
        "workers": [
            {"name": each.name or None, "host": each.host or None, "shards": each.shards, "began": iso(each.began_ms),
             "heard": iso(each.at_ms), "silent": each.is_silent, "ended": each.has_ended}
            for each in found.workers
        ],
        "breakers": [
            {"target": each.target, "state": each.state, "why": each.why or None, "since": iso(each.since_ms),
             "workers": each.workers, "letters": each.letters}
            for each in found.breakers
        ],
        "failed_by_hour": list(found.failed_by_hour), "retried_by_hour": list(found.retried_by_hour),
    }  # fmt: skip


def freshness(fresh: Freshness, scope: Scope) -> Mapping[str, Any]:
    """Describe as JSON how old the data is.

    The field `trouble` may name a topic, so only viewers who see every team get it.
    """
    return {
        "state": fresh.state, "progress": fresh.progress, "as_of": iso(fresh.as_of_ms), "lag_records": fresh.lag_records,
        "trouble": (fresh.trouble or None) if scope is None else None, "remaining_ms": fresh.remaining_ms,
    }  # fmt: skip


# What the API says of previews, actions and pauses, as JSON has it; pages show the same.

def kept_object(kept: KeptPreview, registry: Registry, sight: Sight) -> dict[str, Any]:
    state = "started" if kept.is_started else "working" if not kept.done.is_set() else "refused" if kept.fault else "ready"
    told = {
        "id": kept.id, "state": state, "kind": kept.kind, "filter": kept.words, "made": iso(kept.made_ms),
        "expires": iso(kept.made_ms + PREVIEW_MS_MAX), "fault": str(kept.fault) if kept.fault else None, "notes": kept.notes,
        "letters_read": kept.letters_read,
    }  # fmt: skip
    return {**told, **(_found_object(kept.found, registry, sight) if kept.found else {})}


def _found_object(found: Preview, registry: Registry, sight: Sight) -> dict[str, Any]:
    chosen, action = found.chosen, found.request.action
    takes = estimate(found, registry, max(1, len(chosen.keys)))
    refused = [{"reason": why, "letters": n, "told": describe_reason(why)} for why, n in chosen.refused.most_common()]
    told = preview_object(found)
    if masks.hides(registry, sight, KEY, action.teams):
        told["orders"] = [{**order, "key": None} for order in told["orders"]]
    return {
        **told, "refused": refused, "target": action.target, "reason": action.reason, "teams": action.teams,
        "order": order_told(action.kind) if chosen.ordered else None,
        "takes_ms": takes.ms, "takes_by": takes.slowest, "keep": action.ramp.keep if action.ramp else None,
        "count_is_asked": chosen.count > UNASKED_MAX and action.kind != UNDO,
    }  # fmt: skip


def outcome_object(outcome: ActionOutcome | None) -> dict[str, Any] | None:
    """Describe what became of the letters that an action has sent, and of those of each step of its ramp."""
    if outcome is None:
        return None
    total, *steps = [{**each._asdict(), "recovered": each.recovered} for each in (outcome.total, *outcome.steps)]
    return {**total, "steps": steps}


def about_object(about: ActionOverview, now_ms: int) -> dict[str, Any]:
    action, can = about.action, []
    if about.left and about.cancelled is None:
        can = ["resume" if about.held else "hold", "cancel"]
    until_ms = action.asked_at_ms + UNDO_MS if action.kind == "discard" and not about.left else None
    if until_ms is not None and until_ms > now_ms:
        can.append("undo")
    return {**action_object(about), "teams": action.teams, "ramp": ramp_object(about), "can": can, "undo_until": iso(until_ms)}
