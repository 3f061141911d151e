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

from retry.operations.explain import sentences
from retry.operations.explain.evidence import Known
from retry.operations.explain.search import Decided
from retry.operations.explain.state import Forecast, Seen, State
from retry.intake.decide import Case, decide
from retry.delay_queue.entry import due_at_ms
from retry.policies.registry import Registry
from retry.intake.attempts.attempt_counter import Trace

# Reasons that no policy file changes, or that lie in what only the letter itself tells.
_OF_THE_LETTER = ("too_large", "unreadable_headers", "bad_attempt", "bad_due")


class Explained(NamedTuple):
    """An explanation.

    Attributes:
      decided: what was decided, or, for a letter that is not taken in, what would be decided now.
      says: sentences by section.
    """

    state: State
    decided: Decided | None
    says: dict[str, list[str]]


def explained(known: Known, registry: Registry | None, forecast: Forecast | None, now_ms: int) -> Explained:
    """Put it in words.

    Args:
      registry: of the policy file, where there is one.
      forecast: what a worker would decide now, for a letter that can be read.
    """
    state = _state(known, registry, now_ms)
    foreseen = state in (State.UNSEEN, State.UNREAD)
    decided = known.decided
    if foreseen:
        decided, present = (_foreseen(forecast), forecast[0]) if forecast else (None, None)
    else:
        present = _present(registry, forecast, decided) if forecast and registry and decided else None
    seen = Seen(known, state, decided, present, registry, now_ms)
    sections = sentences.letter, sentences.policy, sentences.due, sentences.now, sentences.following
    return Explained(state, decided, {name: list(say(seen)) for name, say in zip(_SECTIONS, sections, strict=True)})


_SECTIONS = ("letter", "policy", "due", "now", "next")


def _state(known: Known, registry: Registry | None, now_ms: int) -> State:
    if known.waiting is not None:
        if known.waiting.head is not None:
            return State.BEHIND
        return State.OVERDUE if due_at_ms(known.waiting.key) <= now_ms else State.WAITING
    if known.position is None or known.position <= known.place.offset:
        return State.UNREAD if registry is not None and not registry.reads(known.place.topic) else State.UNSEEN
    if known.decided is None:
        return State.LEFT
    return State.PARKED if known.decided.decision == "park" else State.RETRIED


def _foreseen(forecast: Forecast) -> Decided:
    case, packed = forecast
    return Decided(
        case.trace.id.decode(), case.route.team, case.plan.name, case.attempt, case.first_failed_at_ms, case.failed_at_ms,
        None, "park" if packed.reason else "retry", packed.reason, None if packed.reason else case.due_at_ms,
        packed.destination,
    )  # fmt: skip


def _present(registry: Registry, forecast: Forecast, decided: Decided) -> Case:
    """What the present policy file decides of the letter as it was when it was taken in."""
    letter, reason = forecast[0].letter, decided.reason or ""
    made = None if reason == "bad_attempt" else decided.attempt - 1
    trace = Trace(decided.id.encode(), 0, 0, made, decided.first_failed_ms, False)
    unfit = reason if reason in _OF_THE_LETTER or reason.startswith("source_") else None
    taken_ms = decided.taken_ms or decided.failed_ms or forecast[0].failed_at_ms
    return decide(registry.route(letter.topic), letter, trace, taken_ms, unfit)
