"""What the policy file decides for one letter, in words."""

from __future__ import annotations

from backoff import JITTERS, Policy, duration_text
from retry.policies.registry import ORIGIN, Plan, Registry, Route

_LINES_MAX = 10
_DRAW_MAX = 1 - 2**-53  # the largest draw there is


def explain(registry: Registry, *, topic: str, exception: str | None, attempt: int) -> list[str]:
    """The decision for retry number `attempt` (from 1) of a letter on `topic`, a sentence or a delay per line."""
    route = registry.route(topic)
    plan = route.plan(exception)
    lines = [_whose(registry, route, topic), _which_rule(route, plan, exception)]
    if plan.park:
        return [*lines, f"The letter is parked at once, in {_parking(plan)}."]
    if plan.retry_to is None:
        return [*lines, f"There is nowhere to retry to, so the letter is parked in {_parking(plan)}: no_policy."]
    if attempt > plan.policy.max_attempts:
        limit = f"Retry {attempt} is not made: max_attempts is {plan.policy.max_attempts}."
        return [*lines, limit, f"The letter is parked in {_parking(plan)}: max_attempts."]
    where = "the topic it first came from (origin)" if plan.retry_to == ORIGIN else plan.retry_to
    return [*lines, f"Retry {attempt} is made, to {where}.", *_delays(plan.policy, attempt), *_limits(plan)]


def delay_bounds_ms(policy: Policy, attempt: int) -> tuple[int, int]:
    """The shortest and the longest wait of retry number `attempt` (from 1), jitter and cap included."""
    delay_ms = policy.curve(attempt)
    low_ms, high_ms = (min(policy.jitter(delay_ms, draw), policy.max_delay_ms) for draw in (0.0, _DRAW_MAX))
    return low_ms, high_ms


def _whose(registry: Registry, route: Route, topic: str) -> str:
    if route is registry.default:
        return f"{topic} belongs to no team of this file."
    return f"{topic} belongs to team {route.team}, as {route.name}."


def _which_rule(route: Route, plan: Plan, exception: str | None) -> str:
    failure = exception or "an unknown exception"
    for number, rule in enumerate(route.rules, start=1):
        if rule.plan is plan:
            return f"Rule {number}, {rule.glob}, matches {failure}; the policy is {plan.name}."
    return f"No rule matches {failure}; the policy is {plan.name}."


def _delays(policy: Policy, attempt: int) -> list[str]:
    # The last retry may be a million away.
    last = min(policy.max_attempts, attempt + _LINES_MAX - 1)
    lines = [f"  retry {n}: {_wait(*delay_bounds_ms(policy, n))} after the failure" for n in range(attempt, last + 1)]
    return lines if last == policy.max_attempts else [*lines[:-1], f"  … and so on to retry {policy.max_attempts}"]


def _wait(low_ms: int, high_ms: int) -> str:
    if low_ms == high_ms:
        return duration_text(low_ms)
    return f"{duration_text(low_ms)} to {duration_text(high_ms)}"


def _limits(plan: Plan) -> list[str]:
    policy = plan.policy
    max_age = duration_text(policy.max_age_ms)
    jitter = next((name for name, function in JITTERS.items() if function is policy.jitter), "its own")
    wish = f"may ask for its own time (retry-at-ms), at most {duration_text(policy.max_delay_ms)} from now"
    return [
        f"Jitter is {jitter}. A letter {wish if policy.honour_retry_at else 'may not ask for its own time'}.",
        *([f"It then waits for the calendar: {policy.calendar.text()}."] if policy.calendar else []),
        f"After retry {policy.max_attempts} the letter is parked in {_parking(plan)};",
        f"sooner, if the next retry would come more than {max_age} after the first failure.",
    ]


def _parking(plan: Plan) -> str:
    return plan.park_to or "the service's parking topic"
