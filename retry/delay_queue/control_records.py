"""What an operator asks of every shard: one changelog record in each partition, put by any process, deleted to end it.

Key: 0x10 | `pause/<scope>/<name>`, UTF-8, where the scope is `all`, `team`, `topic` (of dead letters) or `target`.
Key: 0x10 | `reschedule/<id>`, of entries that are to be moved under the present policy file.
Key: 0x10 | `action/<id>`, and more of single letters; see `retry.delay_queue.action_records`.
Value: a JSON object, see the structs; `v` is its version, 1 where it is missing. Being records of the changelog they
survive restarts, and a shard that is restored knows of them before it delivers anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from retry import format_versions
from retry.clock import iso
from retry.errors import EntryNewer, EntryUnreadable
from retry.format_versions import DECODE_ERRORS

_KIND = b"\x10"
_PAUSE, _RESCHEDULE, _ACTION = b"\x10pause/", b"\x10reschedule/", b"\x10action/"
SCOPES = ("all", "team", "topic", "target")
_PREFIXES = (_RESCHEDULE, _ACTION, *(_PAUSE + f"{scope}/".encode() for scope in SCOPES))
_Control = TypeVar("_Control", "Pause", "Reschedule")


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nothing is delivered of what it names, until `until_ms`, or None until somebody ends it."""

    since_ms: int
    reason: str = ""
    until_ms: int | None = None
    by: str = ""

    def stands(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def describe(self) -> str:
        """Describe until when, why and by whom letters are paused, as far as that is known."""
        until = "" if self.until_ms is None else f" until {iso(self.until_ms)}"
        return until + (f": {self.reason}" if self.reason else "") + (f" ({self.by})" if self.by else "")


class Reschedule(msgspec.Struct, frozen=True):
    """Waiting entries are decided anew; None stands for every one.

    Attributes:
      since_ms: when it was asked for, which is the now of every decision; entries of later failures are left alone.
      policies: SHA-256 of the policy file to decide by, in hexadecimal.
    """

    since_ms: int
    team: str | None = None
    topic: str | None = None
    policies: str = ""
    acted: bool = False


class _Versioned(msgspec.Struct):
    v: int = 1


_decode_pause = msgspec.json.Decoder(Pause).decode
_decode_reschedule = msgspec.json.Decoder(Reschedule).decode
_decode_version = msgspec.json.Decoder(_Versioned).decode


def check(key: bytes, value: bytes) -> None:
    """Look at a control: a pause, a request to reschedule, or of an action its version alone.

    Raises EntryUnreadable where no version wrote it, EntryNewer where a newer one did: it may ask for no deliveries.
    """
    if not key.startswith(_PREFIXES):
        raise EntryNewer(format_versions.CONTROL.describe_version(key[1:60].decode("utf-8", "replace")))
    try:
        version = _decode_version(value).v
    except DECODE_ERRORS as error:
        raise EntryUnreadable(f"a control record cannot be read: {error}") from error
    known = format_versions.ACTION if key.startswith(_ACTION) else format_versions.CONTROL
    known.refuse_newer(version, EntryNewer)
    if key.startswith(_PAUSE):
        _read(value, _decode_pause)
    elif key.startswith(_RESCHEDULE):
        _read(value, _decode_reschedule)


def pause_key(scope: str, name: str) -> bytes:
    """Build the key of a pause; `name` is empty for the scope `all`."""
    return _PAUSE + f"{scope}/{name}".encode()


def reschedule_key(since_ms: int) -> bytes:
    return _RESCHEDULE + b"%d" % since_ms


def find_pause(controls: Mapping[bytes, bytes], team: str, topic: str, target: str, now_ms: int) -> str | None:
    """Find why nothing goes now from a team's dead-letter topic to a target; None where letters may go."""
    if not controls:
        return None
    for scope, name in (("all", ""), ("team", team), ("topic", topic), ("target", target)):
        value = controls.get(pause_key(scope, name))
        if value is not None and (pause := _read(value, _decode_pause)).stands(now_ms):
            return f"paused by {scope} {name}".rstrip() + pause.describe()
    return None


def is_standing_request(controls: Mapping[bytes, bytes]) -> bool:
    """Whether one asks for something to be done at every turn: no pause does, and of an action only its slices."""
    return any(key.startswith(_RESCHEDULE) for key in controls)


def read_pauses(controls: Mapping[bytes, bytes], now_ms: int) -> dict[tuple[str, str], Pause]:
    by_scope = {}
    for key, value in controls.items():
        if key.startswith(_PAUSE):
            scope, _, name = key[len(_PAUSE) :].decode("utf-8", "replace").partition("/")
            pause = _read(value, _decode_pause)
            if pause.stands(now_ms):
                by_scope[scope, name] = pause
    return by_scope


def read_reschedules(controls: Mapping[bytes, bytes]) -> dict[bytes, Reschedule]:
    """Return the requests to reschedule, by the keys of their records, the oldest request first."""
    return {key: _read(value, _decode_reschedule) for key, value in sorted(controls.items()) if key.startswith(_RESCHEDULE)}


def encode(control: Pause | Reschedule) -> bytes:
    return msgspec.json.encode(control)


def _read(value: bytes, decode: Callable[[bytes], _Control]) -> _Control:
    try:
        return decode(value)
    except DECODE_ERRORS as error:
        raise EntryUnreadable(f"a control record cannot be read: {error}") from error
