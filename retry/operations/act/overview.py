"""Actions as the changelog has them: who asked for what, how far all shards together have come, and orders to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol

from retry.delay_queue import action_records, action_state, ramp_records
from retry.delay_queue.action_records import Action, Order, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.ramp_records import Step
from retry.delivery import ramp
from retry.delivery.ramp import StepCounts
from retry.errors import ActionRefused
from retry.format_versions import DECODE_ERRORS
from retry.operations.act.audit import encode_person_act
from retry.operations.control_requests import ShardNumbers
from retry.telemetry.unreadable_records import UNREADABLE

# Follows how far the shards have come with an action, from its start on.

_RECORDS_MAX = 5_000
_LINGER_S = 0.2


class Following:
    """Reads the changelog from where it ended when this was made: make it before the action is started.

    Attributes:
      tallies: of the shards that have begun.
      held: the order by which one of them waits; None where none does.
    """

    def __init__(self, shards: ShardNumbers, action_id: bytes) -> None:
        self._follower = shards.make_reader()
        self._tally, self._held = action_records.tally_key(action_id), action_records.build_held_key(action_id)
        self._resumed = action_records.build_resumed_key(action_id)
        self._step = ramp_records.step_key(action_id)
        self.tallies: dict[int, Tally] = {}
        self.step = 0
        self.held: Order | None = None

    def __enter__(self) -> Following:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._follower.close()

    @property
    def tally(self) -> Tally:
        return sum_tallies(self.tallies.values())

    def poll_progress(self) -> bool:
        """Read on, for a moment, and return whether a shard has come further."""
        before = self.tally.members, self.step
        for message in self._follower.read(_RECORDS_MAX, _LINGER_S):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                try:
                    self._apply_record(message.partition() or 0, key, value)
                except DECODE_ERRORS as error:
                    UNREADABLE.pass_over(message.topic(), message.partition(), message.offset(), error)
        return (self.tally.members, self.step) > before

    def _apply_record(self, shard: int, key: bytes, value: bytes) -> None:
        if key == self._tally:
            self.tallies[shard] = action_records.decode_tally(value)
        elif key == self._step:
            self.step = ramp_records.decode_step(value).step
        elif key == self._held:
            self.held = action_records.decode_order(value)
        elif key == self._resumed and self.held and action_records.decode_order(value).hold >= self.held.at_ms:
            self.held = None

    def list_left(self, action: Action) -> list[int]:
        """List the shards that are not done yet."""
        done = {shard: tally.slices for shard, tally in self.tallies.items()}
        climbs = action.ramp is not None and self.step < len(action.ramp.steps)
        return [
            shard for shard, slices in enumerate(action.slices)
            if done.get(shard, 0) < slices or (climbs and shard == ramp_records.HOME)
        ]  # fmt: skip


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    slices = done = gone = 0
    refused: Counter[str] = Counter()
    for tally in tallies:
        slices, done, gone = slices + tally.slices, done + tally.done, gone + tally.gone
        refused.update(tally.refused)
    return Tally(slices, done, gone, dict(refused))


_CONTROLS = b"\x10action/"


class ShardRecords(Protocol):
    """Records of each partition of the changelog whose keys begin so: see `ShardNumbers`, or a copy of them."""

    def list_records(self, *prefixes: bytes) -> list[dict[bytes, bytes]]: ...


class ActionOverview(NamedTuple):
    """An action over all shards.

    Attributes:
      held: the latest order by which a shard waits; None where none does.
      left: shards that are not done yet.
      steps: what all shards together have done of each of its steps; no letter that failed again is counted.
      policies: SHA-256 of the policy file that an order to go on has accepted; empty where none has.
      ended_hold_ms: when the last hold was made that an order to go on has ended, in whichever shard; 0 where none was.
    """

    id: bytes
    action: Action
    held: Order | None
    cancelled: Order | None
    tally: Tally
    left: list[int]
    ended_hold_ms: int
    policies: str = ""
    step: Step = Step()
    steps: Sequence[StepCounts] = ()

    @property
    def status(self) -> str:
        """Return `cancelled`, `done`, `running` or `held`."""
        if self.cancelled is not None:
            return "cancelled"
        if not self.left:
            return "done"
        return "running" if self.held is None else "held"

    @property
    def is_under_way(self) -> bool:
        """Whether it runs or is on hold."""
        return self.status in ("running", "held")

    @property
    def open_step(self) -> int | None:
        """Return which step of its ramp is open, from 1; None of an action without steps."""
        ramp = self.action.ramp
        return None if ramp is None else ramp.find_open_step(self.step.step)


def list_overviews(shards: ShardRecords) -> list[ActionOverview]:
    """List every action that the changelog remembers, those that were asked for last first.

    Raises:
      TopicsInvalid: the changelog cannot be read.
      EntryUnreadable: an action says what no version says.
    """
    by_id: dict[bytes, dict[int, ActionState]] = {}
    for shard, controls in enumerate(shards.list_records(_CONTROLS)):
        for state in action_state.read_states(controls):
            by_id.setdefault(state.id, {})[shard] = state
    found = [_overview(states) for states in by_id.values()]
    return sorted(found, key=lambda each: (-each.action.asked_at_ms, each.id))


def find(overviews: Sequence[ActionOverview], text: str) -> ActionOverview:
    """Find the action whose id begins so; raises `ActionRefused` where there is none, or more than one."""
    found = [each for each in overviews if each.id.hex().startswith(text.lower())]
    if len(found) != 1:
        several = f"{len(found)} actions have ids that begin with {text}; write more of it"
        raise ActionRefused(several if found else f"there is no action {text}; `retry actions` lists those of the last 30 days")
    return found[0]


def hold_action(shards: ShardNumbers, about: ActionOverview, by: str, reason: str) -> None:
    """Put the action on hold; the audit has this and the other orders, in the transaction that gives them.

    Raises:
      ActionRefused: nothing of the action is left to be done.
      TransactionFailed: it is not known whether the action is on hold; asking again does no harm.
      RightMissing: this user may not write to the changelog, or to the audit.
    """
    _demand_left(about)
    # By the brokers' time it may not be later than a hold of a worker's that was ended.
    at_ms = max(shards.now_ms(), about.ended_hold_ms + 1)
    _publish_order(shards, about, "hold", action_records.build_held_key(about.id), Order(by, at_ms, reason))


def resume(shards: ShardNumbers, about: ActionOverview, by: str, reason: str) -> None:
    """End the hold that stands; raises as `hold_action`, and where none does."""
    _demand_left(about)
    if about.held is None:
        raise ActionRefused("it is not held")
    order = Order(by, shards.now_ms(), reason, about.held.at_ms, about.held.policies or about.policies)
    _publish_order(shards, about, "resume", action_records.build_resumed_key(about.id), order)


def cancel(shards: ShardNumbers, about: ActionOverview, by: str, reason: str) -> None:
    """Leave alone what is not done yet; raises as `hold_action`."""
    _demand_left(about)
    _publish_order(shards, about, "cancel", action_records.build_cancelled_key(about.id), Order(by, shards.now_ms(), reason))


ORDERS = {"hold": hold_action, "resume": resume, "cancel": cancel}


def _publish_order(shards: ShardNumbers, about: ActionOverview, what: str, key: bytes, order: Order) -> None:
    action_id = about.id.hex()
    told = encode_person_act(what, order.by, order.reason, order.at_ms, [], about.action.teams, action_id)
    shards.put_control_record(key, action_records.encode(order), (action_id.encode(), told))


def add_failed_letters(shards: ShardNumbers, about: ActionOverview) -> ActionOverview:
    """Add how many letters failed again after a ramp had sent them; reads the changelog once more."""
    marks = shards.list_records(ramp_records.build_failed_prefix(about.id))[ramp_records.HOME]
    return set_failed_again(about, Counter(map(ramp_records.step_of, marks)))


def set_failed_again(about: ActionOverview, failed: Mapping[int, int]) -> ActionOverview:
    """Set how many letters failed again in each step of a ramp; `failed` goes by the number of the step, from 0."""
    return about._replace(steps=[each._replace(failed=failed.get(n, 0)) for n, each in enumerate(about.steps)])


def _steps(action: Action, states: dict[int, ActionState]) -> list[StepCounts]:
    if action.ramp is None:
        return []
    return ramp.count_steps(action.ramp, [state.tally for state in states.values()], [0] * len(action.ramp.steps))


def _overview(states: dict[int, ActionState]) -> ActionOverview:
    some = next(iter(states.values()))
    held = [state.held for shard, state in states.items() if state.held is not None and not state.has_ended(shard)]
    return ActionOverview(
        some.id, some.action, held=max(held, key=lambda order: order.at_ms, default=None),
        cancelled=next((state.cancelled for state in states.values() if state.cancelled is not None), None),
        tally=sum_tallies(state.tally for state in states.values()),
        left=sorted(shard for shard, state in states.items() if not state.has_ended(shard)),
        ended_hold_ms=max((state.resumed.hold for state in states.values() if state.resumed is not None), default=0),
        policies=next((state.resumed.policies for state in states.values() if state.resumed is not None), ""),
        step=states[ramp_records.HOME].step if ramp_records.HOME in states else Step(),
        steps=_steps(some.action, states),
    )  # fmt: skip


def _demand_left(about: ActionOverview) -> None:
    if not about.left:
        raise ActionRefused("nothing of it is left to be done")
