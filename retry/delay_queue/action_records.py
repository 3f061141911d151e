"""What operators ask of single letters, as changelog records: an action, the letters that it is about, and how far it has come.

| record | key | value |
| --- | --- | --- |
| slice | 0x11, action, step (2 bytes), number (4 bytes), big-endian | MessagePack array: version, when it was written, members |
| head | 0x10 `action/<id>` | JSON object, see `Action`: with it the action is asked for |
| order | 0x10 `action/<id>/held`, `/resumed` or `/cancelled` | JSON object, see `Order` |
| tally | 0x10 `action/<id>/tally` | JSON object, see `Tally`: of this shard alone |

Of an action that goes on in steps there are more, see `retry.delay_queue.ramp_records`.

A slice lies in the partition of its entries, and names at most 500 of them; one of letters that rest lies in partition 0. Head
and orders lie in every partition. The slices come first, in as many transactions as they need; the head, in one for all
partitions, names how many each has. So an action is whole or not there. Whoever owns a shard works off its slices one after
another. A slice ends, with a null or with what is left of it, in the transaction in which its letters are moved and the tally
of the shard counts them.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable

import msgspec

from retry import format_versions
from retry.delay_queue import entry_keys, returned_offsets
from retry.delay_queue.ramp_records import Ramp, StepTally
from retry.errors import EntryNewer, EntryUnreadable
from retry.format_versions import DECODE_ERRORS

SLICE = b"\x11"
ACTION_BYTES, MEMBERS_MAX = 8, 500
# So far the clocks of brokers and workers may be apart.
CLOCKS_MS = 3_600_000
PREFIX = b"\x10action/"
_PLACE = struct.Struct(">HI")
SLICE_BYTES = 1 + ACTION_BYTES + _PLACE.size
# No key of a row of an action has more behind that.
ROW_BYTES = 16

RETRY, REDIRECT, PARK, DISCARD, EDIT, PATCH, UNDO = "retry", "redirect", "park", "discard", "edit", "patch", "undo"
# Asked for by `retry erase` alone: of all letters with one record key, which the head does not name.
ERASE = "erase"
KINDS = (RETRY, REDIRECT, PARK, DISCARD, EDIT, PATCH, UNDO, ERASE)


class Member(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One letter of an action.

    Attributes:
      key: of its entry, as it was when the letters were chosen; of a letter that rests, see `retry.delay_queue.returned_offsets`.
      due_at_ms: when it is due from then on, or a little later where another entry has the key that it would get.
    """

    key: bytes
    due_at_ms: int
    digest: bytes = b""
    envelope: bytes = b""


class Slice(msgspec.Struct, array_like=True, frozen=True):
    version: int
    written_at_ms: int
    members: list[Member]


class Patch(msgspec.Struct, frozen=True):
    """The changes that a patch makes in each letter of its action.

    Attributes:
      value: a JSON merge patch (RFC 7396), as JSON; empty where values stay.
      retries: whether letters that wait are due as their members say, and not as they were before.
    """

    headers: dict[str, str | None] = {}
    value: str = ""
    retries: bool = False


class Action(msgspec.Struct, frozen=True):
    """The head of an action: what an operator wants done with its letters.

    Attributes:
      asked_at_ms: when, by the brokers' time.
      slices, members: how many slices each shard has, and how many letters there are.
      policies: SHA-256 of the policy file by which targets were checked, in hexadecimal.
      parking: names of topics in which members rest, by the hash of their ids, in hexadecimal.
      ramp: how it goes on in steps; None where all is done at once.
      teams: whose letters they are, so that others are told nothing of it; empty where that was not written down.
    """

    kind: str
    by: str
    asked_at_ms: int
    slices: list[int]
    members: int
    policies: str = ""
    target: str | None = None
    patch: Patch | None = None
    undoes: str | None = None
    reason: str = ""
    filter: str = ""
    parking: dict[str, str] = {}
    ramp: Ramp | None = None
    teams: list[str] = []
    v: int = format_versions.ACTION.writes


class Order(msgspec.Struct, frozen=True):
    """Hold, resume or cancel an action.

    Attributes:
      hold: what a `resumed` ends: `at_ms` of the hold. A later hold stands.
      policies: SHA-256 of the policy file that a worker has which holds for want of another; of a `resumed`, of one that will do.
    """

    by: str
    at_ms: int
    reason: str = ""
    hold: int = 0
    policies: str = ""


class Tally(msgspec.Struct, frozen=True):
    """The counts of one shard for an action: how many letters it is done with, and how they ended.

    Attributes:
      done: letters for which it did what was asked.
      gone: letters that did not wait under their key any more: sent, moved or ended by something else.
      refused: how many other letters nothing was done for, by the reason.
      steps, targets: of a ramp, the counts of each step, and the topics that its letters go to.
    """

    slices: int = 0
    done: int = 0
    gone: int = 0
    refused: dict[str, int] = {}
    steps: list[StepTally] = []
    targets: list[str] = []

    @property
    def members(self) -> int:
        return self.done + self.gone + sum(self.refused.values())


def make_action_id() -> bytes:
    return secrets.token_bytes(ACTION_BYTES)


def build_head_key(action: bytes) -> bytes:
    return PREFIX + action.hex().encode()


def build_held_key(action: bytes) -> bytes:
    return build_head_key(action) + b"/held"


def build_resumed_key(action: bytes) -> bytes:
    return build_head_key(action) + b"/resumed"


def build_cancelled_key(action: bytes) -> bytes:
    """Build the key of the order that cancels an action: it leaves alone what is not done yet."""
    return build_head_key(action) + b"/cancelled"


def tally_key(action: bytes) -> bytes:
    return build_head_key(action) + b"/tally"


def build_slice_key(action: bytes, step: int, number: int) -> bytes:
    """Build the key of a slice, some letters of an action in one shard; slices of an earlier step come first."""
    return SLICE + action + _PLACE.pack(step, number)


def find_action_id(row: bytes) -> bytes:
    """Return the id of the action in the key of a slice, of letters that a ramp sends, or of a mark."""
    return row[1 : 1 + ACTION_BYTES]


def build_slices_prefix(action: bytes) -> bytes:
    return SLICE + action


def build_end_key(row: bytes) -> bytes:
    """Build the greatest key that rows of an action may have, of the same kind as `row`.

    No row of another action lies in between.
    """
    return row[: 1 + ACTION_BYTES] + b"\xff" * ROW_BYTES


decode_action = msgspec.json.Decoder(Action).decode
decode_order = msgspec.json.Decoder(Order).decode
decode_tally = msgspec.json.Decoder(Tally).decode
_decode_slice = msgspec.msgpack.Decoder(Slice).decode


def encode_slice(members: Iterable[Member], written_at_ms: int) -> bytes:
    return msgspec.msgpack.encode(Slice(format_versions.ACTION.writes, written_at_ms, list(members)))


def decode_slice(value: bytes) -> Slice:
    """Decode the members in a slice's record; raises EntryNewer for a newer version, EntryUnreadable where it is no slice."""
    try:
        found = _decode_slice(value)
    except DECODE_ERRORS as error:
        check_slice(value)
        raise EntryUnreadable(f"the letters of an action cannot be read: {error}") from error
    check_slice(value)
    return found


def check_members(found: Slice) -> None:
    """Look at the keys of a slice's members; raises EntryUnreadable where one of them names no letter."""
    for member in found.members:
        (returned_offsets.decode_place if returned_offsets.is_place(member.key) else entry_keys.read_source)(member.key)


def check_slice(value: bytes) -> None:
    """Look at a slice's version and at nothing else; raises EntryNewer where a newer version wrote it."""
    try:
        version = msgspec.msgpack.decode(msgspec.msgpack.decode(value, type=list[msgspec.Raw])[0])
    except (*DECODE_ERRORS, IndexError):
        return
    format_versions.ACTION.refuse_newer(version, EntryNewer)


def encode(record: Action | Order | Tally) -> bytes:
    return msgspec.json.encode(record)
