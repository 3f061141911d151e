"""What waits in a schedules topic, by its records alone: the newest record of each key, as a scheduler has it. No I/O.

A null cancels what waits for its key, in whichever partition. One that says which schedule it ended, since that was sent or
moved, leaves a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from retry.intake.record_versions import RecordVersions
from retry.record import RecordLocation, read_headers
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
        self._versions = RecordVersions()
        # By key, the version of the newest schedule or cancel, and its partition.
        self._newest: dict[bytes, tuple[int, int]] = {}

    def add_records(self, messages: Iterable[Any], now_ms: int) -> None:
        """Add what was read next, at this time."""
        for message in messages:
            key, partition, offset = message.key(), message.partition(), message.offset()
            is_null = message.value() is None
            if not key or not key.strip():
                self.without_key.append((message.topic(), partition, offset))
            elif is_null and (ended := _read_ended_offset(message)) is not None:
                self.end_schedule(partition, key, ended)
            elif self._is_newest(key, partition, self._versions.next_version(message, now_ms, of_cancel=is_null)) and not is_null:
                self.offsets[partition, key] = offset

    def _is_newest(self, key: bytes, partition: int, version: int) -> bool:
        """Whether a record is the newest of its key so far; then what waited for that key waits no more."""
        before = self._newest.get(key)
        if before is not None and before[0] > version:
            return False
        if before is not None:
            self.offsets.pop((before[1], key), None)
        self._newest[key] = version, partition
        return True

    def end_schedule(self, partition: int, key: bytes, offset: int) -> None:
        """Up to an offset nothing waits for a key in a partition any more."""
        if self.offsets.get((partition, key), offset) <= offset:
            self.offsets.pop((partition, key), None)

    def is_waiting(self, message: Any) -> bool:
        """Whether a record is one of those that wait."""
        key = message.key()
        return key is not None and self.offsets.get((message.partition(), key)) == message.offset()


def written_last(messages: Iterable[Any], into: dict[bytes, int]) -> None:
    """Note when something was last asked for by each key, in ms: a schedule or its end, but not that it was sent or moved."""
    for message in messages:
        key = message.key()
        if key is not None and (message.value() is not None or _read_ended_offset(message) is None):
            into[key] = max(into.get(key, 0), message.timestamp()[1])


def _read_ended_offset(message: Any) -> int | None:
    """The offset of the schedule that a null says it has ended."""
    headers = dict(read_headers(message) or ())
    told = headers.get(names.DONE, headers.get(names.MIGRATED))
    return int(told) if told and told.isdigit() else None
