"""Versions of what workers keep and write for each other: what this service writes, and what it reads.

| format | where its version stands | written and read | what a newer version does |
| --- | --- | --- | --- |
| key | first byte, the kind | 1 plain, 2 ordered, 3 named, 4 a block | shard read-only |
| envelope | first element of the array | 1; 2 if sealed | shard read-only |
| block | first element of the array | 1; 2 if sealed | shard read-only |
| control record | `v` of the JSON object, 1 where it is missing; its kind and scope | 1 | shard read-only |
| action | first element of a slice's array; first byte of a mark; `v` of the head's JSON object | 1 | shard read-only |
| table | `format` of the state | 1 | table wiped and restored |
| lineage record | first byte | 1 | passed over, and counted as unreadable |
| read position | `v` of the JSON object | 1 | no letter is taken in |
| outcome | `v` of the JSON object | 1 | not counted; reports say so |

A table may be wiped, since it is a copy of the changelog. Nothing else is: what cannot be read stays where it is, for a worker
that can.

Of two versions that follow each other both can run at a time, and the older one can come back. For that a new version of a
format takes two releases: the first reads it and still writes the former one, the second writes it. A field that older
readers may pass over can be added at the end of an envelope, or to a JSON object, without a new number. All formats begin with
1.0, whose versions are these.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

import msgspec


class Format(NamedTuple):
    """One row of the table above: what messages call the format, the version that is written, and every version that is read."""

    name: str
    writes: int
    reads: frozenset[int]

    def newer(self, version: object) -> bool:
        return isinstance(version, int) and version > max(self.reads)

    def refuse_newer(self, version: object, error: type[Exception]) -> None:
        """Raise an error of this type where something is of a version that only newer ones of this service know."""
        if self.newer(version):
            raise error(self.describe_version(version))

    def describe_version(self, version: object) -> str:
        """Say in one sentence that a newer version of the service wrote `version`, and which ones this worker reads."""
        reads = ", ".join(map(str, sorted(self.reads)))
        return f"{self.name} {version} was written by a newer version of this service; upgrade this worker, which reads {reads}"


KEY = Format("key kind", 4, frozenset({1, 2, 3, 4}))
ENVELOPE = Format("envelope version", 1, frozenset({1, 2}))
# Written only where keys are given, and once every worker says that it reads it.
SEALED_ENVELOPE = Format("envelope version", 2, ENVELOPE.reads)
BLOCK = Format("block version", 1, frozenset({1, 2}))
# Of sealed envelopes.
ENVELOPE_BLOCK = Format("block version", 2, BLOCK.reads)
CONTROL = Format("control version", 1, frozenset({1}))
ACTION = Format("action version", 1, frozenset({1}))
TABLE = Format("table format", 1, frozenset({1}))
LINEAGE = Format("lineage record version", 1, frozenset({1}))
READ_POSITION = Format("read position version", 1, frozenset({1}))
OUTCOME = Format("outcome version", 1, frozenset({1}))
# What a worker that reads less would leave alone, or take for something else; see `announce_instance`.
_ANNOUNCED = (KEY, ENVELOPE, BLOCK, CONTROL, ACTION)
FORMATS = (KEY, ENVELOPE, BLOCK, CONTROL, ACTION, TABLE, LINEAGE, READ_POSITION, OUTCOME)


def announce_instance(instance: str) -> str:
    """Build the name of a worker in the group of its shards, with the formats it reads, so that nobody asks for others.

    >>> announce_instance("a")
    'a.reads.key-4.envelope-2.block-2.control-1.action-1'
    """
    return ".".join([instance, "reads", *(f"{of.name.split()[0]}-{max(of.reads)}" for of in _ANNOUNCED)])


def find_instance(member: str) -> str:
    """Find the name of a worker by what it is called in a group, that of its shards or another one.

    >>> find_instance(announce_instance("a")), find_instance("a")
    ('a', 'a')
    """
    return member.removesuffix(announce_instance(""))


def reads_format(instance: str, of: Format) -> bool:
    """Whether the worker of this name says that it reads what this one writes; who says nothing is no worker of this service.

    >>> reads_format("a.reads.key-4.action-1", ACTION), reads_format("a.reads.key-4.action-0", ACTION), reads_format("a", ACTION)
    (True, False, False)
    """
    found = re.search(rf"\.reads\..*\b{of.name.split()[0]}-(\d+)", instance)
    return found is not None and int(found[1]) >= of.writes


# How records of the service's own topics are decoded: whatever is wrong with one, that is told by one kind of error.
#
# Anybody who may write to such a topic can put there what no version of this service wrote. Decoders tell of that in several
# ways: of text that is no UTF-8, of what is nested too deep, of numbers beyond all bounds.

_T = TypeVar("_T")

# What decoders of JSON and of MessagePack raise of bytes that are not what they are taken for.
DECODE_ERRORS = (ValueError, RecursionError)
# Numbers that databases and Spark take, too. No year of a calendar is beyond these milliseconds, nor any count that is real.
Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
Partition = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
TopicName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
# -1 where it is not known.
LeaderEpoch = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]
# See `retry.intake.entry_source`: greater than any `Number` is.
RecordVersion = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def make_json_decoder(type_: type[_T], noun: str) -> Callable[[bytes], _T]:
    """Make a decoder of JSON objects of a type, which people call a `noun`, that raises ValueError of whatever is none."""
    decode = msgspec.json.Decoder(type_).decode

    def decode_json(value: bytes) -> _T:
        try:
            return decode(value)
        except DECODE_ERRORS as error:
            raise ValueError(f"{len(value)} bytes are no {noun}: {error}") from error

    return decode_json
