"""Which route a letter takes: its topic names the route, its exception the plan. Immutable; replaced as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from backoff import Policy
from backoff.parse import DEFAULT

# Bounds of the caches; when one is full it is emptied, which costs a few microseconds per entry once.
_PLANS_MAX = 1_024
_ROUTES_MAX = 10_000
# A class name longer than this is matched anew each time: 1,024 of them must not fill the memory.
_EXCEPTION_CHARS_MAX = 1_000

ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a letter.

    Attributes:
      policy: when it may try again.
      park: it is parked now, whatever the policy says.
      retry_to: a topic; "origin" for where the letter was first read; None where no policy is known: it parks.
      park_to: a topic; None for the parking topic of the service.
      name: of the route, and "#<rule number>" from 1 where a rule matched; for the header `retry-policy`.
    """

    policy: Policy
    park: bool
    retry_to: str | None
    park_to: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A plan for the exceptions that a glob matches."""

    glob: str
    matches: re.Pattern[str]
    plan: Plan


@dataclass(frozen=True, slots=True)
class Route:
    """What is known of one dead-letter topic, or of all that a pattern matches.

    Attributes:
      team: who owns it.
      name: "<team>/<dead_letters as written>".
      usual: the plan where no rule matches.
      rules: the first match wins.
      allowed_targets: where letters may go at all; None for anywhere that the file itself names.
    """

    team: str
    name: str
    usual: Plan
    rules: tuple[Rule, ...] = ()
    allowed_targets: frozenset[str] | None = None
    _plans: dict[str | None, Plan] = field(default_factory=dict, repr=False, compare=False)

    @property
    def retry_to(self) -> str | None:
        """Where letters come back, rules aside."""
        return self.usual.retry_to

    @property
    def park_to(self) -> str | None:
        """Where letters rest, rules aside."""
        return self.usual.park_to

    def plan(self, exception: str | None) -> Plan:
        """What to do with a letter that failed with this exception class; None where it is unknown."""
        plan = self._plans.get(exception)
        return plan if plan is not None else self._find(exception)

    def plans(self) -> Iterator[Plan]:
        """Every plan that a letter of this route may get."""
        yield self.usual
        yield from (rule.plan for rule in self.rules)

    def _find(self, exception: str | None) -> Plan:
        name = exception or ""
        plan = next((rule.plan for rule in self.rules if rule.matches.match(name)), self.usual)
        if len(name) <= _EXCEPTION_CHARS_MAX:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[exception] = plan
        return plan


def default_route(policy: Policy = DEFAULT) -> Route:
    """The route of a topic that no team has named: there is nowhere to retry to, so its letters park."""
    return Route("default", "default", Plan(policy, park=False, retry_to=None, park_to=None, name="default"))


@dataclass(frozen=True, slots=True)
class Registry:
    """All routes of a policy file; without arguments, of no file at all.

    Attributes:
      exact: dead-letter topic to route.
      patterns: regular expressions of whole names, in file order.
      default: for every other topic.
    """

    exact: Mapping[str, Route] = field(default_factory=dict)
    patterns: tuple[tuple[re.Pattern[str], Route], ...] = ()
    default: Route = field(default_factory=default_route)
    _routes: dict[str, Route] = field(default_factory=dict, repr=False, compare=False)

    def route(self, topic: str) -> Route:
        """The route of a topic: by its exact name, else by the first pattern that matches, else the default."""
        route = self._routes.get(topic)
        return route if route is not None else self._find(topic)

    def reads(self, topic: str) -> bool:
        """Whether letters are read from this topic. The service's own topics must not be among them."""
        return self.route(topic) is not self.default

    def routes(self) -> list[Route]:
        """Every route but the default: the exact ones, then the patterns, each in file order."""
        return [*self.exact.values(), *(route for _, route in self.patterns)]

    def subscription(self) -> list[str]:
        """What librdkafka subscribes to: topic names, and patterns as `^…$`."""
        return [*self.exact, *(_anchored(pattern.pattern) for pattern, _ in self.patterns)]

    def targets(self) -> set[str]:
        """Every topic that the file names to retry or park in."""
        plans = (plan for route in self.routes() for plan in route.plans())
        return {topic for plan in plans for topic in (plan.retry_to, plan.park_to) if topic} - {ORIGIN}

    def parking(self) -> set[str]:
        """Every topic that the file names to park in."""
        return {plan.park_to for route in self.routes() for plan in route.plans() if plan.park_to}

    def _find(self, topic: str) -> Route:
        route = self.exact.get(topic)
        if route is None:
            route = next((route for pattern, route in self.patterns if pattern.fullmatch(topic)), self.default)
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        self._routes[topic] = route
        return route


def _anchored(pattern: str) -> str:
    # An alternative at the top level would tear the two anchors apart.
    return f"^({pattern})$" if "|" in pattern else f"^{pattern}$"
