"""The owner's side of a ramp, which is an action that goes on in steps. See `retry.delay_queue.ramp_records`.

Each owner works off slices of the steps that are open, and writes down, in the same transaction, under which keys their letters
wait to be sent (`list_puts`). Once none of those waits any more they are counted as sent (`count_sent`). The owner of shard 0
alone judges: where all letters of a step were sent, and consumers have passed them, it opens the next one; where too few recover,
or a target's breaker is open, it holds the ramp. Until the fold has told of what was written, nothing more is: all is told from
the table. What is kept in memory is how long nothing has changed; whoever takes over begins to wait anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from retry.delay_queue import action_records, entry_keys, ramp_records
from retry.delay_queue.action_records import Member, Order, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.ramp_records import HOME, Ramp, Step, StepTally
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.act_records import Result
from retry.delivery.letter_changes import ActedLetter
from retry.delivery.movers import ConsumerProgress, MoveContext
from retry.delivery.ramp import StepCounts, count_steps, explain_hold
from retry.delivery.slice_members import SliceWork
from retry.intake import attempts

# Transactions of letters that are counted as sent at a time.
_SENT_AT_ONCE = 20
_MARKS_AT_ONCE = 10_000
# Marks are counted so often, and less often where there are many.
_COUNTED_EVERY_MS, _MARKS_A_MS = 1_000, 10


@dataclass(slots=True)
class _Waiting:
    """A step that is sent and not judged: since when nothing has changed, and since when consumers have passed it."""

    step: int
    counts: list[StepCounts]
    changed_ms: int
    passed_ms: int | None = None


@dataclass(slots=True)
class _Marks:
    """How many lineages failed again in each step, when that was counted, and how far the table was folded then."""

    failed: list[int]
    again_ms: int
    offset: int


class RampRunner:
    def __init__(self, shard: int, table: Table) -> None:
        self._shard, self._table = shard, table
        self._waits: dict[bytes, bytes] = {}
        self._waiting: dict[bytes, _Waiting] = {}
        self._marks: dict[bytes, _Marks] = {}

    def judge_ramp(self, state: ActionState, context: MoveContext) -> SliceWork | None:
        """Open the next step, or hold the ramp; tidy up after one that has ended. None where there is nothing of that."""
        ramp = state.action.ramp
        if ramp is None:
            return None
        if not state.climbs:
            return self._end_work(state) if self._table.has_slices else None
        return self._judge_step(state, ramp, context) if self._shard == HOME else None

    def list_puts(
        self, state: ActionState, tally: Tally, results: Sequence[tuple[Member, Result]], now_ms: int
    ) -> tuple[Tally, list[ChangelogRow], list[tuple[int, ChangelogRow]]]:
        """Return what a transaction that puts letters of a step writes: the tally, rows of this shard, and (shard, row) pairs."""
        step, number = state.at_step or 0, state.tally.members
        acted = [result for _, result in results if isinstance(result, ActedLetter)]
        to = {*tally.targets, *(each.entry.destination for each in acted)}
        done = StepTally(len(results), len(acted))
        # Only what is counted by step is missing from the tally that is given.
        tally = msgspec.structs.replace(tally, steps=_add_tally(tally.steps, step, done), targets=sorted(to))
        key = ramp_records.build_sending_key(state.id, step, self._shard, number)
        by_shard: dict[int | None, list[bytes]] = {}
        for each in acted:
            by_shard.setdefault(each.shard, []).append(each.key)
        told = [(shard, (key, _encode_members(keys, now_ms))) for shard, keys in by_shard.items()]
        rows: list[ChangelogRow] = [row for shard, row in told if shard is None]
        elsewhere: list[tuple[int, ChangelogRow]] = [(shard, row) for shard, row in told if shard is not None]
        return tally, rows, [*elsewhere, *self._copy_tally(state, tally)]

    def _copy_tally(self, state: ActionState, tally: Tally) -> list[tuple[int, ChangelogRow]]:
        key = ramp_records.tally_copy_key(state.id, self._shard)
        return [] if self._shard == HOME else [(HOME, (key, action_records.encode(tally)))]

    def _end_work(self, state: ActionState) -> SliceWork | None:
        for kept in (self._waits, self._waiting, self._marks):
            kept.pop(state.id, None)
        left = self._table.list_slices(ramp_records.build_sending_prefix(state.id), _SENT_AT_ONCE)
        return SliceWork(None, [(key, None) for key, _ in left], []) if left else None

    def count_sent(self, state: ActionState) -> SliceWork | None:
        if not state.climbs:
            return None
        waits = self._waits.get(state.id, b"")
        if waits and self._is_there(waits):
            return None
        steps, rows = state.tally.steps, list[ChangelogRow]()
        for key, value in self._table.list_slices(ramp_records.build_sending_prefix(state.id), _SENT_AT_ONCE):
            members = action_records.decode_slice(value).members
            waits = next((member.key for member in members if self._is_there(member.key)), b"")
            if waits:
                self._waits[state.id] = waits
                break
            rows.append((key, None))
            steps = _add_tally(steps, ramp_records.step_of(key), StepTally(sent=len(members)))
        if not rows:
            return None
        tally = msgspec.structs.replace(state.tally, steps=steps)
        rows.append((action_records.tally_key(state.id), action_records.encode(tally)))
        return SliceWork(state, rows, [], self._copy_tally(state, tally))

    def _is_there(self, key: bytes) -> bool:
        return self._table.get(key) is not None or self._table.get(entry_keys.make_held_key(key)) is not None

    def _judge_step(self, state: ActionState, ramp: Ramp, context: MoveContext) -> SliceWork | None:
        step, now_ms = state.step, context.now_ms
        if state.held is not None:
            self._waiting.pop(state.id, None)
            return None
        counts = self._count_steps(state, ramp, now_ms)
        if step.held_ms:
            # An operator lets it go on: what was before does not count any more.
            now = counts[step.step]
            following = Step(step.step + 1, step.step + 1)
            return self._open_step(state, following if now.is_put else Step(step.step, step.step, (now.put, now.failed)))
        if why := self._hold_if_failing(state, ramp, counts, context):
            return why
        if not counts[step.step].is_sent:
            return None
        passing = self._read_passing(state, ramp, counts, context)
        if passing is None:
            return None
        counts = self._count_steps(state, ramp, now_ms, fresh=True)
        stopped = self._hold_if_failing(state, ramp, counts, context)
        return stopped or self._open_step(state, msgspec.structs.replace(step, step=step.step + 1, silent=passing.silent))

    def _count_steps(self, state: ActionState, ramp: Ramp, now_ms: int, *, fresh: bool = False) -> list[StepCounts]:
        failed = self._count_failed(state, len(ramp.steps), now_ms, fresh=fresh)
        return count_steps(ramp, (state.tally, *state.others), failed)

    def _count_failed(self, state: ActionState, steps: int, now_ms: int, *, fresh: bool) -> list[int]:
        """How many marks each step has; counted anew at once, or where some time has passed."""
        marks, offset = self._marks.get(state.id), self._table.next_offset
        if marks is not None and (marks.offset == offset or (not fresh and now_ms < marks.again_ms)):
            return marks.failed
        found, at = Counter[int](), b""
        prefix, teams = (
            ramp_records.build_failed_prefix(state.id),
            {attempts.shorten_team_number(team) for team in state.action.teams},
        )
        while rows := self._table.list_slices(prefix, _MARKS_AT_ONCE, at):
            # What letters of others say of it is no more than what their headers say.
            counted_keys = [key for key, _ in rows if not teams or ramp_records.read_failed_team(key) in teams]
            found.update(map(ramp_records.step_of, counted_keys))
            at = rows[-1][0]
        failed = [found[n] for n in range(steps)]
        again_ms = now_ms + _COUNTED_EVERY_MS + sum(failed) // _MARKS_A_MS
        self._marks[state.id] = _Marks(failed, again_ms, offset)
        return failed

    def _hold_if_failing(
        self, state: ActionState, ramp: Ramp, counts: list[StepCounts], context: MoveContext
    ) -> SliceWork | None:
        """Hold the ramp where too few letters recover, or a target takes none; not where nothing is left to be held."""
        step = state.step
        if step.step == len(ramp.steps) - 1 and counts[step.step].is_put:
            return None
        targets = {target for tally in (state.tally, *state.others) for target in tally.targets}
        at_ms = context.now_ms if state.resumed is None else max(context.now_ms, state.resumed.hold + 1)
        if why := explain_hold(ramp, counts, step):
            return self._hold_ramp(state, Order("worker", at_ms, why), msgspec.structs.replace(step, held_ms=at_ms))
        if tripped := context.admission.list_tripped(targets, context.now_ms):
            return self._hold_ramp(state, Order("worker", at_ms, f"the breaker of {', '.join(tripped)} is open"), step)
        return None

    def _read_passing(
        self, state: ActionState, ramp: Ramp, counts: list[StepCounts], context: MoveContext
    ) -> ConsumerProgress | None:
        """Return what consumers say of a step that was sent, once that has held for long enough; None before."""
        now_ms, step = context.now_ms, state.step.step
        waiting = self._waiting.get(state.id)
        if waiting is None or waiting.step != step:
            waiting = self._waiting[state.id] = _Waiting(step, counts, now_ms)
        if waiting.counts != counts:
            waiting.counts, waiting.changed_ms = counts, now_ms
        targets = sorted({target for tally in (state.tally, *state.others) for target in tally.targets})
        if not counts[step].put:
            return ConsumerProgress(reached=True, silent=[])
        passing = context.ask_passed(ramp_records.mark(state.id, step), targets)
        if passing is None or (passing.silent and now_ms - waiting.changed_ms < ramp.silence_ms):
            return None
        if len(passing.silent) < len(targets):
            if not passing.reached:
                return None
            waiting.passed_ms = now_ms if waiting.passed_ms is None else waiting.passed_ms
            if now_ms - waiting.passed_ms < ramp.settle_ms:
                return None
        return passing

    def _open_step(self, state: ActionState, step: Step) -> SliceWork:
        self._waiting.pop(state.id, None)
        return _everywhere(state, [(ramp_records.step_key(state.id), msgspec.json.encode(step))])

    def _hold_ramp(self, state: ActionState, order: Order, step: Step) -> SliceWork:
        # A step that was judged must never be read without the hold: that would end it.
        held = (action_records.build_held_key(state.id), action_records.encode(order))
        return _everywhere(state, [held, (ramp_records.step_key(state.id), msgspec.json.encode(step))])


def _everywhere(state: ActionState, rows: list[ChangelogRow]) -> SliceWork:
    others = range(1, len(state.action.slices))
    return SliceWork(state, rows, [], [(shard, row) for shard in others for row in rows])


def _add_tally(steps: Sequence[StepTally], step: int, more: StepTally) -> list[StepTally]:
    grown = [*steps, *(StepTally() for _ in range(step + 1 - len(steps)))]
    was = grown[step]
    grown[step] = StepTally(was.worked + more.worked, was.put + more.put, was.sent + more.sent)
    return grown


def _encode_members(keys: Iterable[bytes], now_ms: int) -> bytes:
    return action_records.encode_slice((Member(key, 0) for key in keys), now_ms)
