"""Names that a person types, held against the policy file."""

from __future__ import annotations

from retry.kafka import topics
from retry.policies.registry import Registry
from retry.policies.tasks import TEAM
from retry.policies.yaml_document import suggest_word
from retry.settings import Settings

_WORDS = {"team": "team", "topic": "dead-letter topic", "target": "target"}


def describe_unknown(registry: Registry, settings: Settings, scope: str, name: str) -> str:
    """Describe an unknown name, as `knows no team paymnets; did you mean payments?`; empty where the policy file knows it.

    Args:
      scope: `team`, `topic` or `target`.
    """
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
