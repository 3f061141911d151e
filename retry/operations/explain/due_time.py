"""How a due time comes about, step by step: the words to what `backoff.Policy.decide` does at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from backoff import JITTERS, Policy, duration_text
from retry.clock import iso


class Step(NamedTuple):
    """One thing that set or moved the due time, in words, and what it was then."""

    says: str
    at_ms: int


def steps(
    policy: Policy, *, attempt: int, failed_at_ms: int, now_ms: int, draw: float, retry_at_ms: int | None
) -> Iterator[Step]:
    """The last one has the due time; arguments are those of `Policy.decide`, for a letter that is retried."""
    at_ms, says = _find_wished_time(policy, attempt, failed_at_ms, draw, retry_at_ms)
    yield Step(says, at_ms)
    if at_ms > (latest_ms := now_ms + policy.max_delay_ms):
        at_ms = latest_ms
        yield Step(f"No wait is longer than max_delay ({duration_text(policy.max_delay_ms)}) from when it was taken in: "
                   f"cut to {iso(at_ms)}.", at_ms)  # fmt: skip
    if policy.calendar is not None and (open_at_ms := policy.calendar(soonest_ms := max(at_ms, now_ms))) > soonest_ms:
        yield Step(f"The calendar ({policy.calendar.describe_rules()}) moved it to {iso(open_at_ms)}.", open_at_ms)


def _find_wished_time(policy: Policy, attempt: int, failed_at_ms: int, draw: float, retry_at_ms: int | None) -> tuple[int, str]:
    if retry_at_ms is not None and policy.honour_retry_at:
        return retry_at_ms, f"The letter itself asked for {iso(retry_at_ms)} (retry-at-ms)."
    full_ms = policy.curve(attempt)
    delay_ms = min(policy.jitter(full_ms, draw), policy.max_delay_ms)
    jitter = next((name for name, function in JITTERS.items() if function is policy.jitter), "its own")
    drawn = "" if delay_ms == full_ms else f", of which jitter ({jitter}) makes {duration_text(delay_ms)}"
    at_ms = failed_at_ms + delay_ms
    return at_ms, f"The delay of retry {attempt} is {duration_text(full_ms)}{drawn}, from the failure on: {iso(at_ms)}."
