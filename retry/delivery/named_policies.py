"""An action goes by the policy file that it names: its owner waits for that file, and then holds the action.

By the file go the team, target and order of what is returned, where letters may be redirected, and where they are parked. Files
of workers change one after another, so an owner waits a while before it holds. The hold says which file the worker has. Whoever
ends it accepts that file in place of the other one.
"""

from __future__ import annotations

from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Order
from retry.delay_queue.action_state import ActionState

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
        """The order to hold an action whose file did not come; None where it is there, or not needed, or waited for.

        Args:
          digest: of the worker's file.
        """
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
