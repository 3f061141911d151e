"""What waits in a schedules topic, by its records alone: the newest record of each key of a partition. No I/O.

A null cancels what waits for its key. One that says which schedule it ended, since that was sent or moved, leaves a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from retry.record import RecordLocation
from retry.scheduling.messages import headers as names

# Partition and key.
ScheduleId = tuple[int, bytes]


class WaitingSchedules:
    """Folds the records of one topic, each partition in its order.

    Attributes:
      offsets: of what waits, where its record lies.
      without_key: records without a key, which are no schedules and never end.
    """

    def __init__(self) -> None:
        self.offsets: dict[ScheduleId, int] = {}
        self.without_key: list[RecordLocation] = []

    def fold(self, messages: Iterable[Any]) -> None:
        """Add what was read next."""
        for message in messages:
            key, offset = message.key(), message.offset()
            if not key or not key.strip():
                self.without_key.append((message.topic(), message.partition(), offset))
            elif message.value() is not None:
                self.offsets[message.partition(), key] = offset
            else:
                self.end(message.partition(), key, _ended(message, offset))

    def end(self, partition: int, key: bytes, offset: int) -> None:
        """Up to an offset nothing waits for a key any more."""
        if self.offsets.get((partition, key), offset) <= offset:
            self.offsets.pop((partition, key), None)

    def has(self, message: Any) -> bool:
        """Whether a record is one of those that wait."""
        key = message.key()
        return key is not None and self.offsets.get((message.partition(), key)) == message.offset()


def written_last(messages: Iterable[Any], into: dict[ScheduleId, int]) -> None:
    """Note when something was last asked for by each key, in ms: a schedule or its end, but not that it was sent or moved."""
    for message in messages:
        key = message.key()
        if key is not None and (message.value() is not None or _told(message) is None):
            into[message.partition(), key] = message.timestamp()[1]


def _ended(message: Any, offset: int) -> int:
    """Up to which offset a null ends what waits for its key."""
    told = _told(message)
    return offset if told is None else told


def _told(message: Any) -> int | None:
    """The offset of the schedule that a null says it has ended."""
    try:
        headers = dict(message.headers() or ())
    except SystemError:
        return None
    told = headers.get(names.DONE, headers.get(names.MIGRATED))
    return int(told) if told and told.isdigit() else None
