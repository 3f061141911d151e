"""Names that an operator types, checked against the policy file."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from retry.cli.output import say
from retry.errors import PolicyFileInvalid
from retry.operations.known_names import describe_unknown
from retry.policies.policy_file import load
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
        if wrong := describe_unknown(registry, settings, scope, name):
            say(f"{settings.policies} {wrong}", err=True)
            if not force:
                say("nothing was done; --force does it all the same", err=True)
                sys.exit(1)
