"""What was decided of each letter, as JSON records of the outcomes topic, of which each tells of many letters:

| field | meaning |
| --- | --- |
| `v` | 1 |
| `taken_ms` | when the service took these letters in; where operators have decided, when that was done |
| `action`, `action_kind` | only where operators have decided: the action's id in hexadecimal, and what was asked, as `redirect` |
| `letters` | list of objects with the fields below: first what their letters share, then lists with a value for each letter |
| `team`, `topic`, `partition`, `policy` | whose letters, from where, decided by which policy |
| `attempt` | number of the retry that the decision is about; 1 is the first |
| `exception` | class as the framework names it, or null |
| `decision` | `retry` or `park`; of actions also `return`: retried once more from where it rested, `discard` and `erase` |
| `reason` | why they were parked, or null |
| `target` | topic that the letters go to |
| `cause` | class of the root cause, or null |
| `fingerprint` | 16 hexadecimal digits that failures of one kind share, see `retry.telemetry.fingerprint`; or null |
| `group` | consumer group that failed: as the letter names it, or else the policy file; or null |
| `id` | list: lineage, the same for all attempts of one original record |
| `offset` | list: where in its partition each letter is |
| `first_failed_ms`, `failed_ms` | lists: when the original record failed first, and this time |
| `due_ms` | list: when the retry is due; null where there is none |

Of one letter the last outcome stands. Of a letter that operators acted on, the first one alone has `exception`, `cause`,
`fingerprint` and `group`: they are null in those of actions, which know them no better.

When a retry was sent is not here: the record on the target topic says it. Records with the key `position` tell what consumer
groups have committed, see `retry.telemetry.offset_records`; letters have no `kind`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, TypedDict, cast

import msgspec
import orjson

from retry import format_versions
from retry.format_versions import Number, Offset, Partition, TopicName, make_json_decoder

RETRY, RETURN, PARK, DISCARD, ERASE = "retry", "return", "park", "discard", "erase"
# A record stays well below what every broker takes, and a reader has to take little of it apart for one letter.
_LETTERS_A_RECORD, _RECORD_BYTES = 500, 200_000


class Outcome(TypedDict):
    """One letter and what was decided, as readers see it: `source` is `topic/partition/offset`, `action` null at intake."""

    v: int
    id: str
    source: str
    team: str
    topic: str
    policy: str
    attempt: int
    exception: str | None
    first_failed_ms: int
    failed_ms: int
    taken_ms: int
    decision: str
    reason: str | None
    due_ms: int | None
    target: str
    cause: str | None
    fingerprint: str | None
    group: str | None
    delay_ms: int | None
    action: str | None
    action_kind: str | None


class ActionOutcome(NamedTuple):
    """Which action has decided of letters."""

    id: str
    kind: str


class SharedFields(NamedTuple):
    """Fields that many letters of a batch have in common, written once for all of them."""

    team: str
    topic: str
    partition: int
    policy: str
    attempt: int
    exception: str | None
    decision: str
    reason: str | None
    target: str
    cause: str | None
    fingerprint: str | None
    group: str | None


class LetterFields(NamedTuple):
    """Fields that each letter has of its own; `due_ms` is None where it is parked."""

    id: bytes
    offset: int
    first_failed_ms: int
    failed_ms: int
    due_ms: int | None


# Plain tuples in the order of `LetterFields`: one is made for each letter.
LetterRows = list[tuple[bytes, int, int, int, int | None]]
LettersByShared = defaultdict[SharedFields, LetterRows]


def encode_outcomes(letters: LettersByShared, taken_ms: int, by: ActionOutcome | None = None) -> Iterator[bytes]:
    """Encode the values of the records that tell of these letters, each of some hundred; `by` is the action, None at intake."""
    head = b'{"v":%d,"taken_ms":%d' % (format_versions.OUTCOME.writes, taken_ms)
    if by is not None:
        head += b',"action":%b,"action_kind":%b' % (orjson.dumps(by.id), orjson.dumps(by.kind))
    together: list[bytes] = []
    count = size = 0
    for part, letters_in_part in _encode_parts(letters):
        if together and (count + letters_in_part > _LETTERS_A_RECORD or size + len(part) > _RECORD_BYTES):
            yield _record(head, together)
            together, count, size = [], 0, 0
        together.append(part)
        count, size = count + letters_in_part, size + len(part)
    if together:
        yield _record(head, together)


def _encode_parts(letters: LettersByShared) -> Iterator[tuple[bytes, int]]:
    """Encode objects of `letters`, each with how many letters it is of."""
    for shared, rows in letters.items():
        alike: dict[str, Any] = shared._asdict()
        for begin in range(0, len(rows), _LETTERS_A_RECORD):
            ids, *others = zip(*rows[begin : begin + _LETTERS_A_RECORD], strict=True)
            columns = zip(LetterFields._fields, ([id_.decode() for id_ in ids], *others), strict=True)
            yield orjson.dumps({**alike, **dict(columns)}), len(ids)


def _record(head: bytes, parts: list[bytes]) -> bytes:
    return b'%b,"letters":[%b]}' % (head, b",".join(parts))


_Attempt = Annotated[int, msgspec.Meta(ge=0, le=9_999_999_999)]


class AlikeLetters(msgspec.Struct, frozen=True, gc=False):
    """Letters that have much in common: an object of `letters`, whose fields the table above has."""

    team: str
    topic: TopicName
    partition: Partition
    policy: str
    attempt: _Attempt
    exception: str | None
    decision: str
    reason: str | None
    target: str
    cause: str | None
    fingerprint: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")] | None
    group: str | None
    id: list[str]
    offset: list[Offset]
    first_failed_ms: list[Number]
    failed_ms: list[Number]
    due_ms: list[Number | None]

    def __post_init__(self) -> None:
        if {len(self.offset), len(self.first_failed_ms), len(self.failed_ms), len(self.due_ms)} != {len(self.id)}:
            raise ValueError("its lists are not of one length")


class OutcomeRecord(msgspec.Struct, frozen=True, gc=False):
    """A record: letters that were decided of together, by intake or by an action."""

    v: int
    taken_ms: Number
    letters: list[AlikeLetters]
    action: str | None = None
    action_kind: str | None = None


# Reads letters as they stand in a record; of a newer version what can be made out. Raises ValueError where no version wrote it.
read_record = make_json_decoder(OutcomeRecord, "outcome")


def read(value: bytes) -> list[Outcome]:
    """Read the letters that a record tells of, each by itself; raises ValueError where no version wrote it."""
    record = read_record(value)
    return [letter for alike in record.letters for letter in _each(record, alike)]


def _each(record: OutcomeRecord, alike: AlikeLetters) -> Iterator[Outcome]:
    shared = {name: getattr(alike, name) for name in SharedFields._fields if name != "partition"}
    columns = zip(*(getattr(alike, name) for name in LetterFields._fields), strict=True)
    for id_, offset, first_failed_ms, failed_ms, due_ms in columns:
        of_each = {
            "v": record.v, "id": id_, "source": f"{alike.topic}/{alike.partition}/{offset}", "taken_ms": record.taken_ms,
            "first_failed_ms": first_failed_ms, "failed_ms": failed_ms, "due_ms": due_ms,
            "delay_ms": None if due_ms is None else due_ms - failed_ms,
            "action": record.action, "action_kind": record.action_kind,
        }  # fmt: skip
        yield cast(Outcome, {**shared, **of_each})
