"""What the owner of a shard does for actions in one transaction, what it is done with, and which letters it keeps as they were.

A letter that an action changes is kept as it was, in the topic of discarded letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Member, Order
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow
from retry.delivery.act_records import Result
from retry.delivery.letter_changes import ActedLetter
from retry.delivery.refusals import DryRunWriter, TopicKnowledge, diagnose
from retry.delivery.transaction_batch import renew_timestamp
from retry.kafka.record_limits import RecordRefusal, RefusedFor
from retry.kafka.refused_records import Anchor


class SliceWork(NamedTuple):
    """The rows and the results of one transaction for an action; `state` is None where rows are only tidied up.

    Attributes:
      rows: changelog rows of slices and controls.
      elsewhere: rows of other shards, or of this one, that come behind the entries of returned letters.
    """

    state: ActionState | None
    rows: list[ChangelogRow]
    results: Sequence[tuple[Member, Result]]
    elsewhere: Sequence[tuple[int, ChangelogRow]] = ()


def list_kept(results: Sequence[tuple[Member, Result]]) -> list[tuple[bytes, Entry]]:
    """Keys of the members that are kept as they were, and what is kept of each."""
    changed = ((member, result) for member, result in results if isinstance(result, ActedLetter))
    return [(member.key, result.kept) for member, result in changed if result.kept is not None]


def renew_old(kept: list[Entry], admission: TopicKnowledge, now_ms: int) -> list[Entry]:
    """Letters that are to be kept, with the time of now where their topic takes none so old."""
    limits = admission.record_limits
    if not kept or not limits.has_limits():
        return kept
    refused = limits.find_refused(kept, now_ms)
    is_old = {n for n, refusal in refused.items() if refusal.cause is RefusedFor.TIME}
    return [renew_timestamp(entry) if n in is_old else entry for n, entry in enumerate(kept)]


def find_unkept(
    kept: Sequence[tuple[bytes, Entry]], writer: DryRunWriter, admission: TopicKnowledge, now_ms: int, anchor: Anchor
) -> dict[bytes, RecordRefusal]:
    """Find letters to be kept that their topic refuses, by keys of members; raises TransactionFailed where that stays open."""
    if not kept:
        return {}
    entries = renew_old([entry for _, entry in kept], admission, now_ms)
    return {kept[n][0]: refusal for n, refusal in diagnose(entries, writer, admission, now_ms, anchor).entries.items()}


# An action goes by the policy file that it names: its owner waits for that file, and then holds the action.
#
# By the file go the team, target and order of what is returned, where letters may be redirected, and where they are parked.
# Files of workers change one after another, so an owner waits a while before it holds. The hold says which file the worker has.
# Whoever ends it accepts that file in place of the other one.

# In this time every worker has read a file that was changed, as a rule.
WAIT_MS = 60_000
_KINDS = (action_records.REDIRECT, action_records.PARK)


def goes_by(action: Action) -> bool:
    """Whether what becomes of its letters depends on the policy file; an erase waits for none."""
    return action.kind in _KINDS or (bool(action.parking) and action.kind != action_records.ERASE)


class NamedPolicies:
    """Since when one shard waits for which action. Kept in memory only: whoever owns it next begins anew."""

    def __init__(self) -> None:
        self._since_ms: dict[bytes, int] = {}

    def wait(self, state: ActionState) -> bool:
        """Whether its file was not there when that was asked last."""
        return state.id in self._since_ms

    def build_policy_hold(self, state: ActionState, digest: str, now_ms: int) -> Order | None:
        """The order to hold an action whose file did not come; None where it is there, or not needed, or waited for."""
        accepted = "" if state.resumed is None else state.resumed.policies
        named = state.action.policies
        if not named or digest in (named, accepted) or not goes_by(state.action):
            self._since_ms.pop(state.id, None)
            return None
        since_ms = self._since_ms.setdefault(state.id, now_ms)
        if now_ms - since_ms < WAIT_MS:
            return None
        del self._since_ms[state.id]
        return Order("worker", now_ms, f"it {_describe_state(state, digest)}", policies=digest)

    def describe_waiting(self, states: list[ActionState], digest: str) -> str:
        """Describe which actions wait for a policy file, for the health report; empty where none does."""
        those = (state for state in states if state.id in self._since_ms)
        return "; ".join(f"action {state.id.hex()} {_describe_state(state, digest)}" for state in those)


def _describe_state(state: ActionState, digest: str) -> str:
    return f"waits for the policy file with sha256 {state.action.policies}; this worker's has {digest}"
