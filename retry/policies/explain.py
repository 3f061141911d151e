"""What the policy file decides for one letter, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backoff import JITTERS, Policy, duration_text
from backoff.rate_limit import Limit
from retry.policies.registry import Registry
from retry.policies.route import Condition, MatchInput, RetryPlan, Route

_LINES_MAX = 10
_DRAW_MAX = 1 - 2**-53  # the largest draw there is
_SHOWN_CHARS_MAX = 100
_CANCELLABLE = "While it waits, a later letter of its key and partition without a value cancels it: null_value is cancel."


def explain(registry: Registry, topic: str, match_input: MatchInput) -> list[str]:
    """Explain the decision for a letter on `topic`: a sentence, a condition or a delay per line."""
    route = registry.route(topic)
    plan = route.plan(
        match_input.failure, attempt=match_input.attempt, age_ms=match_input.age_ms, headers=match_input.headers,
        null_value=match_input.null_value,
    )
    lines = [_whose(registry, route, topic), *_rules(route, plan, match_input)]
    target = plan.resolve_target(match_input.failure, topic)
    if fault := _fault(route, plan, match_input, target):
        return [*lines, *fault]
    return [
        *lines,
        f"Retry {match_input.attempt} is made, to {target}{f', which is {plan.retry_to}' if plan.template else ''}.",
        *_delays(plan.policy, match_input.attempt),
        *_describe_bounds(plan),
        "Letters of one key wait for each other: ordered." if plan.ordered else "Letters overtake each other: not ordered.",
        *([_CANCELLABLE] if plan.null_cancels else []),
        *_limits(registry, route.team, target or ""),
    ]


def compute_delay_bounds_ms(policy: Policy, attempt: int) -> tuple[int, int]:
    """Compute the shortest and the longest wait of retry number `attempt` (from 1), jitter and cap included."""
    delay_ms = policy.curve(attempt)
    low_ms, high_ms = (min(policy.jitter(delay_ms, draw), policy.max_delay_ms) for draw in (0.0, _DRAW_MAX))
    return low_ms, high_ms


def _whose(registry: Registry, route: Route, topic: str) -> str:
    if route is registry.default:
        return f"{topic} belongs to no team of this file."
    return f"{topic} belongs to team {route.team}, as {route.name}."


def _rules(route: Route, plan: RetryPlan, match_input: MatchInput) -> Iterator[str]:
    for number, rule in enumerate(route.rules, start=1):
        matches = rule.plan is plan
        yield f"Rule {number} matches; the policy is {plan.name}:" if matches else f"Rule {number} does not match:"
        yield from (_explain_condition(condition, match_input) for condition in rule.conditions)
        if matches:
            return
    yield f"{'No rule matches' if route.rules else 'There are no rules'}; the policy is {plan.name}."


def _explain_condition(condition: Condition, match_input: MatchInput) -> str:
    answer, value = "yes" if condition.holds(match_input) else "no", condition.value(match_input)
    return f"  {condition.key} {condition.written}: {answer}, it is {_format_setting(condition.key, value)}"


def _format_setting(key: str, value: Any) -> str:
    if key == "exception":
        return " because of ".join(dict.fromkeys(_format_setting("", name) for name in value if name)) or "unknown"
    if key == "age":
        return duration_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "unknown" if value is None else f"{value:.{_SHOWN_CHARS_MAX}}" if isinstance(value, str) else str(value)


def _fault(route: Route, plan: RetryPlan, match_input: MatchInput, target: str | None) -> list[str]:
    policy, parking = plan.policy, _parking(plan)
    if plan.park:
        return [f"The letter is parked at once, in {parking}."]
    if plan.null_cancels and match_input.null_value:
        return [
            "It has no value, and null_value is cancel: it cancels earlier letters of its key and partition that wait.",
            f"They are parked in {parking}: cancelled. So is it itself: null_value, or no_key where it has none.",
        ]
    if plan.retry_to is None:
        return [f"There is nowhere to retry to, so the letter is parked in {parking}: no_policy."]
    if match_input.attempt > policy.max_attempts:
        limit = f"Retry {match_input.attempt} is not made: max_attempts is {policy.max_attempts}."
        return [limit, f"The letter is parked in {parking}: max_attempts."]
    if match_input.age_ms > policy.max_age_ms:
        ages = f"the first failure is {duration_text(match_input.age_ms)} ago, and max_age is {duration_text(policy.max_age_ms)}"
        return [f"Retry {match_input.attempt} is not made: {ages}.", f"The letter is parked in {parking}: max_age."]
    if target is None:
        reason = "no_origin" if match_input.failure.origin_topic is None else "target_not_allowed"
        unknown = f"What is given (--origin, --group) does not say which topic {plan.retry_to} is"
        return [f"{unknown}; such a letter is parked in {parking}: {reason}."]
    if plan.template and not route.completes(target):
        refused = f"{plan.retry_to} is {target}, which is not among allowed_targets, or takes what is parked"
        return [f"{refused}, so the letter is parked in {parking}: target_not_allowed."]
    return []


def _delays(policy: Policy, attempt: int) -> list[str]:
    # The last retry may be a million away.
    last = min(policy.max_attempts, attempt + _LINES_MAX - 1)
    lines = [f"  retry {n}: {_wait(*compute_delay_bounds_ms(policy, n))} after the failure" for n in range(attempt, last + 1)]
    return lines if last == policy.max_attempts else [*lines[:-1], f"  … and so on to retry {policy.max_attempts}"]


def _wait(low_ms: int, high_ms: int) -> str:
    return duration_text(low_ms) if low_ms == high_ms else f"{duration_text(low_ms)} to {duration_text(high_ms)}"


def _describe_bounds(plan: RetryPlan) -> list[str]:
    policy = plan.policy
    jitter = next((name for name, function in JITTERS.items() if function is policy.jitter), "its own")
    wish = f"may ask for its own time (retry-at-ms), at most {duration_text(policy.max_delay_ms)} from now"
    return [
        f"Jitter is {jitter}. A letter {wish if policy.honour_retry_at else 'may not ask for its own time'}.",
        *([f"It then waits for the calendar: {policy.calendar.describe_rules()}."] if policy.calendar else []),
        f"After retry {policy.max_attempts} the letter is parked in {_parking(plan)};",
        f"sooner, if the next retry would come more than {duration_text(policy.max_age_ms)} after the first failure.",
    ]


def _parking(plan: RetryPlan) -> str:
    return plan.park_to or "the service's parking topic"


def _limits(registry: Registry, team: str, target: str) -> Iterator[str]:
    if limits := registry.team_limits.get(team):
        yield f"Team {team} makes at most {' and '.join(map(_pace, limits))}."
    if limit := registry.target_limits.get(target):
        yield f"{target} takes at most {_pace(limit)}."
    if breaker := registry.breakers.get(target):
        within, rest = duration_text(breaker.within_ms), duration_text(breaker.open_for_ms)
        yield f"After {breaker.failures} failures within {within}, {target} rests for {rest}."


def _pace(limit: Limit) -> str:
    return f"{limit.tokens:,} retries in {duration_text(limit.period_ms)}"
