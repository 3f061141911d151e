"""Acting: what operators ask of single letters, done by the owner of their shard, a slice between two sweeps.

See `retry.delay_queue.action_records` for what is asked, and `retry.delivery.acted_entry` for what becomes of a letter. The
effects of one slice, in their order, and what a crash after each costs:

1. look each member up under the key that it names                     nothing
2. begin a transaction                                                 nothing
3. put each letter under its new key, then a null for the old one; put
   what is left of the slice, or its null; put the tally of the shard,
   which counts these letters; tell the record of lineages; publish
   the audit, and letters as they were before they were changed        nothing: all are undone
4. commit                                                              nothing: all stand; the next owner goes on with the next
                                                                       slice, as its table says
5. drop the old rows from the table, before anything is swept          nothing: the fold finds the same nulls

A member that does not wait under its key is `gone`: it was sent, or moved by something else, and nothing is done for it. So a
letter is acted on once, however many operators ask, and however often an owner ends. Nothing is read until all is folded that
was written before: tally and slices are those of the table, and of nothing else. Where the topics of the audit or of discarded
letters cannot be written to, actions wait, and deliveries do not.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from retry.delay_queue import action_records, ramp_records, returned_offsets
from retry.delay_queue.action_records import ActionState, Member, Order, Slice, Tally
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery import move_entries, return_slice
from retry.delivery.act_audit import Result, audited
from retry.delivery.acted_entry import ActedEntry, Refusal
from retry.delivery.climb import Climbing
from retry.delivery.return_slice import ReturnedSlice
from retry.delivery.returned_letter import LetterReturns, ReturnedLetter
from retry.delivery.slice_work import ActContext, SliceWork
from retry.delivery.sweep import ChangelogPartition, await_arrival
from retry.errors import TransactionAborted
from retry.intake import attempts

log = logging.getLogger(__name__)

# Slices whose head did not come in this time never had one.
ORPHAN_MS = 3_600_000
# So long an action that has ended is remembered: whoever asks for it again finds that it was done.
ENDED_MS = 30 * 86_400_000
# After a transaction that was undone; sweeps go on meanwhile.
_AGAIN_MS = 30_000
_ANY_PARTITION = -1
# Slices that end at a time where nothing is done for their letters.
_SLICES_MAX = 20
_COUNTED_AT_ONCE = 100
_ORPHANS_EVERY_MS = 60_000
GONE, CANCELLED, INCOMPLETE = "gone", "cancelled", "incomplete"


class Acting:
    """How far one shard has come with actions: only what its table does not say, so that whoever owns it next begins anew."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        self._climbing = Climbing(changelog.partition, table)
        self._counted: set[bytes] = set()
        self._controls: Mapping[bytes, bytes] = {}
        self._states: list[ActionState] = []
        self._orphans_at_ms = 0
        # The fold must have come so far before anything is read; None where that is to be asked for.
        self._settled_at: int | None = 0
        self._again_at_ms = 0

    def step(self, context: ActContext) -> int:
        """Do one slice of what is asked for, and say for how many letters something was done.

        Raises:
          TableUnreadable, EntryUnreadable: as for a sweep; nothing was done.
          TransactionFailed: nothing is known to be done; merely aborted, it is tried again some time later.
        """
        if context.now_ms < self._again_at_ms or not self._is_settled(context.end):
            return 0
        work = self._next(context)
        if work is None or (work.state is not None and self._is_closed(context)):
            return 0
        try:
            self._commit(context, work)
        except TransactionAborted:
            self._again_at_ms = context.now_ms + _AGAIN_MS
            raise
        self._settled_at = None
        return sum(not isinstance(result, Refusal) for _, result in work.results)

    def _is_settled(self, end: Callable[[], int]) -> bool:
        if self._settled_at is None:
            self._settled_at = end()
        return self._table.next_offset >= self._settled_at

    def _is_closed(self, context: ActContext) -> bool:
        """Whether what is told of an action could not be written just now."""
        closed = context.gate.closed({context.audit, context.actions.discarded})
        if closed:
            self._again_at_ms = context.now_ms + _AGAIN_MS
            log.warning("shard %d: actions wait: %s", self._changelog.partition, "; ".join(closed.values()))
        return bool(closed)

    def _next(self, context: ActContext) -> SliceWork | None:
        shard, now_ms = self._changelog.partition, context.now_ms
        for state in self._known():
            if work := self._climbing.judged(state, context):
                return work
            if state.has_ended(shard):
                if now_ms - state.action.asked_at_ms > ENDED_MS:
                    return SliceWork(None, _forgotten(state.id, self._table.controls), [])
            elif state.cancelled is not None:
                return self._dropped(state)
            elif not self._is_complete(state):
                if state.held is None:
                    return SliceWork(None, [_incomplete(state, now_ms)], [])
            elif state.held is None and (found := self._first(state)):
                # None while its records are being read: another question would take the place of that one.
                return self._slice(*found, context)
            if work := self._climbing.sent(state):
                return work
        return self._orphans(now_ms) if self._table.has_slices or shard == ramp_records.HOME else None

    def _known(self) -> list[ActionState]:
        """All actions; read anew only when something was told of one, since ended ones are known for a month."""
        if (controls := self._table.controls) is not self._controls:
            self._controls, self._states = controls, action_records.states(controls)
        return self._states

    def _is_complete(self, state: ActionState) -> bool:
        """Whether all its slices are here, or done; looked at once, as they come before their head."""
        if state.id not in self._counted:
            found, at, wanted = 0, b"", state.left(self._changelog.partition)
            while found < wanted and (page := self._table.slices(action_records.slices_of(state.id), _COUNTED_AT_ONCE, at)):
                found, at = found + len(page), page[-1][0]
            if found < wanted:
                return False
            self._counted.add(state.id)
        return True

    def _slice(self, state: ActionState, key: bytes, members: Slice, context: ActContext) -> SliceWork | None:
        """A slice, or as much of it as one transaction takes; None where that is not known yet."""
        results: Sequence[tuple[Member, Result]]
        bitmaps: list[ChangelogRow] = []
        if members.members and returned_offsets.is_place(members.members[0].key):
            if (back := self._returned(state, members, context)) is None:
                return None
            results, bitmaps = back
        else:
            results = self._acted(state, members, context)
        left = members.members[len(results) :]
        rest = action_records.encode_slice(left, members.written_at_ms) if left else None
        tally = _tallied(state.tally, results, slices=not left)
        put: list[ChangelogRow] = []
        elsewhere: list[tuple[int, ChangelogRow]] = []
        if state.at_step is not None:
            tally, put, elsewhere = self._climbing.put(state, tally, results, context.now_ms)
        rows = [(key, rest), (action_records.tally_key(state.id), action_records.encode(tally)), *bitmaps, *put]
        return SliceWork(state, rows, results, elsewhere)

    def _returned(self, state: ActionState, members: Slice, context: ActContext) -> ReturnedSlice | None:
        actions = context.actions
        returns = LetterReturns(actions.judge.registry, actions.judge.packer, len(state.action.slices), actions.discarded)
        return return_slice.returned(
            state, members.members, self._table, returns, context.ask, context.now_ms, context.bytes_max
        )

    def _acted(self, state: ActionState, members: Slice, context: ActContext) -> list[tuple[Member, Result]]:
        results: list[tuple[Member, Result]] = []
        bytes_left, met = context.bytes_max, set[bytes]()
        for member in members.members:
            if bytes_left <= 0:
                break
            # A key that is named twice would be put twice: the table has it until all is committed.
            envelope = None if member.key in met else self._table.get(member.key)
            result: Result = Refusal(GONE)
            if envelope is not None:
                result = context.actions.acted(state, member, envelope, context.now_ms)
            met.add(member.key)
            results.append((member, result))
            if isinstance(result, ActedEntry):
                bytes_left -= result.size
        return results

    def _first(self, state: ActionState) -> tuple[ActionState, bytes, Slice] | None:
        """The first slice, if its step is open, and the action at that step."""
        if not (found := self._table.slices(action_records.slices_of(state.id), 1)):
            # All of them are done, and a ramp is still to be judged.
            return None
        key, value = found[0]
        if state.action.ramp is not None:
            if (step := ramp_records.step_of(key)) > state.step.step:
                return None
            state = state._replace(at_step=step)
        return state, key, action_records.decode_slice(value)

    def _dropped(self, state: ActionState) -> SliceWork:
        """The rest of an action that was cancelled, with the last of it whatever is missing."""
        slices = self._table.slices(action_records.slices_of(state.id), _SLICES_MAX)
        results = [(member, Refusal(CANCELLED)) for _, value in slices for member in action_records.decode_slice(value).members]
        ended = len(slices) if len(slices) == _SLICES_MAX else state.left(self._changelog.partition)
        tally = _tallied(state.tally, results, slices=ended)
        rows: list[ChangelogRow] = [(key, None) for key, _ in slices]
        return SliceWork(state, [*rows, (action_records.tally_key(state.id), action_records.encode(tally))], results)

    def _orphans(self, now_ms: int) -> SliceWork | None:
        """What has no head: slices of whoever ended before it was written, and what is told of actions that are forgotten."""
        if now_ms < self._orphans_at_ms:
            return None
        begun = {state.id for state in self._states if not state.has_ended(self._changelog.partition)}
        climbing, known = {state.id for state in self._states if state.climbs}, {state.id for state in self._states}
        orphans = self._older(action_records.SLICE, begun, now_ms)
        orphans = orphans or self._older(ramp_records.SENDING, climbing, now_ms)
        orphans = orphans or self._older(ramp_records.FAILED, known, now_ms)
        self._orphans_at_ms = 0 if orphans else now_ms + _ORPHANS_EVERY_MS
        return SliceWork(None, [(key, None) for key in orphans], []) if orphans else None

    def _older(self, kind: bytes, known: set[bytes], now_ms: int) -> list[bytes]:
        """Keys of some rows of a kind, written a while ago, of which no action is known."""
        written_at_ms = ramp_records.failed_at_ms if kind == ramp_records.FAILED else _written_at_ms
        orphans, at = list[bytes](), b""
        while len(orphans) < _SLICES_MAX and (found := self._table.slices(kind, 1, at)):
            (at, value), action = found[0], action_records.action_of(found[0][0])
            if action not in known and now_ms - written_at_ms(value) > ORPHAN_MS:
                orphans.append(at)
            else:
                at = action_records.beyond(at)
        return orphans

    def _commit(self, context: ActContext, work: SliceWork) -> None:
        writer, now_ms = context.writer, context.now_ms
        acted = [result for _, result in work.results if isinstance(result, ActedEntry)]
        back = [result for _, result in work.results if isinstance(result, ReturnedLetter)]
        moves = [each.move for each in acted]
        rows = [*move_entries.replaced(moves), *work.rows]
        writer.begin()
        writer.write(*self._changelog, [{"key": key, "value": value} for key, value in rows])
        for n, (topic, partition) in enumerate(context.actions.judge.lineages):
            # A move may be told more than once, and comes behind its send in every partition. A send is counted each time.
            if told_of := [*_moved(acted), *(_sent(acted, back) if n == 0 else ())]:
                writer.write(topic, partition, [{**row, "key": work.state and work.state.mark} for row in told_of])
        if work.state is not None:
            kept = [each.kept for each in acted if each.kept is not None]
            told = [*kept, *audited(work.state, work.results, context.audit, self._changelog.partition, now_ms)]
            entries, shards = return_slice.puts(back, self._changelog.topic)
            entries += [Entry(self._changelog.topic, key, value, [], None, "") for _, (key, value) in work.elsewhere]
            shards += [shard for shard, _ in work.elsewhere]
            writer.publish([*entries, *told], now_ms, [*shards, *([_ANY_PARTITION] * len(told))])
            await_arrival(told, writer, context.gate)
        writer.commit()
        self._table.drop([each.key for each in moves], [(each.packed.key, each.packed.envelope) for each in moves])


def _tallied(before: Tally, results: Sequence[tuple[Member, Result]], *, slices: int) -> Tally:
    refused = Counter(before.refused)
    refused.update(result.reason for _, result in results if isinstance(result, Refusal))
    gone = refused.pop(GONE, 0)
    done = sum(not isinstance(result, Refusal) for _, result in results)
    return msgspec.structs.replace(
        before, slices=before.slices + slices, done=before.done + done, gone=before.gone + gone, refused=dict(refused)
    )


def _written_at_ms(value: bytes) -> int:
    return action_records.decode_slice(value).written_at_ms


def _incomplete(state: ActionState, now_ms: int) -> ChangelogRow:
    """The order to hold it, which what was resumed before, by a clock that was ahead, does not end."""
    at_ms = now_ms if state.resumed is None else max(now_ms, state.resumed.hold + 1)
    return action_records.held_key(state.id), action_records.encode(Order("worker", at_ms, INCOMPLETE))


def _forgotten(action: bytes, controls: Any) -> list[ChangelogRow]:
    """Nulls for all controls of an action."""
    head = action_records.head_key(action)
    return [(key, None) for key in controls if key == head or key.startswith(head + b"/")]


def _moved(acted: Sequence[ActedEntry]) -> list[dict[str, Any]]:
    """Rows for the record of lineages: a letter that comes back without headers is known by what was sent, and when."""
    return attempts.records([each.moved for each in acted if each.moved is not None], moves=True)


def _sent(acted: Sequence[ActedEntry], back: Sequence[ReturnedLetter]) -> list[dict[str, Any]]:
    """The same of sends of which it does not know."""
    again = [each.sent_again for each in acted if each.sent_again is not None]
    again += [each.lineage for each in back if each.lineage is not None]
    return attempts.records(again)
