"""Where a letter is, and what sentences about it are made from."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from backoff import JITTERS, Policy, duration_text
from retry.clock import iso
from retry.intake.build_entry import BuiltEntry, DecidedLetter
from retry.operations.explain.evidence import LetterEvidence
from retry.operations.explain.search import DecisionRecord
from retry.policies.registry import Registry

# How a due time comes about, step by step: the words to what `backoff.Policy.decide` does at once.

class Step(NamedTuple):
    """One thing that set or moved the due time, in words, and what it was then."""

    says: str
    at_ms: int


def list_due_steps(
    policy: Policy, *, attempt: int, failed_at_ms: int, now_ms: int, draw: float, retry_at_ms: int | None
) -> Iterator[Step]:
    """List the steps, of which the last has the due time, for a letter that is retried; arguments as for `Policy.decide`."""
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


Forecast = tuple[DecidedLetter, BuiltEntry]


class LetterState(Enum):
    """The state of a letter; names in lower case are those of `retry explain --json`."""

    UNREAD = "its topic is in no policy file"
    UNSEEN = "not taken in yet"
    WAITING = "waiting for its time"
    BEHIND = "waiting behind an earlier letter of its key"
    OVERDUE = "waiting, though it is due"
    RETRIED = "sent to be retried"
    PARKED = "parked"
    DISCARDED = "discarded by an operator"
    LEFT = "gone from the service, and its outcome is not found"


class ExplainedLetter(NamedTuple):
    """The facts about one letter that sentences are made from.

    Attributes:
      decision: what was decided, or would be decided now.
      present: the letter as the present policy file decides on it; None where there is no file, or nothing to decide about.
    """

    evidence: LetterEvidence
    state: LetterState
    decision: DecisionRecord | None
    present: DecidedLetter | None
    registry: Registry | None
    now_ms: int

    @property
    def foreseen(self) -> bool:
        """Whether nothing is decided yet."""
        return self.state in (LetterState.UNREAD, LetterState.UNSEEN)
