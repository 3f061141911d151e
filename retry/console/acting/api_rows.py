"""What the replica has, as the API says it in JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from retry.clock import iso
from retry.console.replica.rows import AuditRow, Freshness, Group, LetterRow, Now, Scope
from retry.operations.letters.found_letter import FoundLetter


def describe_letter(row: LetterRow) -> dict[str, Any]:
    """A letter without headers and payload."""
    source = None if row.topic is None else f"{row.topic}/{row.partition}/{row.offset}"
    return {
        "name": row.name, "state": row.state, "kind": row.kind, "team": row.team, "letter": source, "target": row.target,
        "key": None if row.key is None else row.key.decode("utf-8", "replace"), "key_base64": _base64(row.key),
        "attempt": row.attempt, "due": _iso(row.due_at_ms), "failed": _iso(row.failed_ms),
        "first_failed": _iso(row.first_failed_ms), "label": row.label,
        "exception": row.exception, "cause": row.cause, "message": row.message, "fingerprint": row.fingerprint,
        "group": row.group, "policy": row.policy, "reason": row.reason, "id": row.lineage, "consumer_group": row.consumer_group,
        "bytes": row.size_bytes, "behind": row.behind, "action": row.action,
    }  # fmt: skip


def payload(found: FoundLetter) -> dict[str, Any]:
    """Headers and payload of a letter: for those alone who may see them."""
    headers = [[name, _base64(value)] for name, value in found.headers]
    return {"value_base64": _base64(found.value), "headers": headers}


def describe_group(row: Group) -> dict[str, Any]:
    """A kind of failures."""
    return {
        "id": row.id, "cause": row.cause, "message": row.message, "waiting": row.waiting, "parked": row.parked,
        "trend": list(row.trend), "first_seen": _iso(row.first_ms), "last_seen": _iso(row.last_ms), "sent": row.sent,
        "came_back": row.came_back, "pending": row.pending, "owner": row.owner, "note": row.note, "link": row.link,
        "resolved": _iso(row.resolved_at_ms),
        "merged": list(row.merged), "topics": list(row.topics), "teams": list(row.teams),
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
        {"what": each.what, "scope": each.scope, "name": each.name, "since": iso(each.since_ms), "until": _iso(each.until_ms),
         "reason": each.reason, "by": each.by, "letters": each.letters}
        for each in found.held
    ]  # fmt: skip
    return {
        "as_of": iso(found.as_of_ms), "freshness": freshness(fresh, scope), "waiting": found.waiting, "parked": found.parked,
        "discarded": found.discarded, "named": found.named, "new_groups": found.new_groups, "overdue": found.overdue,
        "lateness_ms": found.lateness_ms, "near_retention": found.near_retention, "held": held,
        "due": [{"from": iso(bar.from_ms), "to": iso(bar.to_ms), "letters": bar.count} for bar in found.due],
        "recovery": [
            {"attempt": each.attempt, "sent": each.sent, "came_back": each.came_back, "pending": each.pending}
            for each in found.recovery
        ],
        "shards": [
            {"shard": each.shard, "next_offset": each.next_offset, "end_offset": each.end_offset}
            for each in found.shards
        ],
        "workers": [
            {"name": each.name or None, "host": each.host or None, "shards": each.shards, "began": iso(each.began_ms),
             "heard": iso(each.at_ms), "silent": each.is_silent, "ended": each.has_ended}
            for each in found.workers
        ],
        "breakers": [
            {"target": each.target, "state": each.state, "why": each.why or None, "since": _iso(each.since_ms),
             "workers": each.workers, "letters": each.letters}
            for each in found.breakers
        ],
        "failed_by_hour": list(found.failed_by_hour), "retried_by_hour": list(found.retried_by_hour),
    }  # fmt: skip


def freshness(fresh: Freshness, scope: Scope) -> Mapping[str, Any]:
    """How old the data is; what is wrong may name a topic, and is told to who sees every team."""
    return {
        "state": fresh.state, "progress": fresh.progress, "as_of": _iso(fresh.as_of_ms), "lag_records": fresh.lag_records,
        "trouble": (fresh.trouble or None) if scope is None else None,
    }  # fmt: skip


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()
