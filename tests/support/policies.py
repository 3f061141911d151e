"""Policy files of several teams for a deployment, written while workers run."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.deployment import Deployment

DEFAULTS = "{backoff: {kind: constant, delay: 100ms}, jitter: none, max_attempts: 5}"


def text(teams: Mapping[str, str], defaults: str = DEFAULTS, targets: str = "{}") -> str:
    """A policy file: what each team's section says, as YAML in one line."""
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
