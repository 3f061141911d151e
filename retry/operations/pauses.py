"""Pauses: deliveries that are held back, asked of every shard at once."""

from __future__ import annotations

from collections.abc import Mapping

from retry.clock import iso
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause
from retry.errors import ActionRefused
from retry.kafka import topics
from retry.operations.control_requests import ShardNumbers
from retry.policies.registry import Registry
from retry.policies.tasks import TEAM
from retry.policies.yaml_document import suggest_word
from retry.settings import Settings

# Names that a person types, held against the policy file.

_WORDS = {"team": "team", "topic": "dead-letter topic", "target": "target"}


def describe_unknown(registry: Registry, settings: Settings, scope: str, name: str) -> str:
    """Describe an unknown name, as `knows no team paymnets; did you mean payments?`; empty where the policy file knows it."""
    names = _list_known(registry, settings)[scope]
    if name in names or (scope == "topic" and (registry.reads_topic(name) or registry.defines(name))):
        return ""
    return f"knows no {_WORDS[scope]} {name}{suggest_word(name, names)}"


def _list_known(registry: Registry, settings: Settings) -> dict[str, set[str]]:
    return {
        "team": {route.team for route in registry.list_routes()} | ({TEAM} if registry.tasks else set()),
        "topic": {*registry.exact, *(registry.tasks.topics if registry.tasks else ())},
        "target": registry.list_targets() | {topics.build_topic_names(settings.app_id).parked},
    }


def pause(shards: ShardNumbers, scope: str, name: str, asked: Pause) -> None:
    """Hold back what is named, until it is resumed or the pause ends by itself; takes the place of a former pause of the same.

    Raises:
      ActionRefused: it would be over already.
      TransactionFailed: it is not known to be there; asking again does no harm.
      RightMissing: this user may not write there.
    """
    if asked.until_ms is not None and asked.until_ms <= shards.now_ms():
        raise ActionRefused(f"{iso(asked.until_ms)} is over by the brokers' time; nothing was paused")
    shards.put_control_record(control_records.pause_key(scope, name), control_records.encode(asked))


def resume(shards: ShardNumbers, scope: str, name: str) -> None:
    """End the pause of exactly this scope and name; raises as `pause`, but for `ActionRefused`."""
    shards.put_control_record(control_records.pause_key(scope, name), None)


def describe_pauses(standing: Mapping[tuple[str, str], Pause]) -> list[dict[str, str | None]]:
    """Pauses as JSON has them, the oldest first; `told` says in words what each holds back."""
    rows = sorted(standing.items(), key=lambda each: each[1].since_ms)
    return [
        {"scope": scope, "name": name or None, "told": describe_scope(scope, name), "since": iso(pause.since_ms),
         "until": iso(pause.until_ms), "reason": pause.reason or None, "by": pause.by or None}
        for (scope, name), pause in rows
    ]  # fmt: skip


def describe_scope(scope: str, name: str) -> str:
    """Describe in words what a pause holds back.

    >>> describe_scope("all", ""), describe_scope("topic", "orders.DLT"), describe_scope("team", "payments")
    ('everything', 'dead-letter topic orders.DLT', 'team payments')
    """
    return {"all": "everything", "topic": f"dead-letter topic {name}"}.get(scope, f"{scope} {name}")
