"""What a policy file has for letters of one kind: its own code decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from backoff import RetryAt
from retry.analytics.advice.evidence import Kind
from retry.dead_letters.failure import Failure
from retry.policies.registry import Registry
from retry.policies.route import Route

# More than any policy allows in practice, and few enough to compute.
_ATTEMPTS_MAX = 200
# Evenly spread, however many are taken: the fraction of the golden ratio.
_SPREAD = 0.6180339887
# So many letters, spread over a day: jitter and quiet hours show.
_WAYS = 8
_DAY_MS = 86_400_000
Causes = Mapping[tuple[str, str, str | None], bool]


def plan_delays(registry: Registry, kinds: Iterable[Kind], is_cause: Causes) -> dict[Kind, list[list[int]]]:
    """Compute by kind the delays (ms) of each attempt of sample letters that always fail; kinds without a policy are left out.
    `is_cause` tells by team, topic and exception, whether this is always the root cause."""
    found = {}
    for kind in kinds:
        routes = [
            (route, is_cause.get((kind.team, topic, kind.exception), False))
            for topic in kind.topics for route in _narrow_route(registry.route(topic), kind, registry)
        ]  # fmt: skip
        delays_ms: dict[int, list[int]] = {}
        for route, is_root in routes:
            for way in range(_WAYS):
                begun_ms, draw = way * _DAY_MS // _WAYS, (way + 0.5) / _WAYS
                for attempt, failed_ms, due_ms in retries(route, kind.exception, is_root, begun_ms, draw):
                    delays_ms.setdefault(attempt, []).append(due_ms - failed_ms)
        if routes:
            found[kind] = [delays_ms[attempt] for attempt in sorted(delays_ms)]
    return found


def _narrow_route(route: Route, kind: Kind, registry: Registry) -> list[Route]:
    """Narrow the route of a topic to such letters; where a rule asks what outcomes do not tell, to that rule alone."""
    if route is registry.default:
        return []
    first = route.plan(Failure(exception=kind.exception), attempt=1, age_ms=0, headers=(), null_value=False)
    if not kind.policies or first.name in kind.policies:
        return [route]
    return [replace(route, default_plan=plan, rules=()) for plan in route.plans() if plan.name in kind.policies]


def retries(route: Route, exception: str | None, is_cause: bool, begun_ms: int, draw: float) -> Iterator[tuple[int, int, int]]:
    """Yield attempt, time of failure and due time of every retry that a letter gets which always fails."""
    failure = Failure(exception=exception, cause=exception if is_cause else None)
    failed_ms = begun_ms
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        plan = route.plan(failure, attempt=attempt, age_ms=failed_ms - begun_ms, headers=(), null_value=False)
        if plan.park or plan.retry_to is None:
            return
        jitter = (draw + attempt * _SPREAD) % 1
        decision = plan.policy.decide(
            attempt=attempt, first_failed_at_ms=begun_ms, failed_at_ms=failed_ms, now_ms=failed_ms, draw=jitter
        )
        if not isinstance(decision, RetryAt):
            return
        due_ms = max(decision.due_at_ms, failed_ms)
        yield attempt, failed_ms, due_ms
        failed_ms = due_ms
