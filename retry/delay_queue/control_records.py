"""What an operator asks of every shard: one changelog record in each partition, put by any process, deleted to end it.

Key: 0x10 | `pause/<scope>/<name>`, UTF-8, where the scope is `all`, `team`, `topic` (of dead letters) or `target`.
Key: 0x10 | `reschedule/<id>`, of entries that are to be moved under the present policy file.
Key: 0x10 | `action/<id>`, and more of single letters; see `retry.delay_queue.action_records`.
Value: a JSON object, see the structs; `v` is its version, 1 where it is missing. Being records of the changelog they
survive restarts, and a shard that is restored knows of them before it delivers anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from retry import format_versions
from retry.errors import EntryNewer, EntryUnreadable

_KIND = b"\x10"
_PAUSE, _RESCHEDULE, _ACTION = b"\x10pause/", b"\x10reschedule/", b"\x10action/"
SCOPES = ("all", "team", "topic", "target")
_PREFIXES = (_RESCHEDULE, _ACTION, *(_PAUSE + f"{scope}/".encode() for scope in SCOPES))
_Control = TypeVar("_Control", "Pause", "Reschedule")


class Pause(msgspec.Struct, frozen=True):
    """Nothing is delivered of what it names.

    Attributes:
      since_ms: when it was asked for.
      reason: in the operator's words.
    """

    since_ms: int
    reason: str = ""


class Reschedule(msgspec.Struct, frozen=True):
    """Waiting entries are decided anew; None stands for every one.

    Attributes:
      since_ms: when it was asked for, which is the now of every decision; entries of later failures are left alone.
      team, topic: whose entries, and from which dead-letter topic.
      policies: SHA-256 of the policy file to decide by, in hexadecimal.
    """

    since_ms: int
    team: str | None = None
    topic: str | None = None
    policies: str = ""


class _Versioned(msgspec.Struct):
    v: int = 1


def check(key: bytes, value: bytes) -> None:
    """Refuse a control of a kind or a version that this release does not know; nothing else of it is read.

    Raises:
      EntryNewer: a newer version asks for something that this one cannot do, which may be not to deliver.
    """
    if not key.startswith(_PREFIXES):
        raise EntryNewer(format_versions.CONTROL.told(key[1:60].decode("utf-8", "replace")))
    try:
        version = msgspec.json.decode(value, type=_Versioned).v
    except msgspec.MsgspecError:
        # No control at all: refused where its value is used.
        return
    known = format_versions.ACTION if key.startswith(_ACTION) else format_versions.CONTROL
    if known.newer(version):
        raise EntryNewer(known.told(version))


def pause_key(scope: str, name: str) -> bytes:
    """The key of a pause; `name` is empty for `all`."""
    return _PAUSE + f"{scope}/{name}".encode()


def reschedule_key(since_ms: int) -> bytes:
    """The key of a request to reschedule."""
    return _RESCHEDULE + b"%d" % since_ms


def paused(controls: Mapping[bytes, bytes], team: str, topic: str, target: str) -> str | None:
    """Why nothing goes from this dead-letter topic of this team to this target, or None where it may."""
    if not controls:
        return None
    for scope, name in (("all", ""), ("team", team), ("topic", topic), ("target", target)):
        value = controls.get(pause_key(scope, name))
        if value is not None:
            pause = _read(value, Pause)
            return f"paused by {scope} {name}".rstrip() + (f": {pause.reason}" if pause.reason else "")
    return None


def stand(controls: Mapping[bytes, bytes]) -> bool:
    """Whether one asks for something at every turn; what is left of an action does not, but for its slices."""
    return any(not key.startswith(_ACTION) for key in controls)


def pauses(controls: Mapping[bytes, bytes]) -> dict[tuple[str, str], Pause]:
    """What is paused, by scope and name."""
    by_scope = {}
    for key, value in controls.items():
        if key.startswith(_PAUSE):
            scope, _, name = key[len(_PAUSE) :].decode("utf-8", "replace").partition("/")
            by_scope[scope, name] = _read(value, Pause)
    return by_scope


def reschedules(controls: Mapping[bytes, bytes]) -> dict[bytes, Reschedule]:
    """What is to be rescheduled, by key, the oldest request first."""
    return {key: _read(value, Reschedule) for key, value in sorted(controls.items()) if key.startswith(_RESCHEDULE)}


def encode(control: Pause | Reschedule) -> bytes:
    """The value of a control's record."""
    return msgspec.json.encode(control)


def _read(value: bytes, shape: type[_Control]) -> _Control:
    try:
        return msgspec.json.decode(value, type=shape)
    except msgspec.MsgspecError as error:
        raise EntryUnreadable(f"a control record cannot be read: {error}") from error
