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
was written before: tally and slices are those of the table, and of nothing else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.action_records import ActionState, Member, Order, Slice, Tally
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery import move_entries, return_slice
from retry.delivery.acted_entry import ActedEntry, EntryActions, Refusal
from retry.delivery.redecide import Redecider
from retry.delivery.return_slice import AskParked, ReturnedSlice
from retry.delivery.returned_letter import LetterReturns, ReturnedLetter
from retry.delivery.sweep import ChangelogPartition, SweepWriter
from retry.errors import TransactionAborted
from retry.intake import attempts

log = logging.getLogger(__name__)

# Slices whose head did not come in this time never had one.
ORPHAN_MS = 3_600_000
# So long an action that has ended is remembered: whoever asks for it again finds that it was done.
ENDED_MS = 30 * 86_400_000
# After a transaction that was undone; sweeps go on meanwhile.
_AGAIN_MS = 30_000
_SLICES_MAX = 100
_ANY_PARTITION = -1
GONE, CANCELLED, INCOMPLETE, DONE = "gone", "cancelled", "incomplete", "done"


Result = ActedEntry | ReturnedLetter | Refusal


class SliceWork(NamedTuple):
    """What one transaction does for an action.

    Attributes:
      state: the action; None where rows are only tidied up.
      rows: of slices and controls.
      results: each letter of it, and what became of it.
    """

    state: ActionState | None
    rows: list[ChangelogRow]
    results: Sequence[tuple[Member, Result]]


class Acting:
    """How far one shard has come with actions: only what its table does not say, so that whoever owns it next begins anew."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        self._ask: AskParked = return_slice.nobody
        self._counted: set[bytes] = set()
        # The fold must have come so far before anything is read; None where that is to be asked for.
        self._settled_at: int | None = 0
        self._again_at_ms = 0

    def step(
        self, writer: SweepWriter, actions: EntryActions, audit: str, now_ms: int, bytes_max: int, end: Callable[[], int],
        ask: AskParked,
    ) -> int:
        """Do one slice of what is asked for, and say for how many letters something was done.

        Args:
          audit: the topic of who did what.
          end: tells where the changelog partition ends now.
          ask: for letters that rest.

        Raises:
          TableUnreadable, EntryUnreadable: as for a sweep; nothing was done.
          TransactionFailed: nothing is known to be done; merely aborted, it is tried again some time later.
        """
        if now_ms < self._again_at_ms or not self._is_settled(end):
            return 0
        self._ask = ask
        work = self._next(actions, now_ms, bytes_max)
        if work is None:
            return 0
        try:
            self._commit(writer, actions.judge, work, audit, now_ms)
        except TransactionAborted:
            self._again_at_ms = now_ms + _AGAIN_MS
            raise
        self._settled_at = None
        return sum(not isinstance(result, Refusal) for _, result in work.results)

    def _is_settled(self, end: Callable[[], int]) -> bool:
        if self._settled_at is None:
            self._settled_at = end()
        return self._table.next_offset >= self._settled_at

    def _next(self, actions: EntryActions, now_ms: int, bytes_max: int) -> SliceWork | None:
        shard, states = self._changelog.partition, action_records.states(self._table.controls)
        for state in states:
            if state.has_ended(shard):
                if now_ms - state.action.asked_at_ms > ENDED_MS:
                    return SliceWork(None, _forgotten(state.id, self._table.controls), [])
            elif not self._is_complete(state):
                held = Order("worker", now_ms, INCOMPLETE)
                if state.held is None:
                    return SliceWork(None, [(action_records.held_key(state.id), action_records.encode(held))], [])
            elif state.cancelled is not None:
                return self._dropped(state)
            elif state.held is None and (work := self._slice(state, actions, now_ms, bytes_max)):
                return work
        return None if not self._table.has_slices else self._orphans({state.id for state in states}, now_ms)

    def _is_complete(self, state: ActionState) -> bool:
        """Whether all its slices are here, or done; looked at once, as they come before their head."""
        if state.id not in self._counted:
            wanted = state.slices(self._changelog.partition) - state.tally.slices
            if len(self._table.slices(action_records.slices_of(state.id), wanted)) < wanted:
                return False
            self._counted.add(state.id)
        return True

    def _slice(self, state: ActionState, actions: EntryActions, now_ms: int, bytes_max: int) -> SliceWork | None:
        """The next slice, or as much of it as one transaction takes; None where that is not known yet."""
        key, members = self._first(state)
        results: Sequence[tuple[Member, Result]] = []
        bitmaps: list[ChangelogRow] = []
        if members.members and returned_offsets.is_place(members.members[0].key):
            if (found := self._returned(state, members, actions, now_ms, bytes_max)) is None:
                return None
            results, bitmaps = found
        else:
            results = self._acted(state, members, actions, now_ms, bytes_max)
        left = members.members[len(results) :]
        rest = action_records.encode_slice(left, members.written_at_ms) if left else None
        tally = _tallied(state.tally, results, slices=not left)
        rows = [(key, rest), (action_records.tally_key(state.id), action_records.encode(tally)), *bitmaps]
        return SliceWork(state, rows, results)

    def _returned(
        self, state: ActionState, members: Slice, actions: EntryActions, now_ms: int, bytes_max: int
    ) -> ReturnedSlice | None:
        shards, discarded = len(state.action.slices), actions.discarded
        returns = LetterReturns(actions.judge.registry, actions.judge.packer, shards, discarded)
        return return_slice.returned(state, members.members, self._table, returns, self._ask, now_ms, bytes_max)

    def _acted(
        self, state: ActionState, members: Slice, actions: EntryActions, now_ms: int, bytes_max: int
    ) -> list[tuple[Member, Result]]:
        results: list[tuple[Member, Result]] = []
        for member in members.members:
            if bytes_max <= 0:
                break
            envelope = self._table.get(member.key)
            result: Result = Refusal(GONE) if envelope is None else actions.acted(state, member, envelope, now_ms)
            results.append((member, result))
            if isinstance(result, ActedEntry):
                bytes_max -= len(result.move.packed.envelope)
        return results

    def _first(self, state: ActionState) -> tuple[bytes, Slice]:
        key, value = self._table.slices(action_records.slices_of(state.id), 1)[0]
        return key, action_records.decode_slice(value)

    def _dropped(self, state: ActionState) -> SliceWork:
        """The rest of an action that was cancelled."""
        slices = self._table.slices(action_records.slices_of(state.id), _SLICES_MAX)
        results = [(member, Refusal(CANCELLED)) for _, value in slices for member in action_records.decode_slice(value).members]
        tally = _tallied(state.tally, results, slices=len(slices))
        rows: list[ChangelogRow] = [(key, None) for key, _ in slices]
        return SliceWork(state, [*rows, (action_records.tally_key(state.id), action_records.encode(tally))], results)

    def _orphans(self, known: set[bytes], now_ms: int) -> SliceWork | None:
        """Slices whose head never came: whoever wrote them ended before that."""
        found = self._table.slices(action_records.SLICE, _SLICES_MAX)
        orphans = [
            key for key, value in found
            if action_records.action_of(key) not in known
            and now_ms - action_records.decode_slice(value).written_at_ms > ORPHAN_MS
        ]  # fmt: skip
        return SliceWork(None, [(key, None) for key in orphans], []) if orphans else None

    def _commit(self, writer: SweepWriter, judge: Redecider, work: SliceWork, audit: str, now_ms: int) -> None:
        acted = [result for _, result in work.results if isinstance(result, ActedEntry)]
        back = [result for _, result in work.results if isinstance(result, ReturnedLetter)]
        moves = [each.move for each in acted]
        rows = [*move_entries.replaced(moves), *work.rows]
        writer.begin()
        writer.write(*self._changelog, [{"key": key, "value": value} for key, value in rows])
        for topic, partition in judge.lineages if moves or back else ():
            writer.write(topic, partition, _remembered(acted, back))
        if work.state is not None:
            beside = [each.kept for each in acted if each.kept is not None]
            beside.append(_audit(work, work.state, audit, self._changelog.partition, now_ms))
            entries, shards = return_slice.puts(back, self._changelog.topic)
            writer.publish([*entries, *beside], now_ms, [*shards, *([_ANY_PARTITION] * len(beside))])
        writer.commit()
        self._table.drop([each.key for each in moves], [(each.packed.key, each.packed.envelope) for each in moves])


def _tallied(before: Tally, results: Sequence[tuple[Member, Result]], *, slices: int) -> Tally:
    refused = Counter(before.refused)
    refused.update(result.reason for _, result in results if isinstance(result, Refusal))
    gone = refused.pop(GONE, 0)
    done = sum(not isinstance(result, Refusal) for _, result in results)
    return Tally(before.slices + slices, before.done + done, before.gone + gone, dict(refused))


def _forgotten(action: bytes, controls: Any) -> list[ChangelogRow]:
    """Nulls for all controls of an action."""
    head = action_records.head_key(action)
    return [(key, None) for key in controls if key == head or key.startswith(head + b"/")]


def _remembered(acted: Sequence[ActedEntry], back: Sequence[ReturnedLetter]) -> list[dict[str, Any]]:
    """Rows for the record of lineages: a letter that comes back without headers is known by what was sent, and when."""
    moved = [each.moved for each in acted if each.moved is not None]
    again = [each.sent_again for each in acted if each.sent_again is not None]
    return [*attempts.records(moved, moves=True), *attempts.records([*again, *(each.lineage for each in back)])]


def _audit(work: SliceWork, state: ActionState, topic: str, shard: int, now_ms: int) -> Entry:
    action = state.action
    told = {
        "v": 1, "action": state.id.hex(), "kind": action.kind, "by": action.by, "reason": action.reason, "at_ms": now_ms,
        "shard": shard, "letters": [_result(member, result) for member, result in work.results],
    }  # fmt: skip
    return Entry(topic, state.id.hex().encode(), orjson.dumps(told), [], now_ms, "")


def _result(member: Member, result: Result) -> dict[str, object]:
    if isinstance(result, ReturnedLetter) or returned_offsets.is_place(member.key):
        return _returned_result(member, result)
    _, topic, partition, offset = entry_keys.source(member.key)
    told: dict[str, object] = {"letter": f"{topic}/{partition}/{offset}", "due_ms": entry_keys.due_at_ms(member.key)}
    if isinstance(result, Refusal):
        return {**told, "result": result.reason}
    move = result.move
    return {
        **told, "result": DONE, "target": move.entry.destination,
        "new_due_ms": entry_keys.due_at_ms(move.packed.key), "new_target": move.packed.destination,
    }  # fmt: skip


def _returned_result(member: Member, result: Result) -> dict[str, object]:
    place = returned_offsets.place(member.key)
    told: dict[str, object] = {"parked": f"{place.topic.hex()}/{place.partition}/{place.offset}"}
    if not isinstance(result, ReturnedLetter):
        return {**told, "result": result.reason if isinstance(result, Refusal) else DONE}
    topic, partition, offset = result.source
    due_at_ms = entry_keys.due_at_ms(result.key)
    return {
        **told, "letter": f"{topic}/{partition}/{offset}", "result": DONE, "new_due_ms": due_at_ms,
        "new_target": result.destination,
    }  # fmt: skip
