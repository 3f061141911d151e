"""Why letters that are due were not sent: a pause, a target that is closed, or maybe a limit or a circuit breaker.

What is used of limits is in the workers' memory, so all that can be said of those here is that there is one; `/health/ready` of a
worker says whether it is that. Which breakers are not closed workers write down.
"""

from __future__ import annotations

from typing import NamedTuple

from retry.console.replica.rows import LetterRow, Scope
from retry.console.web.app import Console
from retry.console.web.looked_up import LookedUp
from retry.delay_queue.lane import Lane
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes
from retry.operations.letter_filter.parse import parse

_LOOKED_AT_MAX = 500
_OVERDUE = parse("state:waiting due:<-1s")


class OverdueLane(NamedTuple):
    """Letters of one team, from one topic, for one target, that are overdue.

    Attributes:
      since_ms: when the oldest of them was due.
      why: what keeps them; None where nothing is known to.
    """

    team: str | None
    topic: str
    target: str
    since_ms: int
    why: str | None

    def is_in(self, scope: Scope) -> bool:
        """Whether a viewer of these teams may see it."""
        return scope is None or self.team in scope


def overdue_lanes(console: Console) -> LookedUp[tuple[OverdueLane, ...]]:
    """Looks at the 500 letters that are overdue for longest."""

    def find_lanes(_before: tuple[OverdueLane, ...]) -> tuple[OverdueLane, ...]:
        oldest: dict[tuple[str | None, str, str], LetterRow] = {}
        for row in console.replica.list_letters(None, _OVERDUE, None, _LOOKED_AT_MAX).rows:
            oldest.setdefault((row.team, row.topic or "", row.target), row)
        return _describe_overdue(console, oldest) if oldest else ()

    return LookedUp("overdue letters", find_lanes, ())


def _describe_overdue(console: Console, oldest: dict[tuple[str | None, str, str], LetterRow]) -> tuple[OverdueLane, ...]:
    cluster, registry = console.cluster(), console.registry()
    controls = {key: value for shard in console.replica.controls() for key, value in shard.items()}
    probe = TargetProbe(cluster.admin, writes=False)
    breakers, by_policies = console.replica.open_breakers(), blocked_lanes.by_policies(registry, cluster.names, probe, controls)
    of_letters = blocked_lanes.or_maybe_limited(by_policies, registry, breakers)
    of_named = blocked_lanes.or_maybe_limited(blocked_lanes.by_controls(probe, controls), registry, breakers)
    return tuple(
        OverdueLane(team, topic, target, row.due_at_ms or 0,
                    (of_letters if row.kind == "letter" else of_named)(Lane(team or "", topic, target)))
        for (team, topic, target), row in oldest.items()
    )  # fmt: skip
