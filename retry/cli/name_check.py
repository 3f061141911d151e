"""Names that an operator types, checked against the policy file."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from retry.cli.output import say
from retry.errors import PolicyFileInvalid
from retry.kafka import topics
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.policies.tasks import TEAM
from retry.policies.yaml_document import meant
from retry.settings import Settings


def check(settings: Settings, named: Iterable[tuple[str, str]], *, force: bool) -> None:
    """End the process with a message where there is a policy file that does not know a name.

    Args:
      named: (`team` | `topic` | `target`, name).
      force: only warn.

    Raises:
      PolicyFileInvalid: the file does not tell, and `force` is not given.
    """
    if settings.policies is None:
        return
    try:
        registry = load(settings.policies)
    except PolicyFileInvalid as invalid:
        if not force:
            raise
        say(f"names are not checked: {invalid}", err=True)
        return
    for scope, name in named:
        names = _known(registry, settings)[scope]
        if name not in names and not (scope == "topic" and (registry.reads(name) or registry.defines(name))):
            say(f"{settings.policies} knows no {_WORDS[scope]} {name}{meant(name, names)}", err=True)
            if not force:
                say("nothing was done; --force does it all the same", err=True)
                sys.exit(1)


_WORDS = {"team": "team", "topic": "dead-letter topic", "target": "target"}


def _known(registry: Registry, settings: Settings) -> dict[str, set[str]]:
    return {
        "team": {route.team for route in registry.routes()} | ({TEAM} if registry.tasks else set()),
        "topic": {*registry.exact, *(registry.tasks.topics if registry.tasks else ())},
        "target": registry.targets() | {topics.names(settings.app_id).parked},
    }
