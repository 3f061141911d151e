"""What an action has decided of its letters, as records of the outcomes topic: so that whoever counts letters knows of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import integer, moment
from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delivery.act_audit import Result
from retry.delivery.acted_entry import BY_OPERATOR, ActedEntry
from retry.delivery.returned_letter import ReturnedLetter
from retry.telemetry import outcomes
from retry.telemetry.outcomes import ActionOutcome, LettersByShared, SharedFields

_DIGITS_MAX = 10
# By kind, where letters are not sent.
_GIVEN_UP = {
    action_records.PARK: outcomes.PARK, action_records.DISCARD: outcomes.DISCARD, action_records.ERASE: outcomes.ERASE,
}  # fmt: skip


def build_outcomes(state: ActionState, results: Sequence[tuple[Member, Result]], now_ms: int) -> list[dict[str, Any]]:
    """Rows for the topic of outcomes: of each letter for which something was done, under the id of the action."""
    letters: LettersByShared = defaultdict(list)
    for _, result in results:
        if isinstance(result, ActedEntry):
            _add_outcome(letters, state, result.move.packed.key, result.entry, result.move.entry, outcomes.RETRY)
        elif isinstance(result, ReturnedLetter):
            _add_outcome(letters, state, result.key, result.entry, result.entry, outcomes.RETURN)
    by = ActionOutcome(state.id.hex(), state.action.kind)
    return [{"key": by.id.encode(), "value": value} for value in outcomes.encode_outcomes(letters, now_ms, by)]


def _add_outcome(letters: LettersByShared, state: ActionState, key: bytes, entry: Entry, was: Entry, sent: str) -> None:
    """Add the outcome of one letter to `letters`.

    Args:
      was: the entry before the action; it says what an erased entry says no more.
      sent: the decision to record where the letter is to be sent.
    """
    ours = {name: value for name, value in was.headers if name in names.OURS}
    if not (id_ := ours.get(names.ID)):
        # The service has not counted its attempts, and told of it as little as of a null that cancels.
        return
    decision = _GIVEN_UP.get(state.action.kind, sent)
    due_ms, topic, partition, offset = entry_keys.source(key)
    # What is parked tells how many retries were made.
    attempt = (integer(ours.get(names.ATTEMPT), _DIGITS_MAX) or 0) + (names.PARKED_REASON in ours)
    shared = SharedFields(
        entry.team, topic, partition, policy=(ours.get(names.POLICY) or b"").decode("utf-8", "replace"), attempt=attempt,
        exception=None, decision=decision, reason=BY_OPERATOR if decision == outcomes.PARK else None, target=entry.destination,
        cause=None, fingerprint=None, group=None,
    )  # fmt: skip
    failed_ms = next((at for at in (entry.failed_at_ms, entry.timestamp_ms) if at is not None), due_ms)
    first_ms = moment(ours.get(names.FIRST_FAILED_MS))
    is_sent = decision in (outcomes.RETRY, outcomes.RETURN)
    letters[shared].append((id_, offset, failed_ms if first_ms is None else first_ms, failed_ms, due_ms if is_sent else None))
