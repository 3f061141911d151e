"""Ramps: an action that goes on in steps, a few letters first, as changelog records.

| record | key | value |
| --- | --- | --- |
| step | 0x10 `action/<id>/step`, in every partition | JSON object, see `Step`: which step may be worked off |
| tally | 0x10 `action/<id>/tally/<shard>`, in shard 0 | what that shard has done, as in its own partition |
| sending | 0x13, action, step (2 bytes), shard (2 bytes), number (4 bytes) | as a slice: keys of letters that were put |
| failed | 0x14, action, step (2 bytes), lineage (8 bytes), team (4 bytes); shard 0 | version (1 byte), when written (8 bytes) |

All numbers are big-endian. A letter that was put by a step says so in the header `retry-action`, as `<id>/<step>`. Where it fails
again, intake marks its lineage in the very transaction that takes it in: being a key, a mark counts once, however often it is
written, and whoever writes it. The header is only what the letter says of itself: so a mark has the team whose topic the letter
was written to, and counts only where the action is about letters of that team. What is to be known of all shards lies in shard 0,
whichever number of shards there is.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import msgspec

from retry import format_versions
from retry.errors import EntryNewer, EntryUnreadable

SENDING, FAILED = b"\x13", b"\x14"
HOME = 0
# Drawn at random from all letters; the steps behind these go by the order of keys.
DRAWN_STEPS = (1, 2, 5, 20, 50, 200, 1_000)
FIRST_IN_ORDER, GROWS = 5_000, 5
KEEP = 0.9
_ACTION_BYTES = 8
_SENDING, _FAILED, _STEP = struct.Struct(">HHI"), struct.Struct(">HQI"), struct.Struct(">H")
SENDING_BYTES = 1 + _ACTION_BYTES + _SENDING.size
FAILED_BYTES = 1 + _ACTION_BYTES + _FAILED.size
_TEAM = struct.Struct(">I")
_FAILED_AT = struct.Struct(">BQ")
_MARK = re.compile(rb"([0-9a-f]{16})/([0-9]{1,4})")


class Ramp(msgspec.Struct, frozen=True):
    """How an action goes on in steps of so many letters each, of which the part `keep` must recover.

    Attributes:
      settle_ms, silence_ms: so long after their consumer groups have passed its letters a step is judged, or, where no group is
        named, after anything was last heard of it.
    """

    keep: float
    steps: list[int]
    settle_ms: int
    silence_ms: int

    def find_open_step(self, passed: int) -> int:
        """Return the number, from 1, of the step that is open where so many have passed; of the last where all have."""
        return min(passed + 1, len(self.steps))


class Step(msgspec.Struct, frozen=True):
    """How far a ramp has come.

    Attributes:
      step: it may be worked off, with those before it; their number where all are judged.
      since: the first one that counts: those before a hold that an operator ended do not.
      before: letters of that one that were put by then, and those of them that had failed again, which do not either.
      held_ms: when it was judged and too few had recovered; 0 where it was not.
      silent: topics of which nobody says what was read there: the step before has passed in silence.
    """

    step: int = 0
    since: int = 0
    before: tuple[int, int] = (0, 0)
    held_ms: int = 0
    silent: list[str] = []
    v: int = format_versions.ACTION.writes


decode_step = msgspec.json.Decoder(Step).decode


class StepTally(msgspec.Struct, array_like=True, frozen=True):
    """The counts of one shard for one step of a ramp.

    Attributes:
      put: those of them that were put to be sent, in whichever shard.
      sent: letters that have left this shard since.
    """

    worked: int = 0
    put: int = 0
    sent: int = 0


def compute_steps(members: int) -> list[int]:
    """Compute the step sizes of a ramp, which sends so many letters in growing steps.

    >>> compute_steps(4), compute_steps(10_000)
    ([1, 2, 1], [1, 2, 5, 20, 50, 200, 1000, 5000, 3722])
    """
    sizes, left, in_order = [], members, FIRST_IN_ORDER
    for size in DRAWN_STEPS:
        if left:
            sizes.append(min(size, left))
            left -= sizes[-1]
    while left:
        sizes.append(min(in_order, left))
        left, in_order = left - sizes[-1], in_order * GROWS
    return sizes


def step_key(action: bytes) -> bytes:
    """Build the key of the record that says how far a ramp has come."""
    return b"\x10action/" + action.hex().encode() + b"/step"


def tally_copy_key(action: bytes, shard: int) -> bytes:
    """Build the key of the record in shard 0 that says what another shard has done for an action."""
    return b"\x10action/" + action.hex().encode() + b"/tally/%d" % shard


def build_sending_key(action: bytes, step: int, shard: int, number: int) -> bytes:
    """Build the key of the letters that one transaction of a shard has put; no other transaction of the shard has this number."""
    return SENDING + action + _SENDING.pack(step, shard, number)


def build_sending_prefix(action: bytes) -> bytes:
    return SENDING + action


def build_failed_prefix(action: bytes, step: int | None = None) -> bytes:
    """Return the key prefix of all marks of an action, or of one of its steps."""
    return FAILED + action + (b"" if step is None else _STEP.pack(step))


def step_of(key: bytes) -> int:
    step: int = _STEP.unpack_from(key, 1 + _ACTION_BYTES)[0]
    return step


def mark(action: bytes, step: int) -> bytes:
    """Return the value of the header `retry-action` of letters that this step has put: `<id>/<step>`."""
    return b"%b/%d" % (action.hex().encode(), step)


def read_mark(text: bytes | None) -> tuple[bytes, int] | None:
    """Read the action and step from the header `retry-action` of a letter; None where the text says nothing of a step.

    >>> read_mark(mark(b"12345678", 3)), read_mark(b"3132333435363738"), read_mark(None)
    ((b'12345678', 3), None, None)
    """
    found = _MARK.fullmatch(text) if text else None
    return None if found is None else (bytes.fromhex(found[1].decode()), int(found[2]))


def build_failed_row(action: bytes, step: int, lineage: int, now_ms: int, *, team: int) -> dict[str, Any]:
    """Build the record that marks a lineage as failed again; `team` is its short number, see `retry.intake.attempts`."""
    value = _FAILED_AT.pack(format_versions.ACTION.writes, now_ms)
    return {"key": FAILED + action + _FAILED.pack(step, lineage, team), "value": value}


def read_failed_team(key: bytes) -> int:
    team: int = _TEAM.unpack_from(key, len(key) - _TEAM.size)[0]
    return team


def read_failed_at_ms(value: bytes) -> int:
    at_ms: int = _FAILED_AT.unpack(value)[1]
    return at_ms


def check_failed(value: bytes) -> None:
    """Look at a mark's version and length; raises EntryNewer where a newer one wrote it, EntryUnreadable where none did."""
    if value:
        format_versions.ACTION.refuse_newer(value[0], EntryNewer)
    if len(value) != _FAILED_AT.size:
        raise EntryUnreadable(f"{len(value)} bytes are no mark of a letter that failed again")
