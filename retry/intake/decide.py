"""What becomes of one letter: by which plan, whether it is retried, where to and when. Pure: no clock, no chance."""

from __future__ import annotations

import zlib

import msgspec

from backoff import RetryAt
from retry.dead_letters.dead_letter import NO_TIME, Letter
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.policies.route import RetryPlan, Route
from retry.policies.target import ORIGIN

DRAWS = 1 << 32
# Reasons to park under `null_value: cancel`: the null, one without a key, and what it cancels.
NULL_VALUE, NO_KEY, CANCELLED = "null_value", "no_key", "cancelled"


class DecidedLetter(msgspec.Struct, frozen=True, gc=False):
    """A letter and what was decided.

    Attributes:
      attempt: number of the retry that the decision is about; 1 is the first.
      reason: why it parks; None where it is retried.
      target: the topic that it goes to; None for the service's own parking topic.
      due_at_ms: when the retry is due; the time of the decision where the letter parks.
      decided_at_ms: when the decision was made.
      incarnation: of the letter's topic; see `retry.delay_queue.entry_keys`.
      ordered: whether it waits for earlier letters of its key.
    """

    letter: Letter
    trace: LetterHistory
    route: Route
    plan: RetryPlan
    attempt: int
    reason: str | None
    target: str | None
    due_at_ms: int
    failed_at_ms: int
    first_failed_at_ms: int
    decided_at_ms: int
    incarnation: int = 0

    @property
    def ordered(self) -> bool:
        """Whether it waits for earlier letters of its key; what parks waits for nobody."""
        return self.plan.ordered and self.reason is None and self.letter.key is not None

    @property
    def cancels(self) -> bool:
        """Whether it is a null that ends what waits under its record key."""
        return self.reason == NULL_VALUE


def decide(
    route: Route,
    letter: Letter,
    trace: LetterHistory,
    now_ms: int,
    unfit: str | None = None,
    failed_at_ms: int | None = None,
) -> DecidedLetter:
    """Decide whether a letter is retried, where and when, or parked, and why.

    Args:
      unfit: why it cannot be retried, whatever its policy says.
      failed_at_ms: when it failed, where that is known better than the letter says.
    """
    attempt = (trace.made or 0) + 1
    if failed_at_ms is None:
        failed_at_ms = letter.failed_at_ms(now_ms)
    first_ms = failed_at_ms if trace.first_failed_ms is None else min(trace.first_failed_ms, failed_at_ms)
    plan = route.plan(
        letter.failure,
        attempt=attempt,
        age_ms=max(0, now_ms - first_ms),
        headers=letter.original_headers,
        null_value=letter.value is None,
    )
    target = None if plan.park else plan.resolve_target(letter.failure, letter.topic)
    reason = unfit or _find_park_reason(letter, trace, route, plan, target)
    if reason is None:
        decision = plan.policy.decide(
            attempt=attempt,
            first_failed_at_ms=first_ms,
            failed_at_ms=failed_at_ms,
            now_ms=now_ms,
            draw=draw(letter.source),
            retry_at_ms=letter.retry_at_ms,
        )
        if isinstance(decision, RetryAt):
            due_ms = decision.due_at_ms
            return DecidedLetter(
                letter, trace, route, plan=plan, attempt=attempt, reason=None, target=target, due_at_ms=due_ms,
                failed_at_ms=failed_at_ms, first_failed_at_ms=first_ms, decided_at_ms=now_ms,
            )  # fmt: skip
        reason = decision.reason
    return DecidedLetter(
        letter, trace, route, plan=plan, attempt=attempt, reason=reason, target=plan.park_to, due_at_ms=now_ms,
        failed_at_ms=failed_at_ms, first_failed_at_ms=first_ms, decided_at_ms=now_ms,
    )  # fmt: skip


def draw(source: bytes) -> float:
    """Compute the number in [0, 1) that jitter depends on, from a letter's coordinates, so that it is always the same."""
    return zlib.crc32(source) / DRAWS


def _find_park_reason(letter: Letter, trace: LetterHistory, route: Route, plan: RetryPlan, target: str | None) -> str | None:
    """Why this letter must not be retried, whatever its number and age; None where it may."""
    if not letter.copyable():
        return "unreadable_headers"
    if plan.park:
        return "rule"
    if plan.null_cancels and letter.value is None:
        return NO_KEY if letter.key is None else NULL_VALUE
    if trace.made is None:
        return "bad_attempt"
    if letter.retry_at_ms == NO_TIME and plan.policy.honour_retry_at:
        return "bad_due"
    if plan.retry_to is None:
        return "no_policy"
    if target is None and (plan.retry_to != ORIGIN or letter.failure.origin_topic is None):
        return "no_origin" if plan.retry_to == ORIGIN else "no_target"
    if plan.template is not None and not route.completes(target):
        return "target_not_allowed"
    return None
