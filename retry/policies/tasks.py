"""What a policy file says of recurring tasks: where definitions come from, and where runs may go."""

from __future__ import annotations

from dataclasses import dataclass

# What a team is to letters: whose limits and pauses count.
TEAM = "tasks"


@dataclass(frozen=True, slots=True)
class Tasks:
    """The section `tasks` of a policy file, checked.

    Attributes:
      park_to: where definitions go that cannot be used; None for the service's own parking topic.
      format: the only format that is read, or `auto`.
      misfire, late_ms, catch_up_max: defaults for tasks that say nothing else; see `backoff.recurrence`.
      shortest_ms: the shortest period that is allowed.
    """

    topics: frozenset[str]
    allowed: frozenset[str]
    park_to: str | None
    format: str
    misfire: str
    late_ms: int
    catch_up_max: int
    shortest_ms: int

    def list_permitted(self) -> set[str]:
        return {*self.allowed, *([self.park_to] if self.park_to else [])}
