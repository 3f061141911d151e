"""The policy file → a registry. Checked whole before anything of it is used, each mistake with file, line and path.

A key is looked for in the rule that matches, then in the topic, the team, `defaults`, and the built-in defaults.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from types import MappingProxyType

from msgspec import UNSET, UnsetType

from backoff import Policy, PolicyInvalid
from backoff.parse import policy as parse_policy
from retry.errors import PolicyFileInvalid
from retry.policies.check import Placed, checked
from retry.policies.document import Document, read
from retry.policies.names import pattern_body
from retry.policies.registry import Plan, Registry, Route, Rule, default_route
from retry.policies.shape import File, Overrides, Pattern, Team, Timing, shaped

# Thousands of topics fit; more is not a policy file.
_BYTES_MAX = 1 << 20


def load(path: Path | str) -> Registry:
    """The registry of a policy file.

    Raises:
      PolicyFileInvalid: the file cannot be read, or `parse` refuses it.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
        # What is too long may end inside a character: `parse` shall say that it is too long.
        text = content.decode("utf-8-sig", "strict" if len(content) <= _BYTES_MAX else "replace")
    except OSError as error:
        raise PolicyFileInvalid(str(path), 1, "file", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyFileInvalid(str(path), line, "file", "is not UTF-8 text") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Registry:
    """The registry of a policy file's text; `name` is what messages call the file.

    Raises:
      PolicyFileInvalid: the text is not a policy file, or says what must not be done.
    """
    if len(text.encode(errors="replace")) > _BYTES_MAX:
        raise PolicyFileInvalid(name, 1, "file", f"is larger than {_BYTES_MAX:,} bytes")
    document = read(text, name)
    whole = shaped(document, {} if document.value is None else document.value, File, "")
    defaults = _timed(document, whole.defaults, "defaults", default_route().usual.policy)
    teams = {team: _team(document, team, section) for team, section in whole.teams.items()}
    exact: dict[str, Route] = {}
    patterns = []
    for each in checked(document, teams):
        route = _route(document, each, teams[each.team], defaults)
        if isinstance(each.topic.dead_letters, Pattern):
            patterns.append((re.compile(pattern_body(each.written)), route))
        else:
            exact[each.written] = route
    return Registry(MappingProxyType(exact), tuple(patterns), default_route(defaults))


def _team(document: Document, team: str, section: object) -> Team:
    if not team.strip() or not team.isprintable() or len(team) > 100:
        document.refuse(f"teams.{team}", "a team's name is 1 to 100 printable characters")
    return shaped(document, section, Team, f"teams.{team}")


def _route(document: Document, each: Placed, team: Team, defaults: Policy) -> Route:
    name, topic = f"{each.team}/{each.written}", each.topic
    usual = Plan(defaults, park=False, retry_to=None, park_to=None, name=name)
    usual = _overlaid(document, usual, team, f"teams.{each.team}")
    usual = _overlaid(document, usual, topic, each.path)
    rules = tuple(
        Rule(
            glob=rule.exception,
            matches=re.compile(fnmatch.translate(rule.exception)),
            plan=_overlaid(document, usual, rule, f"{each.path}.rules[{n}]", f"{name}#{n + 1}", rule.park),
        )
        for n, rule in enumerate(topic.rules)
    )
    allowed = None if topic.allowed_targets is UNSET else frozenset(topic.allowed_targets)
    return Route(each.team, name, usual, rules, allowed)


def _overlaid(
    document: Document, plan: Plan, overrides: Overrides, path: str, name: str | None = None, park: bool = False
) -> Plan:
    return Plan(
        policy=_timed(document, overrides, path, plan.policy),
        park=park,
        retry_to=_or(overrides.retry_to, plan.retry_to),
        park_to=_or(overrides.park_to, plan.park_to),
        name=name or plan.name,
    )


def _or(written: str | UnsetType, inherited: str | None) -> str | None:
    return inherited if isinstance(written, UnsetType) else written


def _timed(document: Document, timing: Timing, path: str, base: Policy) -> Policy:
    try:
        return parse_policy(timing.timing(), base)
    except PolicyInvalid as invalid:
        document.refuse(f"{path}.{invalid.path}", invalid.reason)
