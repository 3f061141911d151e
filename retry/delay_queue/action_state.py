"""An action as one shard has it: what the head, the orders, the tally and the steps of `action_records` come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from retry.delay_queue import action_records
from retry.delay_queue.action_records import PREFIX, Action, Order, Tally, decode_action, decode_order, decode_tally
from retry.delay_queue.ramp_records import HOME, Step, decode_step, mark, step_key, tally_copy_key
from retry.errors import EntryUnreadable
from retry.format_versions import DECODE_ERRORS

_Record = TypeVar("_Record")
# By what stands in the key behind the id of the action.
_DECODERS: dict[bytes, Callable[[bytes], object]] = {
    b"": decode_action, b"held": decode_order, b"resumed": decode_order, b"cancelled": decode_order, b"tally": decode_tally,
    b"step": decode_step,
}  # fmt: skip


class ActionState(NamedTuple):
    """An action as one shard has it.

    Attributes:
      held: the order to hold it; None where it was resumed since.
      resumed: the last order to go on.
      others: of a ramp, in the shard that judges it: what other shards have done.
    """

    id: bytes
    action: Action
    held: Order | None
    cancelled: Order | None
    tally: Tally
    resumed: Order | None = None
    step: Step = Step()
    others: tuple[Tally, ...] = ()
    at_step: int | None = None

    @property
    def mark(self) -> bytes:
        """The value of the header `retry-action` in letters that the action puts: its id, in a ramp `<id>/<step>`."""
        return self.id.hex().encode() if self.at_step is None else mark(self.id, self.at_step)

    @property
    def climbs(self) -> bool:
        """Whether it goes on in steps that are not all judged."""
        ramp = self.action.ramp
        return ramp is not None and self.cancelled is None and self.step.step < len(ramp.steps)

    def has_ended(self, shard: int) -> bool:
        """Whether nothing of it is left to be done in that shard; one judges the steps of a ramp besides."""
        return not self.count_left(shard) and not (self.climbs and shard == HOME)

    def count_slices(self, shard: int) -> int:
        """Count the slices that a shard had; 0 where there was no such shard yet."""
        return self.action.slices[shard] if shard < len(self.action.slices) else 0

    def count_left(self, shard: int) -> int:
        """Count the slices that a shard is not done with."""
        return max(0, self.count_slices(shard) - self.tally.slices)


def read_states(controls: Mapping[bytes, bytes]) -> list[ActionState]:
    """Read the actions that control records tell of, in the order of their requests; raises EntryUnreadable as `check`."""
    heads = [key for key in controls if key.startswith(PREFIX) and key.count(b"/") == 1]
    found = [_read_action_state(controls, key) for key in heads]
    return sorted(found, key=lambda each: (each.action.asked_at_ms, each.id))


def check(key: bytes, value: bytes) -> None:
    """Look at one record of an action, whichever it is; raises EntryUnreadable where no version wrote it."""
    action, _, what = key[len(PREFIX) :].partition(b"/")
    _id_of(action)
    decode = _DECODERS.get(what.partition(b"/")[0])
    if decode is None:
        raise EntryUnreadable(f"no record of an action has the key {key!r:.100}")
    _decode_record(value, decode)


def _id_of(action: bytes) -> bytes:
    try:
        return bytes.fromhex(action.decode())
    except ValueError as error:
        raise EntryUnreadable(f"no action is called {action!r:.100}") from error


def _read_action_state(controls: Mapping[bytes, bytes], head: bytes) -> ActionState:
    action = _id_of(head[len(PREFIX) :])
    held = _read(controls, action_records.build_held_key(action), decode_order)
    resumed = _read(controls, action_records.build_resumed_key(action), decode_order)
    if held is not None and resumed is not None and resumed.hold >= held.at_ms:
        held = None
    asked = _decode_record(controls[head], decode_action)
    cancelled = _read(controls, action_records.build_cancelled_key(action), decode_order)
    tally = _read(controls, action_records.tally_key(action), decode_tally) or Tally()
    state = ActionState(action, asked, held, cancelled, tally, resumed)
    if asked.ramp is None:
        return state
    step = _read(controls, step_key(action), decode_step) or Step()
    copies = (_read(controls, tally_copy_key(action, shard), decode_tally) for shard in range(len(asked.slices)))
    return state._replace(step=step, others=tuple(copy for copy in copies if copy is not None))


def _read(controls: Mapping[bytes, bytes], key: bytes, decode: Callable[[bytes], _Record]) -> _Record | None:
    value = controls.get(key)
    return None if value is None else _decode_record(value, decode)


def _decode_record(value: bytes, decode: Callable[[bytes], _Record]) -> _Record:
    try:
        return decode(value)
    except DECODE_ERRORS as error:
        raise EntryUnreadable(f"a record of an action cannot be read: {error}") from error
