"""What operators write beside letters, workers of themselves, consoles of what they told: records of the topic `<app>-notes`. A
null removes one.

| key | value, a JSON object with `v` 1 |
| --- | --- |
| `note/<group>` | `owner`, `note`, `link`, `by`, `at_ms`, `teams` |
| `resolved/<group>` | `by`, `at_ms`: what failed until then needs nothing to be done |
| `change/<id>` | a merge or a split of groups, see `retry.console.folding.regrouping` |
| `apart/<group>+<group>` | `by`, `at_ms`: two groups that look the same are two failures |
| `filter/<team>/<name>` | `text`, `by`, `at_ms` |
| `told/<target>/<event>` | `at_ms`: that target was told of that event |
| `telling/<rule>` | `at_ms`, `known`: since when a rule of notifications holds, and which events it found then |
| `target/<name>` | `since_ms`, `reason`: that target does not answer |
| `worker/<name>` | what a worker says of itself, see `retry.telemetry.worker_records` |

Groups of failures are called by their fingerprints. All records lie in the partition that the crc32 of the key says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from zlib import crc32

import msgspec

from retry.console.folding.regrouping import CHANGE, SPLIT_BY, Change, Regrouping, changes, decode_change
from retry.console.rows import Scope
from retry.format_versions import Number, make_json_decoder
from retry.kafka.interface import Message
from retry.telemetry import worker_records
from retry.telemetry.unreadable_records import UNREADABLE
from retry.telemetry.worker_records import KEY as WORKER

NOTE, RESOLVED, FILTER, APART, TOLD, TELLING, TARGET = (
    "note/", "resolved/", "filter/", "apart/", "told/", "telling/", "target/",
)  # fmt: skip


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of a kind of failures, with a note and a link; read by `teams` that had such letters, everybody where empty."""

    owner: str
    note: str
    link: str
    by: str
    at_ms: Number
    teams: tuple[str, ...] = ()
    v: int = 1

    def is_for(self, scope: Scope) -> bool:
        return scope is None or not self.teams or not scope.isdisjoint(self.teams)


class Resolved(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nothing is to be done about what failed until then."""

    by: str
    at_ms: Number
    v: int = 1


class KeptFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    by: str
    at_ms: Number
    v: int = 1


class Apart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two groups that look the same are two failures, as somebody said: nobody is asked again."""

    by: str
    at_ms: Number
    v: int = 1


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    at_ms: Number
    title: str = ""
    path: str = ""
    v: int = 1


class Telling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Since when a rule of notifications holds, and which events it `known` then: nobody is told of those."""

    at_ms: Number
    known: tuple[str, ...] = ()
    v: int = 1


class FailingTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    since_ms: Number
    reason: str
    v: int = 1


Record = Note | Resolved | KeptFilter | Apart | Change | Told | Telling | FailingTarget
note, resolved = make_json_decoder(Note, "note"), make_json_decoder(Resolved, "resolved group")
kept_filter, apart = make_json_decoder(KeptFilter, "kept filter"), make_json_decoder(Apart, "pair of groups")
told, telling = make_json_decoder(Told, "told event"), make_json_decoder(Telling, "beginning of a rule")
failing_target = make_json_decoder(FailingTarget, "failing target")
_DECODERS: dict[str, Callable[[bytes], Record | worker_records.WorkerRecord]] = {
    NOTE: note, RESOLVED: resolved, FILTER: kept_filter, APART: apart, CHANGE: decode_change, WORKER: worker_records.read,
    TOLD: told, TELLING: telling, TARGET: failing_target,
}  # fmt: skip
encode_note = msgspec.json.Encoder().encode


def build_apart_key(one: str, other: str) -> str:
    """Return the key of the record about two groups, whichever is named first."""
    return f"{APART}{'+'.join(sorted((one, other)))}"


def find_partition(key: str, partitions: int) -> int:
    """Return the partition of `<app>-notes` that has all records of a key."""
    return crc32(key.encode()) % partitions


def list_notes(connection: sqlite3.Connection, prefix: str) -> list[tuple[str, bytes]]:
    """List keys and values of the notes whose keys begin with `prefix`, which ends in `/`."""
    return connection.execute("SELECT key, value FROM notes WHERE key >= ? AND key < ?", (prefix, prefix[:-1] + "0")).fetchall()


def find_note_fault(key: str, value: bytes) -> str | None:
    """Find out why a record is not a valid note; None where the record is valid."""
    decode = next((decode for prefix, decode in _DECODERS.items() if key.startswith(prefix)), None)
    if decode is None:
        return f"no note has the key {key[:60]!r}"
    try:
        found = decode(value)
    except ValueError as error:
        return str(error)
    if isinstance(found, Change) and found.by_what not in ("", *SPLIT_BY):
        return "nothing is split by that"
    return f"note version {found.v} was written by a newer version of this service" if found.v > 1 else None


# Records of `<app>-notes` → the newest of each key; where merges or splits change, groups change with them.

class NotesFold:
    """The fold of the topic `<app>-notes` into the table `notes`; `regroup` is called when merges or splits have changed."""

    def __init__(self, connection: sqlite3.Connection, grouping: Regrouping, regroup: Sequence[Callable[[], None]]) -> None:
        self._connection, self._grouping, self._regroup = connection, grouping, regroup

    def project_records(self, partition: int, messages: Sequence[Message]) -> None:
        # Of each key the last that can be read.
        newest: dict[str, bytes | None] = {}
        for message in messages:
            key, value = (message.key() or b"").decode("utf-8", "replace"), message.value()
            if value is not None and (fault := find_note_fault(key, value)) is not None:
                UNREADABLE.pass_over(message.topic(), partition, message.offset(), fault)
            else:
                newest[key] = value
        for key, value in newest.items():
            if value is None:
                self._connection.execute("DELETE FROM notes WHERE key = ?", (key,))
            else:
                self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, value))
        if any(key.startswith(CHANGE) for key in newest):
            self._grouping.replace(changes(self._connection))
            for regroup in self._regroup:
                regroup()
