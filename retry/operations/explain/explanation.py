"""Why a letter is due when it is, by which rule, and what happens next: what is known of it → an explanation.

| section | says |
| --- | --- |
| `letter` | who wrote it, what failed, and how often so far |
| `policy` | what decided, which rule matched, and what the policy file says of such a letter |
| `due` | how the due time came about |
| `now` | where it is |
| `next` | what happens then |
"""

from __future__ import annotations

from typing import NamedTuple

from retry.delay_queue.entry_keys import due_at_ms
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.intake.build_entry import DecidedLetter, decide
from retry.operations.explain import sentences
from retry.operations.explain.evidence import LetterEvidence
from retry.operations.explain.search import RETURNED, DecisionRecord
from retry.operations.explain.state import ExplainedLetter, Forecast, LetterState
from retry.policies.registry import Registry
from retry.telemetry.outcomes import DISCARD, ERASE, PARK

# Reasons that no policy file changes, or that lie in what only the letter itself tells.
_OF_THE_LETTER = ("too_large", "unreadable_headers", "bad_attempt", "bad_due")


class Explained(NamedTuple):
    """The explanation of one letter in sentences, by section; `decision` is that of now for a letter that is not taken in."""

    state: LetterState
    decision: DecisionRecord | None
    sentences: dict[str, list[str]]


def explain_evidence(evidence: LetterEvidence, registry: Registry | None, forecast: Forecast | None, now_ms: int) -> Explained:
    """Explain the evidence of a letter; `forecast` is what a worker would decide now, for a letter that can be read."""
    state = _derive_letter_state(evidence, registry, now_ms)
    foreseen = state in (LetterState.UNSEEN, LetterState.UNREAD)
    decision = evidence.decision
    if foreseen:
        decision, present = (_foreseen(forecast), forecast[0]) if forecast else (None, None)
    else:
        present = _decide_by_present_file(registry, forecast, decision) if forecast and registry and decision else None
    seen = ExplainedLetter(evidence, state, decision, present, registry, now_ms)
    sections = {
        "letter": sentences.explain_letter, "policy": sentences.describe_policy, "due": sentences.describe_due_time,
        "now": sentences.describe_current_state, "next": sentences.describe_next_steps,
    }  # fmt: skip
    return Explained(state, decision, {name: list(say(seen)) for name, say in sections.items()})


def _derive_letter_state(evidence: LetterEvidence, registry: Registry | None, now_ms: int) -> LetterState:
    if evidence.waiting is not None:
        if evidence.waiting.head is not None:
            return LetterState.BEHIND
        return LetterState.OVERDUE if due_at_ms(evidence.waiting.key) <= now_ms else LetterState.WAITING
    if evidence.position is None or evidence.position <= evidence.location.offset:
        is_read = registry is None or registry.reads_topic(evidence.location.topic)
        return LetterState.UNSEEN if is_read else LetterState.UNREAD
    if evidence.decision is None:
        return LetterState.LEFT
    ended = {PARK: LetterState.PARKED, DISCARD: LetterState.DISCARDED, ERASE: LetterState.DISCARDED, RETURNED: LetterState.LEFT}
    return ended.get(evidence.decision.decision, LetterState.RETRIED)


def _foreseen(forecast: Forecast) -> DecisionRecord:
    decided, packed = forecast
    return DecisionRecord(
        decided.trace.id.decode(), decided.route.team, decided.plan.name, attempt=decided.attempt,
        first_failed_ms=decided.first_failed_at_ms, failed_ms=decided.failed_at_ms, taken_ms=None,
        decision="park" if packed.reason else "retry", reason=packed.reason,
        due_ms=None if packed.reason else decided.due_at_ms, target=packed.destination,
    )  # fmt: skip


def _decide_by_present_file(registry: Registry, forecast: Forecast, decision: DecisionRecord) -> DecidedLetter:
    """Decide by the present policy file on the letter as it was when it was taken in."""
    letter, reason = forecast[0].letter, decision.reason or ""
    made = None if reason == "bad_attempt" else decision.attempt - 1
    trace = LetterHistory(decision.id.encode(), 0, 0, made, decision.first_failed_ms, False)
    unfit = reason if reason in _OF_THE_LETTER or reason.startswith("source_") else None
    taken_ms = decision.taken_ms or decision.failed_ms or forecast[0].failed_at_ms
    return decide(registry.route(letter.topic), letter, trace, taken_ms, unfit)
