"""All routes of a policy file: from a dead-letter topic to its route. Immutable; a new file makes a new registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from backoff import Policy
from backoff.parse import DEFAULT
from backoff.rate_limit import Limit
from retry.policies.limits import CircuitBreakerLimits
from retry.policies.route import RetryPlan, Route
from retry.policies.schema import Role
from retry.policies.tasks import TEAM, Tasks

# When the cache is full it is emptied, which costs a few microseconds per entry once.
_ROUTES_MAX = 10_000


def make_default_route(policy: Policy = DEFAULT) -> Route:
    """Make the route of a topic that no team has named: there is nowhere to retry to, so its letters park."""
    return Route("default", "default", RetryPlan(policy, park=False, retry_to=None, park_to=None, name="default"))


@dataclass(frozen=True, slots=True)
class Registry:
    """All routes of a policy file; without arguments, of no file at all.

    Attributes:
      team_limits: by team, what its retries may not exceed together; teams without limits are left out.
      target_limits, breakers: by topic, whoever sends there.
      masks: by team, for each part of a letter the highest role that sees it masked; see `retry.policies.masks`.
      tasks: of recurring tasks; None where there are none.
      digest: SHA-256 of the file's bytes in hexadecimal; empty where there is no file.
    """

    exact: Mapping[str, Route] = field(default_factory=dict)
    patterns: tuple[tuple[re.Pattern[str], Route], ...] = ()
    default: Route = field(default_factory=make_default_route)
    team_limits: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    target_limits: Mapping[str, Limit] = field(default_factory=dict)
    breakers: Mapping[str, CircuitBreakerLimits] = field(default_factory=dict)
    masks: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    tasks: Tasks | None = None
    digest: str = ""
    _routes: dict[str, Route] = field(default_factory=dict, repr=False, compare=False)
    _permitted: dict[str, set[str]] = field(default_factory=dict, repr=False, compare=False)
    _parking_teams: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for route in self.list_routes():
            self._permitted.setdefault(route.team, set()).update(route.list_permitted())
            self._parking_teams.update({plan.park_to: route.team for plan in route.plans() if plan.park_to})
        if self.tasks:
            self._permitted[TEAM] = self.tasks.list_permitted()
            if self.tasks.park_to:
                self._parking_teams.setdefault(self.tasks.park_to, TEAM)

    def route(self, topic: str) -> Route:
        """Find the route of a topic: by its exact name, else by the first pattern that matches, else the default."""
        route = self._routes.get(topic)
        return route if route is not None else self._find(topic)

    def has_rate_limit(self, team: str, target: str) -> bool:
        return team in self.team_limits or target in self.target_limits

    def reads_topic(self, topic: str) -> bool:
        """Whether letters are read from this topic. The service's own topics must not be among them."""
        return self.route(topic) is not self.default

    def defines(self, topic: str) -> bool:
        return self.tasks is not None and topic in self.tasks.topics

    def knows(self, team: str) -> bool:
        return team in self._permitted

    def permits_target(self, team: str, target: str) -> bool:
        """Whether any letter of a team, or a task, may go to a topic; asked again before each record is sent."""
        return target in self._permitted.get(team, ())

    def list_routes(self) -> list[Route]:
        """List every route but the default: the exact ones first, then the patterns, each in file order."""
        return [*self.exact.values(), *(route for _, route in self.patterns)]

    def subscription(self) -> list[str]:
        """List what librdkafka subscribes to for letters: topic names, and patterns as `^…$`."""
        return [*self.exact, *(_anchor_pattern(pattern.pattern) for pattern, _ in self.patterns)]

    def list_targets(self) -> set[str]:
        """List every topic that a letter or a task may go to, to be retried, to be done, or to rest."""
        return set().union(*self._permitted.values())

    def retry_targets(self) -> set[str]:
        """List every topic that a letter may be retried in.

        Only those that a letter decides on may be parked in as well.
        """
        return set().union(*(route.retry_targets() for route in self.list_routes()))

    def retry_targets_by_team(self) -> dict[str, set[str]]:
        targets: dict[str, set[str]] = {}
        for route in self.list_routes():
            targets.setdefault(route.team, set()).update(route.retry_targets())
        return targets

    def list_group_topics(self) -> dict[str, set[str]]:
        """List the consumer groups that the file names, and what they read of retries."""
        targets: dict[str, set[str]] = {}
        for route in self.list_routes():
            for plan in route.plans():
                if plan.group is not None:
                    targets.setdefault(plan.group, set()).update(route.targets_of(plan))
        return targets

    def parking(self) -> set[str]:
        return set(self._parking_teams)

    def parking_team(self, topic: str) -> str | None:
        """Find the one team that parks in a topic; None of topics that the file does not name to park in."""
        return self._parking_teams.get(topic)

    def permits_parking(self, dead_letters: str, topic: str) -> bool:
        """Whether letters of a dead-letter topic may be parked in a topic.

        Where the policy file names the topic for parking, only letters of its own team may; any other topic takes all letters.
        """
        team = self.parking_team(topic)
        return team is None or not self.reads_topic(dead_letters) or self.route(dead_letters).team == team

    def _find(self, topic: str) -> Route:
        route = self.exact.get(topic)
        if route is None:
            route = next((route for pattern, route in self.patterns if pattern.fullmatch(topic)), self.default)
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        self._routes[topic] = route
        return route


def _anchor_pattern(pattern: str) -> str:
    # An alternative at the top level would tear the two anchors apart.
    return f"^({pattern})$" if "|" in pattern else f"^{pattern}$"
