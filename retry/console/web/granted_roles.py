"""Roles as files give them: `payments:operator,orders:viewer reveal:payments`; `*` is every team.

A team that is named with no role in it but under `reveal:` gives nothing: who may not see a letter may not see its payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from retry.console.web.rights import Role

_TEAM = r"(?:\*|[A-Za-z0-9._-]{1,100})"
_ROLES = re.compile(rf"{_TEAM}:(?:viewer|operator|admin)(?:,{_TEAM}:(?:viewer|operator|admin))*")
_REVEAL = re.compile(rf"reveal:({_TEAM}(?:,{_TEAM})*)")


class Granted(NamedTuple):
    """Roles by team, and teams whose payloads may be seen."""

    roles: Mapping[str, Role]
    reveal: frozenset[str] = frozenset()

    def format_grant(self) -> str:
        """Format the grant as a line of a file has it: `payments:operator reveal:payments`."""
        roles = ",".join(f"{team}:{role}" for team, role in sorted(self.roles.items()))
        return f"{roles} reveal:{','.join(sorted(self.reveal))}" if self.reveal else roles


def read(words: list[str]) -> Granted | None:
    """Parse one or two words, as `payments:operator` and `reveal:payments`; None where they are not of this form."""
    if not 1 <= len(words) <= 2 or not _ROLES.fullmatch(words[0]):
        return None
    reveal = _REVEAL.fullmatch(words[1]) if len(words) == 2 else None
    if len(words) == 2 and reveal is None:
        return None
    roles: dict[str, Role] = {}
    for each in words[0].split(","):
        team, _, role = each.partition(":")
        roles[team] = _higher(roles.get(team), Role(role))
    return Granted(roles, frozenset(reveal[1].split(",")) if reveal else frozenset())


def combine_grants(parts: Iterable[Granted]) -> Granted:
    """All that several grants allow: of each team the highest role."""
    roles: dict[str, Role] = {}
    reveal: set[str] = set()
    for part in parts:
        reveal |= part.reveal
        for team, role in part.roles.items():
            roles[team] = _higher(roles.get(team), role)
    return Granted(roles, frozenset(reveal))


def _higher(held: Role | None, role: Role) -> Role:
    return held if held is not None and held.covers(role) else role
