"""Letters that rest, returned: the members of one slice, each once. For `retry.delivery.act`.

Which letters were returned is marked in bitmaps, in the transaction in which their entries are put and the slice ends; see
`retry.delay_queue.returned_offsets`. Nothing is read before the fold has told of the last one, so a letter that was marked is
never put again. The records are read by another thread: a sweep does not wait for them.

No entry takes the place of another: whoever chose the letters gave those with the same coordinates different due times, and
where another entry waits in this shard under the key, the letter is due a little later. What waits in other shards is not known
here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.acted_entry import CHANGED, Refusal
from retry.delivery.patch import WithdrawnPlace
from retry.delivery.returned_letter import NOT_OURS, LetterReturns, ReturnedLetter

RETURNED, GONE, REFUSED = "returned", "gone", "refused"

# A parked record, and the whole letter where that lies elsewhere; or why there is none.
FoundRecord = tuple[Any, Any] | str
# Asks for parked records by their places, the names of their topics given: None while they are being read, else those of the
# first places, as many as fit into memory.
AskParked = Callable[[Mapping[str, str], Sequence[bytes]], Mapping[bytes, FoundRecord] | None]


class ReturnedSlice(NamedTuple):
    """The results for the first members of a slice of letters that rest.

    Attributes:
      bitmaps: rows of the changelog that mark which letters have been returned by now.
    """

    results: list[tuple[Member, ReturnedLetter | WithdrawnPlace | Refusal]]
    bitmaps: list[ChangelogRow]


def return_members(
    state: ActionState, members: Sequence[Member], table: Table, returns: LetterReturns, ask: AskParked, now_ms: int,
    bytes_max: int, refused: Collection[bytes] = (),
) -> ReturnedSlice | None:  # fmt: skip
    """Make entries of the first of some members; None while their records are being read.

    Args:
      refused: members that cannot be kept as they were, since their topic refuses that.

    Raises:
      EntryUnreadable: a member, or a bitmap, is none.
    """
    found = ask(state.action.parking, [member.key for member in members])
    if found is None:
        return None
    bitmaps: dict[bytes, bytes | None] = {}
    put: set[tuple[int, bytes]] = set()
    results: list[tuple[Member, ReturnedLetter | WithdrawnPlace | Refusal]] = []
    for member in members:
        if bytes_max <= 0 or member.key not in found:
            break
        place = returned_offsets.decode_place(member.key)
        block = place.block()
        bitmap = bitmaps[block] if block in bitmaps else table.get(block)
        is_edit = state.action.kind == action_records.EDIT
        result: ReturnedLetter | WithdrawnPlace | Refusal = Refusal(CHANGED if is_edit else RETURNED)
        if not returned_offsets.is_offset_returned(bitmap, place.offset):
            result = _return_member(state, found[member.key], returns, member, now_ms)
            if member.key in refused and isinstance(result, ReturnedLetter):
                result = Refusal(REFUSED)
            while isinstance(result, ReturnedLetter) and _is_taken(result, put, table):
                later = msgspec.structs.replace(member, due_at_ms=entry_keys.due_at_ms(result.key) + 1)
                result = _return_member(state, found[member.key], returns, later, now_ms)
        results.append((member, result))
        if not isinstance(result, Refusal):
            bitmaps[block] = returned_offsets.mark_offset(bitmap, place.offset)
        if isinstance(result, ReturnedLetter):
            put.add((result.shard, result.key))
            bytes_max -= len(result.envelope) + (0 if result.kept is None else len(result.kept.value or b""))
    return ReturnedSlice(results, list(bitmaps.items()))


def _is_taken(letter: ReturnedLetter, put: set[tuple[int, bytes]], table: Table) -> bool:
    """Whether another entry has its key, here or by this transaction."""
    is_here = letter.shard == returned_offsets.SHARD
    return (letter.shard, letter.key) in put or (is_here and table.get(letter.key) is not None)


def _return_member(
    state: ActionState, found: FoundRecord, returns: LetterReturns, member: Member, now_ms: int
) -> ReturnedLetter | WithdrawnPlace | Refusal:
    kind = state.action.kind
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
    return refused or returns.return_letter(state, record, whole, member.due_at_ms, now_ms, member.envelope)


def _is_not_ours(found: FoundRecord, returns: LetterReturns) -> bool:
    return found == NOT_OURS if isinstance(found, str) else returns.find_refusal(found[0]) == Refusal(NOT_OURS)


def puts(letters: Sequence[ReturnedLetter], changelog: str) -> tuple[list[Entry], list[int]]:
    """Records that put entries, into whichever shards these wait in, and the partitions of each.

    They are published and not written: only what is written takes part in the proof that a shard is this worker's, and others
    may own these. Intake puts entries into all shards, too.
    """
    entries = [Entry(changelog, each.key, each.envelope, [], None, each.entry.team) for each in letters]
    return entries, [each.shard for each in letters]


def nobody(_parking: Mapping[str, str], places: Sequence[bytes]) -> Mapping[bytes, FoundRecord]:
    """Finds nothing: for a worker without parking topics."""
    return dict.fromkeys(places, GONE)
