"""The members of one slice, acted on once each: letters that wait in the shard, or letters that rest. For `retry.delivery.act`.

Which letters were returned is marked in bitmaps, in the transaction in which their entries are put and the slice ends; see
`retry.delay_queue.returned_offsets`. Nothing is read before the fold has told of the last one, so a letter that was marked is
never put again. The records are read by another thread: a sweep does not wait for them.

No entry takes the place of another: whoever chose the letters gave those with the same coordinates different due times, and
where another entry waits in this shard under the key, the letter is due a little later. What waits in other shards is not known
here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from retry.delay_queue import action_records, entry_keys, ramp_records, returned_offsets
from retry.delay_queue.action_records import Action, Member, Order
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.act_records import Result
from retry.delivery.acted_entry import EntryActions
from retry.delivery.admission import Admission
from retry.delivery.letter_changes import CHANGED, GONE, REFUSED, RETURNED, SEALED, ActedLetter, Refusal, WithdrawnPlace
from retry.delivery.movers import FoundRecord, TakenKeys
from retry.delivery.redecide import Redecider
from retry.delivery.refusals import diagnose
from retry.delivery.returned_letter import NOT_OURS, LetterReturns
from retry.delivery.transaction_batch import renew_timestamp
from retry.kafka.interface import TransactionalProducer
from retry.kafka.record_limits import RecordRefusal, RefusedFor
from retry.kafka.refused_records import Anchor


def act_on_members(
    members: Iterable[Member], letters: WaitingLetters | RestingLetters, bytes_max: int, refused: Collection[bytes]
) -> list[tuple[Member, Result]]:
    """Act on the first of some members, up to `bytes_max` bytes of letters, and return what became of each.

    Raises EntryUnreadable.

    Topics refuse to keep the members in `refused` as they were.
    """
    results: list[tuple[Member, Result]] = []
    for member in members:
        if bytes_max <= 0:
            break
        result = letters.act_on_member(member)
        if isinstance(result, ActedLetter):
            if member.key in refused:
                result = Refusal(REFUSED)
            else:
                bytes_max -= len(result.envelope) + (0 if result.kept is None else len(result.kept.value or b""))
        if not isinstance(result, Refusal):
            letters.note_result(member, result)
        results.append((member, result))
    return results


class WaitingLetters:
    """Letters that wait in this shard, and what one transaction makes of them."""

    def __init__(self, state: ActionState, table: Table, redecider: Redecider, discarded: str, now_ms: int) -> None:
        self._state, self._table, self._now_ms = state, table, now_ms
        self._taken, self._met = TakenKeys(table), set[bytes]()
        self._actions = EntryActions(redecider, discarded, self._taken)

    def act_on_member(self, member: Member) -> Result:
        # A key that is named twice would be put twice: the table has it until all is committed.
        envelope = None if member.key in self._met else self._table.get(member.key)
        self._met.add(member.key)
        if envelope is not None:
            return self._actions.act_on_entry(self._state, member, envelope, self._now_ms)
        if self._table.get(entry_keys.make_held_key(member.key)) is not None:
            return Refusal(SEALED)
        return Refusal(GONE if self._state.action.kind != action_records.EDIT else CHANGED)

    def note_result(self, _member: Member, result: Result) -> None:
        """Remember that a key is taken by what is put there."""
        if isinstance(result, ActedLetter):
            self._taken.add_key(result.key)


class RestingLetters:
    """Letters that rest, their records `found` by places, and which of them one transaction returns, by `bitmaps`."""

    def __init__(
        self, state: ActionState, table: Table, returns: LetterReturns, found: Mapping[bytes, FoundRecord], now_ms: int
    ) -> None:
        self._state, self._table, self._returns, self._found, self._now_ms = state, table, returns, found, now_ms
        self.bitmaps: dict[bytes, bytes | None] = {}
        self._put: set[tuple[int | None, bytes]] = set()

    def act_on_member(self, member: Member) -> Result:
        place = returned_offsets.decode_place(member.key)
        if returned_offsets.is_offset_returned(self._read_bitmap(place.block()), place.offset):
            return Refusal(CHANGED if self._state.action.kind == action_records.EDIT else RETURNED)
        result = self._return_member(member)
        while isinstance(result, ActedLetter) and self._is_taken(result):
            later = msgspec.structs.replace(member, due_at_ms=entry_keys.due_at_ms(result.key) + 1)
            result = self._return_member(later)
        return result

    def note_result(self, member: Member, result: Result) -> None:
        """Mark a letter that is returned, or withdrawn, and remember that its key is taken."""
        place = returned_offsets.decode_place(member.key)
        self.bitmaps[place.block()] = returned_offsets.mark_offset(self._read_bitmap(place.block()), place.offset)
        if isinstance(result, ActedLetter):
            self._put.add((result.shard, result.key))

    def _read_bitmap(self, block: bytes) -> bytes | None:
        return self.bitmaps[block] if block in self.bitmaps else self._table.get(block)

    def _is_taken(self, letter: ActedLetter) -> bool:
        """Whether another entry has its key, here or by this transaction."""
        is_here = letter.shard == returned_offsets.SHARD
        return (letter.shard, letter.key) in self._put or (is_here and self._table.get(letter.key) is not None)

    def _return_member(self, member: Member) -> ActedLetter | WithdrawnPlace | Refusal:
        state, returns, found, kind = self._state, self._returns, self._found[member.key], self._state.action.kind
        if kind == action_records.DISCARD and _is_not_ours(found, returns):
            # Nothing is made of what it says: it stays where it is, and is not listed any more.
            return WithdrawnPlace(member.key)
        if isinstance(found, str):
            if kind == action_records.ERASE and found == NOT_OURS:
                return WithdrawnPlace(member.key)
            return Refusal(CHANGED if kind == action_records.EDIT and found == GONE else found)
        record, whole = found
        if kind == action_records.ERASE:
            return returns.erase_letter(state, record, whole, member.due_at_ms) or WithdrawnPlace(member.key)
        refused = returns.find_refusal(record)
        if refused is None and kind == action_records.EDIT:
            refused = returns.find_edit_refusal(record, member.digest)
        return refused or returns.return_letter(state, record, whole, member.due_at_ms, self._now_ms, member.envelope)


def _is_not_ours(found: FoundRecord, returns: LetterReturns) -> bool:
    return found == NOT_OURS if isinstance(found, str) else returns.find_refusal(found[0]) == Refusal(NOT_OURS)


def list_puts(letters: Sequence[ActedLetter], changelog: str) -> tuple[list[Entry], list[int]]:
    """List the records that put entries into the changelog, in whichever shard each waits, and the partition of each.

    They are published: what is written takes part in the proof that a shard is this worker's, and others may own these.
    """
    entries = [Entry(changelog, each.key, each.envelope, [], None, each.entry.team) for each in letters]
    return entries, [cast(int, each.shard) for each in letters]


# Slices whose head did not come in this time never had one.
ORPHAN_MS = 3_600_000
_ROWS_MAX = 20
_EVERY_MS = 60_000


class Orphans:
    def __init__(self) -> None:
        self._next_ms = 0

    def find_orphans(self, table: Table, shard: int, states: Sequence[ActionState], now_ms: int) -> list[bytes]:
        """Find the keys of some orphans by the states of all known actions; none where they were looked for just now."""
        if now_ms < self._next_ms or not (table.has_slices or shard == ramp_records.HOME):
            return []
        begun = {state.id for state in states if not state.has_ended(shard)}
        climbing, known = {state.id for state in states if state.climbs}, {state.id for state in states}
        orphans = _find_unknown(table, action_records.SLICE, begun, now_ms)
        orphans = orphans or _find_unknown(table, ramp_records.SENDING, climbing, now_ms)
        orphans = orphans or _find_unknown(table, ramp_records.FAILED, known, now_ms)
        self._next_ms = 0 if orphans else now_ms + _EVERY_MS
        return orphans


def _find_unknown(table: Table, kind: bytes, known: Collection[bytes], now_ms: int) -> list[bytes]:
    written_at_ms = ramp_records.read_failed_at_ms if kind == ramp_records.FAILED else _written_at_ms
    orphans, at = list[bytes](), b""
    while len(orphans) < _ROWS_MAX and (found := table.list_slices(kind, 1, at)):
        (at, value), action = found[0], action_records.find_action_id(found[0][0])
        if action not in known and now_ms - written_at_ms(value) > ORPHAN_MS:
            orphans.append(at)
        else:
            at = action_records.build_end_key(at)
    return orphans


def _written_at_ms(value: bytes) -> int:
    return action_records.decode_slice(value).written_at_ms


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
    """List the copies of letters as they were before an action changed them, each with the key of its member.

    Each copy is kept in the topic of discarded letters. Members of which no copy is kept are left out.
    """
    changed = ((member, result) for member, result in results if isinstance(result, ActedLetter))
    return [(member.key, result.kept) for member, result in changed if result.kept is not None]


def renew_old(kept: list[Entry], admission: Admission, now_ms: int) -> list[Entry]:
    """Return the letters to keep; each that is too old for its topic gets the time of sending as its timestamp."""
    limits = admission.record_limits
    if not kept or not limits.has_limits():
        return kept
    refused = limits.find_refused(kept, now_ms)
    is_old = {n for n, refusal in refused.items() if refusal.cause is RefusedFor.TIME}
    return [renew_timestamp(entry) if n in is_old else entry for n, entry in enumerate(kept)]


def find_unkept(
    kept: Sequence[tuple[bytes, Entry]], writer: TransactionalProducer, admission: Admission, now_ms: int, anchor: Anchor
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

    def is_waiting(self, state: ActionState) -> bool:
        """Whether the policy file of an action was not there when this was asked last."""
        return state.id in self._since_ms

    def build_policy_hold(self, state: ActionState, digest: str, now_ms: int) -> Order | None:
        """Build the order to hold an action whose policy file did not come in time.

        None where the file is there, is not needed, or is still waited for.
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
