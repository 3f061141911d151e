"""What an action changes of a letter, whether it waits or rests: by an edit, by a patch, or by erasing it.

Pure: what a preview shows is what a worker does. A patch sets or removes headers, and merges JSON into the value (RFC 7396). What
a merge patch does not name stays as it was written, byte for byte, so that no number is rounded on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Raw

from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, entry_keys, envelopes
from retry.delay_queue.action_records import Action, Patch
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.entry_keys import ORDERED
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery.redecide import Redecision
from retry.errors import EntryForeign, EntryNewer, SealUnopened
from retry.intake import attempts
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.intake.build_entry import EntryBuilder
from retry.record import Header

# Why nothing is done for a letter: it is not there, is not what an edit was made from, cannot be opened, fits nowhere, cannot be
# kept as it was, or was returned before.
GONE, CHANGED, SEALED, TOO_LARGE, REFUSED, RETURNED = "gone", "changed", "sealed", "too_large", "refused", "returned"
_NULL, _OBJECT = b"null", b"{"
# So deep that it is no JSON that anybody can read, or no JSON at all.
_FAULTS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Refusal(NamedTuple):
    """Why an action does nothing for a letter: in a word, as tallies and the audit have it."""

    reason: str


# What the record of lineages is told of a send, and the team that has the letter.
SendRow = tuple[str, attempts.LineageFields]


class ActedLetter(NamedTuple):
    """A letter for which an action does something: one that waits is moved, one that rests is put to wait again.

    Attributes:
      sent: of the send that waits now; None where the record of lineages knows of it, or nothing is sent.
      kept: the letter as it was, for the topic of discarded letters; None where it stays as it was.
      move: the entry that waited, and what it is replaced by; None of a letter that rests.
      moved: of the send that waited; None where none did.
      shard: where a letter that rests waits from now on; None of one that waits, which stays in its own.
    """

    key: bytes
    envelope: bytes
    entry: Entry
    sent: SendRow | None = None
    kept: Entry | None = None
    move: Redecision | None = None
    moved: SendRow | None = None
    shard: int | None = None

    @property
    def before(self) -> Entry | None:
        """The letter before the action, where that is known from what is written for it."""
        return self.kept if self.move is None else self.move.entry


def change_content(action: Action, key: bytes, entry: Entry, edited: bytes, codec: EnvelopeCodec) -> Entry | Refusal:
    """Make the entry with other content, as an edit (by its `edited` envelope) or a patch asks, or return why it cannot be."""
    if action.kind not in (action_records.EDIT, action_records.PATCH):
        return entry
    changed = _edit_entry(key, entry, edited, codec) if action.kind == action_records.EDIT else _patch_entry(entry, action.patch)
    if isinstance(changed, Entry) and key[0] == ORDERED and changed.key != entry.key:
        # It would be overtaken in the queue of its new key, which may be in another shard.
        return Refusal("keeps_order")
    return Refusal("unchanged") if changed == entry else changed


def _edit_entry(key: bytes, entry: Entry, edited: bytes, codec: EnvelopeCodec) -> Entry | Refusal:
    """Give the entry the key, the value and the headers of the edited one; what the service says of it stays."""
    try:
        content = codec.decode(key, edited)
    except (EntryForeign, EntryNewer):
        # An operator's mistake, which says nothing of what waits here.
        return Refusal("unreadable")
    except SealUnopened:
        return Refusal(SEALED)
    ours = [header for header in entry.headers if header[0] in names.OURS]
    headers = [*(header for header in content.headers if header[0] not in names.OURS), *ours]
    return msgspec.structs.replace(entry, key=content.key, value=content.value, headers=headers)


def _patch_entry(entry: Entry, patch: Patch | None) -> Entry | Refusal:
    if patch is None or find_patch_fault(patch) is not None:
        return Refusal("no_patch")
    changes = ((name, None if text is None else text.encode()) for name, text in patch.headers.items())
    headers, value = names.set_in(entry.headers, *changes), entry.value
    if patch.value:
        try:
            value = merge_json(entry.value or b"", patch.value.encode())
        except _FAULTS:
            return Refusal("not_json")
    return msgspec.structs.replace(entry, headers=headers, value=value)


def keep_superseded(state: ActionState, entry: Entry, discarded: str) -> Entry:
    marks = [(names.ACTION, state.id.hex().encode()), (names.ACTION_BEFORE, names.SUPERSEDED)]
    return msgspec.structs.replace(entry, destination=discarded, headers=names.set_in(entry.headers, *marks))


def is_taken_by_topics(builder: EntryBuilder, envelope: bytes, entry: Entry, kept: Entry | None) -> bool:
    """Whether all that is written for a letter is taken; what is refused for its size would undo a transaction for ever."""
    is_kept = kept is None or builder.is_taken_by_topics(envelopes.encode(kept), kept, may_compress=False)
    return is_kept and builder.is_taken_by_topics(envelope, entry)


def pack_send(key: bytes, entry: Entry, history: LetterHistory, first_failed_ms: int) -> SendRow:
    """Pack what the record of lineages is told of a send that it does not know of yet."""
    topic, due_at_ms = entry_keys.read_source(key).topic, entry_keys.due_at_ms(key)
    fingerprint = attempts.make_fingerprint(topic, attempts.hash_payload(entry.key, entry.value))
    row = attempts.build_fields(history.number, fingerprint, due_at_ms, first_failed_ms, (history.made or 0) + 1)
    return entry.team, row


def set_due_header(entry: Entry, due_at_ms: int, *others: Header) -> Entry:
    """Return the entry with another due time in its headers, and with some other headers of ours."""
    headers = [(name, b"%d" % due_at_ms if name == names.DUE_MS else value) for name, value in entry.headers]
    return msgspec.structs.replace(entry, headers=names.set_in(headers, *others))


def find_patch_fault(patch: Patch) -> str | None:
    """Return what is wrong with a patch, whatever letter it is for; None where nothing is."""
    if own := sorted(names.OURS & patch.headers.keys()):
        return f"the header {own[0]} is this service's own and cannot be changed"
    if patch.value:
        try:
            merge_json(_NULL, patch.value.encode())
        except _FAULTS as error:
            return f"the merge patch is no JSON: {error}"
    return None if patch.value or patch.headers else "the patch changes nothing: give headers or a merge patch"


def merge_json(value: bytes, patch: bytes) -> bytes:
    """Apply a JSON merge patch to a JSON value, and return the result as JSON.

    >>> merge_json(b'{"a": 1.10, "b": {"c": 2, "d": 3}}', b'{"a": null, "b": {"c": 4}, "e": [5]}')
    b'{"b":{"c":4,"d":3},"e":[5]}'

    Raises MsgspecError, RecursionError or UnicodeDecodeError where one of the two is no JSON, or too deep.
    """
    return bytes(_merge_values(msgspec.json.decode(value, type=Raw), msgspec.json.decode(patch, type=Raw)))


def _merge_values(value: Raw, patch: Raw) -> Raw:
    if not _is_object(patch):
        return patch
    result = _decode_members(value) if _is_object(value) else {}
    for name, change in _decode_members(patch).items():
        if bytes(change).strip() == _NULL:
            result.pop(name, None)
        else:
            result[name] = _merge_values(result.get(name, Raw(_NULL)), change)
    return Raw(msgspec.json.encode(result))


def _is_object(json: Raw) -> bool:
    return bytes(json).lstrip().startswith(_OBJECT)


def _decode_members(json: Raw) -> dict[str, Raw]:
    return msgspec.json.decode(json, type=dict[str, Raw])


# What is left of a letter that is erased, since a person asked for it: that there was one, and where it failed.
#
# That goes to the topic of discarded letters at once, so that whoever counts letters finds where each ended. Of a letter that
# rests, the record where it does is marked as returned, so that nobody returns it: it can be removed by nobody but Kafka.

# They tell which letter it was and how often it was sent, and nothing that came with it. Without a policy it counts as no retry.
_KEPT = frozenset({names.ID, names.ATTEMPT, names.SOURCE, names.DUE_MS, names.FIRST_FAILED_MS, names.ACTION})


class WithdrawnPlace(NamedTuple):
    """The place of a record that is no letter of its own, as a former version, or is not ours: nobody returns it any more."""

    key: bytes


def redact_entry(entry: Entry, discarded: str) -> Entry:
    """Make the entry that replaces one that is erased: without its record key, its value, and headers that came with it."""
    headers = [header for header in entry.headers if header[0] in _KEPT]
    marked = names.set_in(headers, (names.ACTION_BEFORE, names.ERASED))
    return msgspec.structs.replace(entry, destination=discarded, key=None, value=None, headers=marked)
