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
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from retry import format_versions
from retry.delay_queue.ramp_records import HOME, Ramp, Step, StepTally, mark, step_key, tally_copy_key
from retry.errors import EntryNewer, EntryUnreadable

SLICE = b"\x11"
ACTION_BYTES, MEMBERS_MAX = 8, 500
# So far the clocks of brokers and workers may be apart.
CLOCKS_MS = 3_600_000
_PREFIX = b"\x10action/"
_HELD, _RESUMED, _CANCELLED, _TALLY = "held", "resumed", "cancelled", "tally"
_PLACE = struct.Struct(">HI")
SLICE_BYTES = 1 + ACTION_BYTES + _PLACE.size
# No key of a row of an action has more behind that.
ROW_BYTES = 16

RETRY, REDIRECT, PARK, DISCARD, EDIT, PATCH, UNDO = "retry", "redirect", "park", "discard", "edit", "patch", "undo"
# Asked for by `retry erase` alone: of all letters with one record key, which the head does not name.
ERASE = "erase"
KINDS = (RETRY, REDIRECT, PARK, DISCARD, EDIT, PATCH, UNDO, ERASE)

_Shape = TypeVar("_Shape")


class Member(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One letter of an action.

    Attributes:
      key: of its entry, as it was when the letters were chosen; of a letter that rests, its place, see
        `retry.delay_queue.returned_offsets`.
      due_at_ms: when it is due from then on; no two members of an action would share a key.
      digest: of the envelope that an edit was made from; empty otherwise.
      envelope: what an edit makes of it; empty otherwise.
    """

    key: bytes
    due_at_ms: int
    digest: bytes = b""
    envelope: bytes = b""


class Slice(msgspec.Struct, array_like=True, frozen=True):
    """Some members of an action, all of one shard."""

    version: int
    written_at_ms: int
    members: list[Member]


class Patch(msgspec.Struct, frozen=True):
    """What changes in each letter.

    Attributes:
      headers: set to a text, or removed where that is None.
      value: a JSON merge patch (RFC 7396), as JSON; empty where values stay.
    """

    headers: dict[str, str | None] = {}
    value: str = ""


class Action(msgspec.Struct, frozen=True):
    """What is to become of its members.

    Attributes:
      kind: see `KINDS`. When a retry is due is with each member.
      by: who asked for it.
      asked_at_ms: when, by the brokers' time.
      slices: how many each shard has.
      members: how many letters.
      policies: SHA-256 of the policy file by which targets were checked, in hexadecimal.
      target: of a redirect.
      undoes: the id of the action that an undo is about.
      reason, filter: in the operator's words, and which letters were meant.
      parking: names of topics in which members rest, by the hash of their ids, in hexadecimal.
      ramp: how it goes on in steps; None where all is done at once.
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
    v: int = format_versions.ACTION.writes


class Order(msgspec.Struct, frozen=True):
    """Hold, resume or cancel an action.

    Attributes:
      hold: what a `resumed` ends: `at_ms` of the hold. A later hold stands.
    """

    by: str
    at_ms: int
    reason: str = ""
    hold: int = 0


class Tally(msgspec.Struct, frozen=True):
    """What one shard has done of an action.

    Attributes:
      slices: how many it is done with.
      done: letters for which it did what was asked.
      gone: letters that did not wait under their key any more: sent, moved or ended by something else.
      refused: others, by why nothing was done for them.
      steps: of a ramp, the same by step.
      targets: of a ramp, where its letters go.
    """

    slices: int = 0
    done: int = 0
    gone: int = 0
    refused: dict[str, int] = {}
    steps: list[StepTally] = []
    targets: list[str] = []

    @property
    def members(self) -> int:
        """How many letters it was about."""
        return self.done + self.gone + sum(self.refused.values())


class ActionState(NamedTuple):
    """An action as one shard has it.

    Attributes:
      held: the order to hold it; None where it was resumed since.
      resumed: the last order to go on.
      step: how far a ramp has come.
      others: of a ramp, in the shard that judges it: what other shards have done.
      at_step: the step of the letters at hand, which they are marked with.
    """

    id: bytes
    action: Action
    held: Order | None
    cancelled: Order | None
    tally: Tally
    resumed: Order | None = None
    step: Step = Step()
    others: tuple[Tally, ...] = ()
    at_step: int | None = None

    @property
    def mark(self) -> bytes:
        """What letters say that it has put."""
        return self.id.hex().encode() if self.at_step is None else mark(self.id, self.at_step)

    @property
    def climbs(self) -> bool:
        """Whether it goes on in steps that are not all judged."""
        ramp = self.action.ramp
        return ramp is not None and self.cancelled is None and self.step.step < len(ramp.steps)

    def has_ended(self, shard: int) -> bool:
        """Whether nothing of it is left to be done in that shard; one judges the steps of a ramp besides."""
        return not self.left(shard) and not (self.climbs and shard == HOME)

    def slices(self, shard: int) -> int:
        """How many slices the shard had; none where there was no such shard yet."""
        return self.action.slices[shard] if shard < len(self.action.slices) else 0

    def left(self, shard: int) -> int:
        """How many of them are not done."""
        return max(0, self.slices(shard) - self.tally.slices)


def new_id() -> bytes:
    """The id of another action."""
    return secrets.token_bytes(ACTION_BYTES)


def head_key(action: bytes) -> bytes:
    """The key of the record with which it is asked for."""
    return _PREFIX + action.hex().encode()


def _order_key(action: bytes, what: str) -> bytes:
    return head_key(action) + b"/" + what.encode()


def held_key(action: bytes) -> bytes:
    """The key of the order to hold it."""
    return _order_key(action, _HELD)


def resumed_key(action: bytes) -> bytes:
    """The key of the order to go on."""
    return _order_key(action, _RESUMED)


def cancelled_key(action: bytes) -> bytes:
    """The key of the order to leave alone what is not done yet."""
    return _order_key(action, _CANCELLED)


def tally_key(action: bytes) -> bytes:
    """The key of what a shard has done of it."""
    return _order_key(action, _TALLY)


def slice_key(action: bytes, step: int, number: int) -> bytes:
    """The key of a slice; those of an earlier step come first."""
    return SLICE + action + _PLACE.pack(step, number)


def action_of(row: bytes) -> bytes:
    """Whose slice it is, or whose letter that is sent or failed again."""
    return row[1 : 1 + ACTION_BYTES]


def slices_of(action: bytes) -> bytes:
    """What the keys of all its slices begin with."""
    return SLICE + action


def beyond(row: bytes) -> bytes:
    """No row of the same kind and the same action has a greater key, and none of another one lies in between."""
    return row[: 1 + ACTION_BYTES] + b"\xff" * ROW_BYTES


def encode_slice(members: Iterable[Member], written_at_ms: int) -> bytes:
    """The value of a slice's record."""
    return msgspec.msgpack.encode(Slice(format_versions.ACTION.writes, written_at_ms, list(members)))


def decode_slice(value: bytes) -> Slice:
    """The members in a slice's record.

    Raises:
      EntryNewer: it was written by a newer version.
      EntryUnreadable: it is no slice.
    """
    try:
        found = msgspec.msgpack.decode(value, type=Slice)
    except msgspec.MsgspecError as error:
        check_slice(value)
        raise EntryUnreadable(f"the letters of an action cannot be read: {error}") from error
    check_slice(value)
    return found


def check_slice(value: bytes) -> None:
    """Look at its version and at nothing else.

    Raises:
      EntryNewer: it was written by a newer version.
    """
    try:
        version = msgspec.msgpack.decode(msgspec.msgpack.decode(value, type=list[msgspec.Raw])[0])
    except (msgspec.MsgspecError, IndexError):
        return
    if format_versions.ACTION.newer(version):
        raise EntryNewer(format_versions.ACTION.told(version))


def encode(record: Action | Order | Tally) -> bytes:
    """The value of a head, an order or a tally."""
    return msgspec.json.encode(record)


def states(controls: Mapping[bytes, bytes]) -> list[ActionState]:
    """The actions that control records tell of, those that were asked for first first.

    Raises:
      EntryUnreadable: one of them says what no version says.
    """
    heads = [key for key in controls if key.startswith(_PREFIX) and key.count(b"/") == 1]
    found = [_state(controls, key) for key in heads]
    return sorted(found, key=lambda each: (each.action.asked_at_ms, each.id))


def _state(controls: Mapping[bytes, bytes], head: bytes) -> ActionState:
    try:
        action = bytes.fromhex(head[len(_PREFIX) :].decode())
    except ValueError as error:
        raise EntryUnreadable(f"no action has the key {head!r}") from error
    held, resumed = _read(controls, held_key(action), Order), _read(controls, resumed_key(action), Order)
    if held is not None and resumed is not None and resumed.hold >= held.at_ms:
        held = None
    asked = _decoded(controls[head], Action)
    cancelled = _read(controls, cancelled_key(action), Order)
    tally = _read(controls, tally_key(action), Tally) or Tally()
    if asked.ramp is None:
        return ActionState(action, asked, held, cancelled, tally, resumed)
    copies = (_read(controls, tally_copy_key(action, shard), Tally) for shard in range(len(asked.slices)))
    others = tuple(copy for copy in copies if copy is not None)
    return ActionState(
        action, asked, held, cancelled, tally, resumed, _read(controls, step_key(action), Step) or Step(), others
    )


def _read(controls: Mapping[bytes, bytes], key: bytes, shape: type[_Shape]) -> _Shape | None:
    value = controls.get(key)
    return None if value is None else _decoded(value, shape)


def _decoded(value: bytes, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(value, type=shape)
    except msgspec.MsgspecError as error:
        raise EntryUnreadable(f"a record of an action cannot be read: {error}") from error
