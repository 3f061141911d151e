"""Follows how far the shards have come with an action, from its start on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import TracebackType

from retry.decoding import DECODE_ERRORS
from retry.delay_queue import action_records, ramp_records
from retry.delay_queue.action_records import Action, Order, Tally
from retry.operations.control_requests import ShardNumbers
from retry.telemetry.unreadable_records import UNREADABLE

_RECORDS_MAX = 5_000
_LINGER_S = 0.2


class Following:
    """Reads the changelog from where it ended when this was made: make it before the action is started.

    Attributes:
      tallies: of the shards that have begun.
      held: the order by which one of them waits; None where none does.
      step: how far a ramp has come.
    """

    def __init__(self, shards: ShardNumbers, action_id: bytes) -> None:
        self._follower, ends = shards.follower()
        for partition, offset in ends.items():
            self._follower.follow_partition(shards.topic, partition, offset)
        self._tally, self._held = action_records.tally_key(action_id), action_records.held_key(action_id)
        self._resumed = action_records.resumed_key(action_id)
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
        """Return the sum of the tallies of all shards."""
        return sum_tallies(self.tallies.values())

    def poll_progress(self) -> bool:
        """Read on, for a moment; whether a shard has come further."""
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
        """Shards that are not done yet."""
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
