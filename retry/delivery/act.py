"""Acting: what operators ask of single letters, done by the owner of their shard, a slice between two sweeps.

See `retry.delay_queue.action_records` for what is asked, and `retry.delivery.acted_entry` for what becomes of a letter. The
effects of one slice, in their order, and what a crash after each costs:

1. look each member up under the key that it names                     nothing
2. begin a transaction                                                 nothing
3. put each letter under its new key, then a null for the old one; put
   what is left of the slice, or its null; put the tally of the shard,
   which counts these letters; tell the record of lineages; publish
   audit and outcomes, and letters as they were before they were
   changed                                                             nothing: all are undone
4. commit                                                              nothing: all stand; the next owner goes on with the next
                                                                       slice, as its table says
5. drop the old rows from the table, before anything is swept          nothing: the fold finds the same nulls

A member that does not wait under its key is `gone`, or of an edit `changed`: it was sent, or moved by something else, and nothing
is done for it. One that could not be kept as it was, since the topic of discarded letters refuses that, is `refused`, and left
as it is. So a letter is acted on once, however many operators ask, and however often an owner ends. Nothing is read until all is
folded that was written before: tally and slices are those of the table, and of nothing else. Where the topics of the
audit, of outcomes or of discarded letters cannot be written to, actions wait, and deliveries do not.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from retry.delay_queue import action_records, action_state, ramp_records, returned_offsets
from retry.delay_queue.action_records import Member, Order, Slice, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery import act_records, movers, slice_members
from retry.delivery.act_records import Result, make_audit_records
from retry.delivery.letter_changes import GONE, ActedLetter, Refusal
from retry.delivery.movers import Effect, MoveContext, MovedBatch, Mover
from retry.delivery.ramp_runner import RampRunner
from retry.delivery.returned_letter import LetterReturns
from retry.delivery.slice_members import NamedPolicies, Orphans, RestingLetters, SliceWork, WaitingLetters, act_on_members
from retry.delivery.sweep import ChangelogPartition, await_arrival
from retry.errors import TransactionAborted, TransactionSlow
from retry.kafka.record_limits import RefusedFor
from retry.kafka.refused_records import Anchor

log = logging.getLogger(__name__)

# So long an action that has ended is remembered: whoever asks for it again finds that it was done.
ENDED_MS = 30 * 86_400_000
# After a transaction that was undone; sweeps go on meanwhile.
_AGAIN_MS = 30_000
_ANY_PARTITION = -1
# Slices that end at a time where nothing is done for their letters.
_SLICES_MAX = 20
_COUNTED_AT_ONCE = 100
CANCELLED, INCOMPLETE = "cancelled", "incomplete"
GROWN = "the changelog has {now} partitions for this worker, and had {asked}: cancel it, start all workers anew, and ask again"


class Acting(Mover):
    """How far one shard has come with actions: only what its table does not say."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        super().__init__(changelog, table)
        self._ramp_runner = RampRunner(changelog.partition, table)
        self._counted: set[bytes] = set()
        self._controls: Mapping[bytes, bytes] = {}
        self._states: list[ActionState] = []
        self._orphans, self._named = Orphans(), NamedPolicies()
        self._again_at_ms = 0
        # Members that cannot be kept as they were; in memory only, so that whoever owns the shard next finds out anew.
        self._refused: set[bytes] = set()

    def move_batch(self, context: MoveContext) -> MovedBatch:
        """Do one slice of what is asked for; where it is merely aborted it is tried again some time later."""
        if context.now_ms < self._again_at_ms or not self.is_settled(context.end):
            return MovedBatch()
        work = self._choose_work(context)
        if work is None or (work.state is not None and self._is_closed(context)):
            return MovedBatch()
        try:
            self._commit(context, work)
        except TransactionSlow:
            # Again at once, with less.
            raise
        except TransactionAborted:
            if not self._find_refused(context, work):
                self._again_at_ms = context.now_ms + _AGAIN_MS
            raise
        self.expect_fold()
        acted = sum(not isinstance(result, Refusal) for _, result in work.results)
        if acted:
            log.info("shard %d: %d letters acted on", self._changelog.partition, acted)
        return MovedBatch(Effect.MOVED if acted else Effect.NONE, acted)

    def _find_refused(self, context: MoveContext, work: SliceWork) -> bool:
        kept, anchor = slice_members.list_kept(work.results), Anchor(*self._changelog, work.rows[0][0])
        found = slice_members.find_unkept(kept, context.writer, context.admission, context.now_ms, anchor)
        # What is merely too old is kept with another time, now that this is known.
        self._refused |= {key for key, refusal in found.items() if refusal.cause is not RefusedFor.TIME}
        for why in sorted({refusal.why for refusal in found.values()}):
            log.warning("shard %d: letters cannot be kept as they were: %s", self._changelog.partition, why)
        return bool(found)

    def _is_closed(self, context: MoveContext) -> bool:
        """Whether what is told of an action could not be written just now."""
        closed = context.admission.find_closed({context.audit, context.outcomes, context.discarded})
        if closed:
            self._again_at_ms = context.now_ms + _AGAIN_MS
            log.warning("shard %d: actions wait: %s", self._changelog.partition, "; ".join(closed.values()))
        return bool(closed)

    def _choose_work(self, context: MoveContext) -> SliceWork | None:
        shard, now_ms = self._changelog.partition, context.now_ms
        for state in self._list_known():
            if work := self._ramp_runner.judge_ramp(state, context):
                return work
            if state.has_ended(shard):
                if now_ms - state.action.asked_at_ms > ENDED_MS:
                    return SliceWork(None, _forgotten(state.id, self._table.controls), [])
            elif state.cancelled is not None:
                return self._drop_rest(state)
            elif state.held is None and (order := self._build_hold_order(state, context)):
                return _make_hold(state, order)
            elif state.held is None and not self._named.is_waiting(state) and (found := self._find_open_slice(state)):
                # None while its records are being read: another question would take the place of that one.
                return self._slice(*found, context)
            if work := self._ramp_runner.count_sent(state):
                return work
        orphans = self._orphans.find_orphans(self._table, shard, self._states, now_ms)
        return SliceWork(None, [(key, None) for key in orphans], []) if orphans else None

    def _list_known(self) -> list[ActionState]:
        if (controls := self._table.controls) is not self._controls:
            self._controls, self._states = controls, action_state.read_states(controls)
        return self._states

    def _build_hold_order(self, state: ActionState, context: MoveContext) -> Order | None:
        """Why the shard has to wait, if it has."""
        if not self._is_complete(state):
            return Order("worker", context.now_ms, INCOMPLETE)
        if state.action.parking and context.shards not in (0, len(state.action.slices)):
            # What is returned would lie elsewhere than what intake has taken in of the same key.
            return Order("worker", context.now_ms, GROWN.format(asked=len(state.action.slices), now=context.shards))
        return self._named.build_policy_hold(state, context.redecider.digest, context.now_ms)

    def describe_waiting(self, digest: str) -> str:
        return self._named.describe_waiting(self._states, digest)

    def _is_complete(self, state: ActionState) -> bool:
        if state.id not in self._counted:
            found, at, wanted = 0, b"", state.count_left(self._changelog.partition)
            while found < wanted and (
                page := self._table.list_slices(action_records.build_slices_prefix(state.id), _COUNTED_AT_ONCE, at)
            ):
                found, at = found + len(page), page[-1][0]
            if found < wanted:
                return False
            self._counted.add(state.id)
        return True

    def _slice(self, state: ActionState, key: bytes, members: Slice, context: MoveContext) -> SliceWork | None:
        """A slice, or as much of it as one transaction takes; None where that is not known yet."""
        redecider, discarded, now_ms = context.redecider, context.discarded, context.now_ms
        letters: WaitingLetters | RestingLetters
        readable, bitmaps = members.members, dict[bytes, bytes | None]()
        if readable and returned_offsets.is_place(readable[0].key):
            found = context.ask_parked(state.action.parking, [member.key for member in readable])
            if found is None:
                return None
            readable = list(takewhile(lambda member: member.key in found, readable))
            returns = LetterReturns(redecider, discarded, len(state.action.slices))
            letters = RestingLetters(state, self._table, returns, found, now_ms)
            bitmaps = letters.bitmaps
        else:
            letters = WaitingLetters(state, self._table, redecider, discarded, now_ms)
        results = act_on_members(readable, letters, context.bytes_max, self._refused)
        left = members.members[len(results) :]
        rest = action_records.encode_slice(left, members.written_at_ms) if left else None
        tally = _add_to_tally(state.tally, results, slices=not left)
        put: list[ChangelogRow] = []
        elsewhere: list[tuple[int, ChangelogRow]] = []
        if state.at_step is not None:
            tally, put, elsewhere = self._ramp_runner.list_puts(state, tally, results, now_ms)
        rows = [(key, rest), (action_records.tally_key(state.id), action_records.encode(tally)), *bitmaps.items(), *put]
        return SliceWork(state, rows, results, elsewhere)

    def _find_open_slice(self, state: ActionState) -> tuple[ActionState, bytes, Slice] | None:
        """The first slice, if its step is open, and the action at that step."""
        if not (found := self._table.list_slices(action_records.build_slices_prefix(state.id), 1)):
            # All of them are done, and a ramp is still to be judged.
            return None
        key, value = found[0]
        if state.action.ramp is not None:
            if (step := ramp_records.step_of(key)) > state.step.step:
                return None
            state = state._replace(at_step=step)
        return state, key, action_records.decode_slice(value)

    def _drop_rest(self, state: ActionState) -> SliceWork:
        slices = self._table.list_slices(action_records.build_slices_prefix(state.id), _SLICES_MAX)
        results = [(member, Refusal(CANCELLED)) for _, value in slices for member in action_records.decode_slice(value).members]
        ended = len(slices) if len(slices) == _SLICES_MAX else state.count_left(self._changelog.partition)
        tally = _add_to_tally(state.tally, results, slices=ended)
        rows: list[ChangelogRow] = [(key, None) for key, _ in slices]
        return SliceWork(state, [*rows, (action_records.tally_key(state.id), action_records.encode(tally))], results)

    def _commit(self, context: MoveContext, work: SliceWork) -> None:
        writer, now_ms = context.writer, context.now_ms
        acted = [result for _, result in work.results if isinstance(result, ActedLetter)]
        moves, back = [each.move for each in acted if each.move], [each for each in acted if each.move is None]
        rows = [*movers.list_replacements(self._table, moves), *work.rows]
        writer.begin()
        writer.write(*self._changelog, [{"key": key, "value": value} for key, value in rows])
        lineages = context.redecider.lineages
        # A letter that comes back without headers is known by what was sent, and when.
        moved, sent = [each.moved for each in acted if each.moved], [each.sent for each in acted if each.sent]
        for by_partition in (lineages.pack_by_partition(moved, moves=True), lineages.pack_by_partition(sent)):
            for partition, told_of in by_partition.items():
                writer.write(lineages.name, partition, [{**row, "key": work.state and work.state.mark} for row in told_of])
        if work.state is not None:
            writer.write(context.outcomes, _ANY_PARTITION, act_records.build_outcomes(work.state, work.results, now_ms))
            changed = [entry for _, entry in slice_members.list_kept(work.results)]
            kept = slice_members.renew_old(changed, context.admission, now_ms)
            shard, codec = self._changelog.partition, context.codec
            told = [*kept, *make_audit_records(work.state, work.results, context.audit, shard, now_ms, codec)]
            entries, shards = slice_members.list_puts(back, self._changelog.topic)
            entries += [Entry(self._changelog.topic, key, value, [], None, "") for _, (key, value) in work.elsewhere]
            shards += [shard for shard, _ in work.elsewhere]
            writer.publish([*entries, *told], now_ms, [*shards, *([_ANY_PARTITION] * len(told))])
            await_arrival(told, writer, context.admission)
        writer.commit()
        self._table.delete_rows([each.key for each in moves], [(each.packed.key, each.packed.envelope) for each in moves])


def _add_to_tally(before: Tally, results: Sequence[tuple[Member, Result]], *, slices: int) -> Tally:
    refused = Counter(before.refused)
    refused.update(result.reason for _, result in results if isinstance(result, Refusal))
    gone = refused.pop(GONE, 0)
    done = sum(not isinstance(result, Refusal) for _, result in results)
    return msgspec.structs.replace(
        before, slices=before.slices + slices, done=before.done + done, gone=before.gone + gone, refused=dict(refused)
    )


def _make_hold(state: ActionState, order: Order) -> SliceWork:
    """The shard waits, by an order that what was resumed before, by a clock that was ahead, does not end."""
    at_ms = order.at_ms if state.resumed is None else max(order.at_ms, state.resumed.hold + 1)
    value = action_records.encode(msgspec.structs.replace(order, at_ms=at_ms))
    return SliceWork(None, [(action_records.build_held_key(state.id), value)], [])


def _forgotten(action: bytes, controls: Any) -> list[ChangelogRow]:
    head = action_records.build_head_key(action)
    return [(key, None) for key in controls if key == head or key.startswith(head + b"/")]

