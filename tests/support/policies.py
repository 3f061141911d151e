"""Policy files of several teams for a deployment, written while workers run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.support.deployment import Deployment

_PARK_TO = re.compile(r", park_to: ([^,}]+)")
DEFAULTS = "{backoff: {kind: constant, delay: 100ms}, jitter: none, max_attempts: 5}"


def text(teams: Mapping[str, str], defaults: str = DEFAULTS, targets: str = "{}") -> str:
    """A policy file: what each team's section says, as YAML in one line.

    Only one team parks in a topic. Where others ask for the same, their letters park in that of the service.
    """
    teams, taken = dict(teams), set[str]()
    for name, section in teams.items():
        parking = set(_PARK_TO.findall(section))
        teams[name] = _PARK_TO.sub(lambda match: "" if match[1] in taken else match[0], section)  # noqa: B023
        taken |= parking
    sections = "".join(f"  {team}: {section}\n" for team, section in teams.items())
    return f"defaults: {defaults}\ntargets: {targets}\nteams:\n{sections}"


def topic(deployment: Deployment, dead_letters: str, keys: str = "", retry_to: str | None = None) -> str:
    """A topic of a team's section, in one line."""
    target = retry_to or deployment.retry_of(dead_letters)
    more = f", {keys}" if keys else ""
    return f"{{dead_letters: {dead_letters}, retry_to: '{target}', park_to: {deployment.parked}{more}}}"


def team(*topics: str, keys: str = "") -> str:
    """A team's section, in one line."""
    more = f"{keys}, " if keys else ""
    return f"{{{more}topics: [{', '.join(topics)}]}}"
