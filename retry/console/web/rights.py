"""Who may see and do what: roles by team, and the right to reveal payloads.

A route says with `needs` which role it takes, of any team; what is about one team asks `demand_role` for the role in that team.
Nothing of a team that a viewer has no role in exists for this viewer: it is 404, and not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from starlette.exceptions import HTTPException

from retry.console.rows import Scope
from retry.http_server import token_file
from retry.policies.schema import Role as Role

EVERY_TEAM = "*"
ANY_FIELD = "*"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class Sight(NamedTuple):
    """The teams that a viewer may see and act for; parts of pages are made once for all viewers with the same.

    Attributes:
      scope: the teams whose letters they may see; None is all.
      acts: the teams for which they may act; None is all, also what belongs to no known team.
      admins: the teams whose admins they are; None is all.
    """

    scope: Scope
    acts: Scope
    admins: Scope = frozenset()

    def may_act(self) -> bool:
        return self.acts is None or bool(self.acts)

    def sees_team(self, team: str) -> bool:
        return self.scope is None or team in self.scope

    def sees(self, masked: Role, team: str | None) -> bool:
        """Whether somebody sees what is masked up to this role in a team; what is masked for admins nobody sees."""
        held = {Role.VIEWER: self.acts, Role.OPERATOR: self.admins, Role.ADMIN: frozenset[str]()}[masked]
        return held is None or team in held

    def may_act_for(self, teams: Collection[str]) -> bool:
        """Whether they may act for all of these teams; an empty name is no known team, no name at all is every team."""
        return self.acts is None or (bool(teams) and self.acts.issuperset(teams))


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who has signed in.

    Attributes:
      name: as audit and notes have it.
      roles: by team; `*` is every team, also of letters that are of no known team.
      reveal: teams whose payloads this viewer may see, and may filter by; `*` is every team.
    """

    name: str
    roles: Mapping[str, Role] = field(default_factory=dict)
    reveal: frozenset[str] = frozenset()

    def scope(self) -> Scope:
        """Return the teams whose letters the viewer may see; None means all teams."""
        return None if EVERY_TEAM in self.roles else frozenset(self.roles)

    def sight(self) -> Sight:
        return Sight(self.scope(), self._list_teams(Role.OPERATOR), self._list_teams(Role.ADMIN))

    def _list_teams(self, least: Role) -> Scope:
        """List the teams in which this viewer has that role or more; None is all."""
        if self.may(least, EVERY_TEAM):
            return None
        return frozenset(team for team, role in self.roles.items() if team != EVERY_TEAM and role.covers(least))

    def may(self, role: Role, team: str | None) -> bool:
        """Whether this viewer may do for a team what the role may; None is no known team."""
        held = [self.roles[name] for name in (EVERY_TEAM, team) if name is not None and name in self.roles]
        return any(each.covers(role) for each in held)

    def may_anywhere(self, role: Role) -> bool:
        return any(held.covers(role) for held in self.roles.values())

    def may_reveal(self, team: str | None) -> bool:
        """Whether this viewer may see payloads of a team, whose letters this viewer may see."""
        return self.may(Role.VIEWER, team) and (EVERY_TEAM in self.reveal or team in self.reveal)

    def reveals_all(self) -> bool:
        """Whether this viewer may see the payload of every letter that this viewer sees: so a filter may ask for payloads."""
        return EVERY_TEAM in self.reveal or (EVERY_TEAM not in self.roles and set(self.roles) <= self.reveal)


# Who looks where no sign-in is configured, which is on loopback alone.
LOCAL = Viewer("local", {EVERY_TEAM: Role.ADMIN}, frozenset({EVERY_TEAM}))


def needs(role: Role | None, *fields: str, repeated: Collection[str] = ()) -> Callable[[_Endpoint], _Endpoint]:
    """Say of an endpoint which role in any team it takes, and which fields it knows; None is open to who has not signed in.

    An endpoint without this does not start. Fields are of the address, or of the form where one is posted: each once, but for
    those that are `repeated`. Any other is refused, so that what is misspelt does not show or do more than was meant;
    `ANY_FIELD` is for what others call with fields of their own.
    """

    def mark(endpoint: _Endpoint) -> _Endpoint:
        endpoint.needs, endpoint.fields, endpoint.repeated = role, fields, repeated  # type: ignore[attr-defined]
        return endpoint

    return mark


def demand_role(viewer: Viewer, role: Role, team: str | None) -> None:
    """Raise HTTPException where a viewer lacks a role in a team: 404 where nothing of it may be seen, 403 where seeing is all."""
    if not viewer.may(Role.VIEWER, team):
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such thing, or it is no more")
    if not viewer.may(role, team):
        raise HTTPException(HTTPStatus.FORBIDDEN, f"this takes the role {role} in team {team or 'of letters of no known team'}")


# Roles as files give them: `payments:operator,orders:viewer reveal:payments`; `*` is every team.
#
# A team that is named with no role in it but under `reveal:` gives nothing: who may not see a letter may not see its payload.

_TEAM = r"(?:\*|[A-Za-z0-9._-]{1,100})"
_ROLE = f"(?:{'|'.join(Role)})"
_ROLES = re.compile(rf"{_TEAM}:{_ROLE}(?:,{_TEAM}:{_ROLE})*")
_REVEAL = re.compile(rf"reveal:({_TEAM}(?:,{_TEAM})*)")


class Granted(NamedTuple):
    """Roles by team, and teams whose payloads may be seen."""

    roles: Mapping[str, Role]
    reveal: frozenset[str] = frozenset()

    def format_grant(self) -> str:
        """Format the grant as a line of a file has it: `payments:operator reveal:payments`."""
        roles = ",".join(f"{team}:{role}" for team, role in sorted(self.roles.items()))
        return f"{roles} reveal:{','.join(sorted(self.reveal))}" if self.reveal else roles


def read_roles(words: list[str]) -> Granted | None:
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
    """Combine several grants into one that allows all of them: for each team the highest role."""
    roles: dict[str, Role] = {}
    reveal: set[str] = set()
    for part in parts:
        reveal |= part.reveal
        for team, role in part.roles.items():
            roles[team] = _higher(roles.get(team), role)
    return Granted(roles, frozenset(reveal))


def _higher(held: Role | None, role: Role) -> Role:
    return held if held is not None and held.covers(role) else role


# Who may sign in with a token: a file with a line for each, of `retry console token`; see `retry.http_server.token_file`.
#
#     ada 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 payments:operator,orders:viewer reveal:payments
#
# Whoever has signed in with a token that is gone from the file, or has ended, is signed out.

TOKEN_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


def _parse_grants(words: list[str]) -> Granted:
    """Read the roles that a line gives; raises ValueError where they are none."""
    if (found := read_roles(words)) is None:
        raise ValueError(words)
    return found


_KIND = token_file.FileKind("RETRY_CONSOLE_TOKENS", "retry console token", TOKEN_NAME, _parse_grants)


class Tokens(token_file.TokenFile[Granted]):
    """The tokens that may sign in; raises as `TokenFile`."""

    def __init__(self, path: Path) -> None:
        super().__init__(_KIND, path)


def viewer_of(token: token_file.Token[Granted]) -> Viewer:
    return Viewer(token.name, token.granted.roles, token.granted.reveal)


def make_token(name: str, granted: Granted, until_ms: int | None = None) -> tuple[str, str]:
    return token_file.make_token(name, granted.format_grant().split(), until_ms)
