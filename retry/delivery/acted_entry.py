"""One waiting letter, and what an action makes of it. Pure: the preview of an operator and the worker get the same answer.

| kind | where it goes | when it is due |
| --- | --- | --- |
| `retry` | as before | as its member says |
| `redirect` | to the action's target, if its policy lets it | as its member says |
| `park` | to the parking topic of its policy | at once |
| `discard` | to the topic of discarded letters | when the time is over in which that can be undone |
| `undo` | where it would have gone before it was to be discarded | as before |
| `edit` | as before, with another key, value or headers | as its member says |
| `patch` | as before, changed by rule | 1 ms later, or as its member says where the patch retries |
| `erase` | to the topic of discarded letters, without key, value and headers | at once |

What was edited or patched is kept as it was, in the topic of discarded letters, marked `superseded`. An entry never keeps its
key: in one transaction its old key gets a null, and its new one the entry, and of one key only the last would stand.
"""

from __future__ import annotations

import hashlib
from typing import cast

import msgspec

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.entry_keys import NAMED, ORDERED, UNDELIVERED
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery import letter_changes, movers, redecide
from retry.delivery.letter_changes import CHANGED, SEALED, TOO_LARGE, ActedLetter, Refusal, SendRow
from retry.delivery.redecide import Move, Redecider, Redecision, Taken, say_untaken
from retry.errors import SealUnopened
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.intake.build_entry import BuiltEntry

UNDO_MS = 600_000
DISCARDED, SUPERSEDED, BY_OPERATOR = "discarded", names.SUPERSEDED.decode(), "by_operator"
_DIGEST_BYTES = 16
# Of an entry that does not tell its past; nobody is told of it.
_UNKNOWN = LetterHistory(b"", 0, 0, 0, None, False)


def find_key_refusal(key: bytes) -> Refusal | None:
    """Return why no action does anything for an entry with this key, whatever the entry says; None where an action may."""
    if key[0] == NAMED:
        return Refusal("named")
    return Refusal(SEALED) if entry_keys.is_held(key) else None


def hash_envelope(envelope: bytes) -> bytes:
    """Hash an envelope, so that an edit applies only to what it was made from; of sealed content the hash tells nothing."""
    return hashlib.blake2b(envelope, digest_size=_DIGEST_BYTES).digest()


class EntryActions:
    """Applies actions to entries; `taken` are keys that others have, of which whoever only looks knows none."""

    def __init__(self, redecider: Redecider, discarded: str, taken: Taken = say_untaken) -> None:
        self.redecider, self.discarded, self._taken = redecider, discarded, taken

    @property
    def _codec(self) -> EnvelopeCodec:
        return self.redecider.entry_builder.codec

    def act_on_entry(self, state: ActionState, member: Member, envelope: bytes, now_ms: int) -> ActedLetter | Refusal:
        """Apply an action to one entry, in memory only: return the changed entry, or why nothing is done. Raises EntryUnreadable.
        """
        if (refused := find_key_refusal(member.key)) is not None:
            return refused
        try:
            result = self._apply_action(state, member, envelope, now_ms)
        except SealUnopened:
            return Refusal(SEALED)
        if isinstance(result, Refusal):
            return result
        builder = self.redecider.entry_builder
        is_taken = letter_changes.is_taken_by_topics(builder, result.envelope, result.entry, result.kept)
        return result if is_taken else Refusal(TOO_LARGE)

    def find_refusal(self, destination: str, has_history: bool) -> Refusal | None:
        """Return why an entry allows no action but an undo or an erasure, whatever it holds; None where it may allow others."""
        if destination == self.discarded:
            return Refusal(DISCARDED)
        return None if has_history else Refusal("parks")

    def _apply_action(self, state: ActionState, member: Member, envelope: bytes, now_ms: int) -> ActedLetter | Refusal:
        entry, kind = self._codec.decode(member.key, envelope), state.action.kind
        if kind == action_records.UNDO:
            return self._undone(state, member.key, entry)
        if kind == action_records.ERASE:
            return self._erase_entry(state, member.key, entry, now_ms)
        if (refused := self.find_refusal(entry.destination, redecide.read_letter_history(entry) is not None)) is not None:
            return refused
        if kind == action_records.PARK:
            return self._park_entry(state, member.key, envelope, now_ms)
        if kind == action_records.RETRY:
            return self._move_entry(state, member.key, entry, entry, member.due_at_ms)
        if kind == action_records.REDIRECT:
            return self._redirect_entry(state, member, entry)
        if kind == action_records.DISCARD:
            return self._discard_entry(state, member.key, entry, now_ms)
        if kind == action_records.EDIT:
            return self._edit_entry(state, member, entry, envelope)
        return self._change_entry(state, member, entry)

    def _move_entry(
        self, state: ActionState, key: bytes, was: Entry, entry: Entry, due_at_ms: int, lane: bytes | None = None
    ) -> ActedLetter:
        """The entry in another place: in a lane of the same kind or of none that keeps an order, never under a key of before."""
        lane = entry_keys.lane_of(key) if lane is None else lane
        new = _move_key(key, lane, due_at_ms, was.team, was.key)
        new = entry_keys.find_untaken_key(new, lambda each: each == key or self._taken(each))
        entry = letter_changes.set_due_header(entry, entry_keys.due_at_ms(new), (names.ACTION, state.mark))
        reason = DISCARDED if entry.destination == self.discarded else None
        packed = BuiltEntry(new, self._codec.encode(new, entry), entry, reason)
        move = Redecision(key, was, redecide.read_letter_history(was) or _UNKNOWN, packed, "", Move.LATER)
        return _make_acted(move)

    def _park_entry(self, state: ActionState, key: bytes, envelope: bytes, now_ms: int) -> ActedLetter | Refusal:
        move = self.redecider.park_entry(key, envelope, now_ms, BY_OPERATOR, self._taken)
        if move is None or move.packed.key == key:
            return Refusal("parks")
        is_changed = any(name == names.ACTION for name, _ in move.entry.headers)
        marked = self.redecider.set_headers(move, (names.ACTION, state.id.hex().encode()))
        if marked is None or (is_changed and move.loses_value):
            # By reference it would be parked as it was before it was edited.
            return Refusal(TOO_LARGE)
        return _make_acted(marked)

    def _redirect_entry(self, state: ActionState, member: Member, entry: Entry) -> ActedLetter | Refusal:
        topic, target = entry_keys.read_source(member.key).topic, state.action.target or ""
        if not self.redecider.may_go_to(topic, target):
            return Refusal("not_allowed")
        lane = entry_keys.lane(entry.team, topic, target, member.key[0] == ORDERED)
        anew = msgspec.structs.replace(entry, destination=target)
        return self._move_entry(state, member.key, entry, anew, member.due_at_ms, lane)

    def _discard_entry(self, state: ActionState, key: bytes, entry: Entry, now_ms: int) -> ActedLetter:
        topic = entry_keys.read_source(key).topic
        before = f"{entry_keys.due_at_ms(key)} {int(key[0] == ORDERED)} {entry.destination}"
        headers = names.set_in(entry.headers, (names.ACTION_BEFORE, before.encode()))
        anew = msgspec.structs.replace(entry, destination=self.discarded, headers=headers)
        lane = entry_keys.lane(entry.team, topic, self.discarded)
        return self._move_entry(state, key, entry, anew, now_ms + UNDO_MS, lane)

    def _undone(self, state: ActionState, key: bytes, entry: Entry) -> ActedLetter | Refusal:
        ours = dict(entry.headers)
        before = (ours.get(names.ACTION_BEFORE) or b"").decode().split(" ", 2)
        if entry.destination != self.discarded or len(before) < 3:
            return Refusal("not_discarded")
        if ours.get(names.ACTION) != (state.action.undoes or "").encode():
            return Refusal("other_action")
        due_at_ms, ordered, destination = int(before[0]), before[1] == "1", before[2]
        headers = names.set_in(entry.headers, (names.ACTION_BEFORE, None))
        anew = msgspec.structs.replace(entry, destination=destination, headers=headers)
        lane = entry_keys.lane(entry.team, entry_keys.read_source(key).topic, destination, ordered)
        acted = self._move_entry(state, key, entry, anew, due_at_ms, lane)
        # To be discarded it counted as one that is not sent.
        return acted._replace(moved=None, sent=_pack_send(acted.key, entry, anew))

    def _edit_entry(self, state: ActionState, member: Member, entry: Entry, envelope: bytes) -> ActedLetter | Refusal:
        return Refusal(CHANGED) if hash_envelope(envelope) != member.digest else self._change_entry(state, member, entry)

    def _change_entry(self, state: ActionState, member: Member, entry: Entry) -> ActedLetter | Refusal:
        key = member.key
        changed = letter_changes.change_content(state.action, key, entry, member.envelope, self._codec)
        if isinstance(changed, Refusal):
            return changed
        patch = state.action.patch
        is_due_as_before = state.action.kind == action_records.PATCH and not (patch is not None and patch.retries)
        due_at_ms = entry_keys.due_at_ms(key) + 1 if is_due_as_before else member.due_at_ms
        acted = self._move_entry(state, key, entry, changed, due_at_ms)
        kept = letter_changes.keep_superseded(state, entry, self.discarded)
        if (changed.key, changed.value) == (entry.key, entry.value):
            return acted._replace(kept=kept)
        # It is known by its value where it comes back without headers, so the send of the former one ends.
        move = cast(Redecision, acted.move)
        ended = move._replace(packed=msgspec.structs.replace(move.packed, reason=SUPERSEDED))
        return acted._replace(moved=movers.make_lineage_row(ended), sent=_pack_send(acted.key, entry, changed), kept=kept)

    def _erase_entry(self, state: ActionState, key: bytes, entry: Entry, now_ms: int) -> ActedLetter | Refusal:
        """Also where it is about to be parked or discarded: of these the record of lineages knows that nothing is sent."""
        if entry_keys.lane_of(key) in UNDELIVERED:
            # A null that cancels others: it is parked as soon as it has.
            return Refusal("parks")
        lane = entry_keys.lane(entry.team, entry_keys.read_source(key).topic, self.discarded)
        acted = self._move_entry(state, key, entry, letter_changes.redact_entry(entry, self.discarded), now_ms, lane)
        waits = entry.destination != self.discarded and redecide.read_letter_history(entry) is not None
        return acted if waits else acted._replace(moved=None)


def _make_acted(move: Redecision) -> ActedLetter:
    packed = move.packed
    return ActedLetter(packed.key, packed.envelope, packed.entry, move=move, moved=movers.make_lineage_row(move))


def _pack_send(key: bytes, was: Entry, entry: Entry) -> SendRow:
    history = redecide.read_letter_history(was) or _UNKNOWN
    first_ms = history.first_failed_ms or was.failed_at_ms or entry_keys.due_at_ms(key)
    return letter_changes.pack_send(key, entry, history, first_ms)


def _move_key(key: bytes, lane: bytes, due_at_ms: int, team: str, record_key: bytes | None) -> bytes:
    """The key of the same letter in another lane, which may keep the order of record keys where its own does not, or not."""
    if lane[0] == key[0]:
        return entry_keys.make_key_due_at(entry_keys.move_into_lane(key, lane), due_at_ms)
    order = entry_keys.hash_record_key(team, entry_keys.read_source(key).topic, record_key or b"") if lane[0] == ORDERED else b""
    return entry_keys.build_due_bound(due_at_ms, lane) + order + entry_keys.extract_letter(key)
