"""Where reading of each dead-letter partition goes on, by the service's own record.

A consumer group can lose its offsets: they expire while the service is stopped, the group is deleted, or somebody sets them
beyond the end. And a client may go back by itself, when a leader changes, say. So each batch of intake also writes how far it
has read its partitions, in its transaction, into a compacted topic. What lies below is never taken in again, unless an operator
asks for that. The group's offsets still fence workers that were given up for dead, and are what other tools look at.

| record | key | value, a JSON object |
| --- | --- | --- |
| position | `orders.DLT/0` | `v`, `topic_id`, `offset` of the next letter, `leader_epoch` of the last one, and what follows |
| request to read again | `reread orders.DLT/0` | `v`, `topic_id`, `offset`, `lowest_offset`, `number`, `asked_at_ms`, `by` |

Besides, a position has `reread`, `version` and `incarnation`. `reread` is the number of the last request that the position has
followed, 0 at first; a request with a greater one is still to be followed. So a request holds whatever was under way when it was
written. `version` is the greatest that was given to a record of the partition; see `retry.intake.entry_source`. `incarnation`
keeps letters apart that have the same offsets, since their topic was deleted and made again; see `retry.delay_queue.entry_keys`.

A record that no version of this service wrote is passed over. That is safe, even where compaction has put it in place of the good
one: a position is only a lower bound, the group's offset that was committed with it counts without it, and the next batch writes
another. What a newer version wrote is not passed over: its meaning is not known here, and letters would be taken in again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from retry import clock, format_versions
from retry.delay_queue.entry_keys import INCARNATION_MAX
from retry.errors import ReadPositionNewer
from retry.format_versions import LeaderEpoch, Number, Offset, RecordVersion, make_json_decoder
from retry.kafka.interface import CommittedOffset, Log, Message, OffsetBounds, Partition, StartingPoint, TopicPartition
from retry.telemetry.unreadable_records import UNREADABLE

PARTITION = 0
_REQUEST = b"reread "
_PLACE = re.compile(rb"([A-Za-z0-9._-]{1,249})/(\d{1,9})")
_CURRENT_S, _LOOK_S = 5.0, 0.005
_MADE_AGAIN = "the topic was deleted and made again; it is read from its beginning"


class ReadPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far one partition of one topic was taken in.

    Attributes:
      version: the greatest that was given to a record of it; 0 where none has one.
      incarnation: how often the topic had been deleted and made again since it was first read.
    """

    topic_id: str
    offset: Offset
    leader_epoch: LeaderEpoch = -1
    reread: Number = 0
    version: RecordVersion = 0
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=INCARNATION_MAX)] = 0
    v: int = format_versions.READ_POSITION.writes


class RereadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request to take in once more what lies from `offset` on; `lowest_offset` is that of all requests so far."""

    topic_id: str
    offset: Offset
    lowest_offset: Offset
    number: Number
    asked_at_ms: Number
    by: str
    v: int = format_versions.READ_POSITION.writes


class ReadPositions:
    """The positions of all partitions, kept current by whichever thread reads the topic; others look them up."""

    def __init__(self, log: Log, topic: str) -> None:
        self.topic, self._log, self._reached = topic, log, 0
        self._positions: dict[Partition, ReadPosition] = {}
        self._requests: dict[Partition, RereadRequest] = {}

    def apply_message(self, message: Message) -> None:
        """Take in one record of the topic, or the end of its partition; raises ReadPositionNewer as `fold_record`."""
        offset = message.offset() or 0
        if message.error() is None:
            fold_record(message, self._positions, self._requests)
            offset += 1
        self._reached = offset

    def await_current(self) -> None:
        """Wait until all is folded that is in the topic now, undecided records included; KafkaException, TimeoutError: ask again.
        """
        end, deadline = self._log.fetch_bounds(self.topic, [PARTITION])[PARTITION].end, clock.Deadline(_CURRENT_S)
        while self._reached < end:
            if deadline.has_passed():
                raise TimeoutError(f"{self.topic} is read up to {self._reached} of {end} so far")
            clock.pause(_LOOK_S)

    def find_position(self, partition: Partition) -> ReadPosition | None:
        return self._positions.get(partition)

    def find_incarnation(self, partition: Partition, topic_id: str) -> int:
        """Count how often a partition's present topic was deleted and made again; 0 where the partition was never read."""
        position = self._positions.get(partition)
        if position is None:
            return 0
        is_another = "" not in (position.topic_id, topic_id) and position.topic_id != topic_id
        return (position.incarnation + is_another) % (INCARNATION_MAX + 1)

    def find_request(self, partition: Partition, topic_id: str) -> int:
        """Return the number of the last request to read a partition of its present topic again; 0 where nobody asked that."""
        request = self._requests.get(partition)
        return request.number if request is not None and request.topic_id == topic_id else 0

    def find_start(self, partition: Partition, topic_id: str, committed: CommittedOffset, bounds: OffsetBounds) -> StartingPoint:
        return choose_start(self._positions.get(partition), self._requests.get(partition), committed, topic_id, bounds)


def choose_start(
    position: ReadPosition | None, request: RereadRequest | None, committed: CommittedOffset, topic_id: str, bounds: OffsetBounds
) -> StartingPoint:
    """Choose where reading of a partition begins: at the larger of the service's own position and the group's offset.

    What is known of another topic than the one that is there now (`topic_id`) does not count.

    >>> known = ReadPosition(topic_id="a", offset=45)
    >>> choose_start(known, None, CommittedOffset(None), "a", OffsetBounds(0, 50)).offset
    45
    >>> choose_start(known, None, CommittedOffset(1_000), "a", OffsetBounds(0, 50)).note
    'the offset of the group, 1000, lies behind the end, 50; the service goes on at 45 by its own record'
    >>> choose_start(known, None, CommittedOffset(48, "a"), "a", OffsetBounds(0, 50))
    StartingPoint(offset=48, leader_epoch=-1, reread=0, note='')
    >>> choose_start(known, None, CommittedOffset(45, "a"), "b", OffsetBounds(0, 50)).note
    'the topic was deleted and made again; it is read from its beginning'
    """
    reread = position.reread if position is not None else 0
    if request is not None and request.number > reread and request.topic_id == topic_id:
        note = f"read again from offset {request.offset} on, as {request.by} asked"
        return StartingPoint(max(request.offset, bounds.start), reread=request.number, note=note)
    of_group = StartingPoint(committed.offset, committed.leader_epoch, reread)
    if committed.topic_id not in ("", topic_id):
        of_group = of_group._replace(offset=None)
    if position is None or position.topic_id != topic_id:
        if of_group.offset is not None:
            return of_group._replace(note=_describe_cut(of_group.offset, bounds))
        made_again = position is not None or committed.offset is not None
        return of_group._replace(note=_MADE_AGAIN if made_again else "")
    own = StartingPoint(position.offset, position.leader_epoch, reread)
    return _choose_later(own, position.offset, of_group, bounds)


def _choose_later(own: StartingPoint, own_offset: int, of_group: StartingPoint, bounds: OffsetBounds) -> StartingPoint:
    """The group's where somebody has moved it forward within the partition; else the service's own, and why."""
    goes_on = f"the service goes on at {own_offset} by its own record"
    own = own._replace(note=_describe_cut(own_offset, bounds))
    if of_group.offset is None:
        return own._replace(note=own.note or f"the group has lost its offset; {goes_on}")
    if of_group.offset > max(bounds.end, own_offset):
        behind = f"the offset of the group, {of_group.offset}, lies behind the end, {bounds.end}; {goes_on}"
        return own._replace(note=own.note or behind)
    is_same_epoch = own.leader_epoch == of_group.leader_epoch or min(own.leader_epoch, of_group.leader_epoch) < 0
    if (of_group.offset > own_offset) if is_same_epoch else (of_group.leader_epoch > own.leader_epoch):
        return of_group
    if of_group.offset < own_offset and is_same_epoch:
        return own._replace(note=own.note or f"the offset of the group went back to {of_group.offset}; {goes_on}")
    return own


def _describe_cut(offset: int, bounds: OffsetBounds) -> str:
    if offset > bounds.end:
        return (
            f"the partition ends at {bounds.end}, and was taken in up to {offset} before: it has lost records. "
            "What it has from before is not taken in again; `retry topics reread` does that"
        )
    if offset < bounds.start:
        return f"Kafka has deleted {bounds.start - offset} offsets that were not taken in yet"
    return ""


def fold_record(message: Message, positions: dict[Partition, ReadPosition], requests: dict[Partition, RereadRequest]) -> None:
    """Take in one record by partition; pass over one that no version wrote, raise ReadPositionNewer where a newer version did."""
    key, value = message.key() or b"", message.value()
    if value is None:
        return
    try:
        version = _read_version(value).v
        # Before the key, which may be of a newer kind, too.
        format_versions.READ_POSITION.refuse_newer(version, ReadPositionNewer)
        if version not in format_versions.READ_POSITION.reads:
            raise ValueError(f"there is no {format_versions.READ_POSITION.name} {version}")
        partition = _parse_place(key.removeprefix(_REQUEST))
        if key.startswith(_REQUEST):
            requests[partition] = _request_of(value)
        else:
            positions[partition] = _position_of(value)
    except ValueError as error:
        UNREADABLE.pass_over(message.topic(), message.partition(), message.offset(), error)


class _Versioned(msgspec.Struct):
    v: int


_read_version = make_json_decoder(_Versioned, "read position")
_position_of = make_json_decoder(ReadPosition, "read position")
_request_of = make_json_decoder(RereadRequest, "request to read again")
_encode = msgspec.json.Encoder().encode


def encode_positions(positions: Mapping[Partition, ReadPosition]) -> list[dict[str, Any]]:
    return [{"key": _encode_partition(partition), "value": _encode(position)} for partition, position in positions.items()]


def build_group_offsets(positions: Mapping[Partition, ReadPosition]) -> list[TopicPartition]:
    """Build the offsets that the consumer group is to have at some read positions, each with the id of its topic."""
    return [
        TopicPartition(*partition, position.offset, metadata=position.topic_id, leader_epoch=position.leader_epoch)
        for partition, position in positions.items()
    ]


def encode_request(partition: Partition, request: RereadRequest) -> dict[str, Any]:
    return {"key": _REQUEST + _encode_partition(partition), "value": _encode(request)}


def _encode_partition(partition: Partition) -> bytes:
    return f"{partition[0]}/{partition[1]}".encode()


def _parse_place(key: bytes) -> Partition:
    """The partition that a key names; raises ValueError where it names none."""
    if (found := _PLACE.fullmatch(key)) is None:
        raise ValueError(f"no partition is called {key[:100]!r}")
    return found[1].decode(), int(found[2])
