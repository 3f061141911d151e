"""Versions for what is asked for by a name: of two records of one name the later has the greater, whatever their partitions.

Within a partition records are ordered by their offsets, and across partitions by their timestamps. One number does for both:

    version = milliseconds since 1970 << 20 | which one it is of this millisecond << 1 | whether it is a cancel

The milliseconds are those of the record's timestamp; but never later than when it is read, so that a clock that is ahead orders
only its own record wrongly, and never earlier than in the version before of the same partition. That one stands in the
partition's read position, in the transaction that takes the record in, so the rule holds whoever reads on.

What it does not know is the order of two records of different partitions where clocks of producers differ by more than what
lies between them: then the one with the later timestamp counts. What has no effect for that reason is counted and logged; see
`retry.delivery.disregarded_changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from retry.delay_queue.entry_keys import VERSIONS_OF_MS
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import Partition


class RecordVersions:
    """The last version of each partition that this worker reads. Versions are given by the thread that prepares batches."""

    def __init__(self) -> None:
        self._last: dict[Partition, int] = {}

    def set_last_version(self, partition: Partition, version: int) -> None:
        """Read a partition on behind a record of this version; any thread may say so."""
        self._last[partition] = version

    def next_version(self, message: Any, now_ms: int, *, of_cancel: bool = False) -> int:
        """Give a record its version, which is greater than that of every record before it in its partition.

        Args:
          now_ms: when it is read.
        """
        partition = message.topic(), message.partition()
        stamp_ms = message.timestamp()[1]
        written_ms = stamp_ms if 0 < stamp_ms < now_ms else now_ms
        # The last bit is that of cancels, so that of two that were written in one millisecond a cancel counts.
        version = max(written_ms * VERSIONS_OF_MS, (self._last.get(partition, 0) | 1) + 1) | of_cancel
        self._last[partition] = version
        return version

    def stamp(self, positions: Mapping[Partition, ReadPosition]) -> dict[Partition, ReadPosition]:
        """The read positions of partitions, with the last versions that were given in them."""
        return {
            partition: msgspec.structs.replace(position, version=version) if (version := self._last.get(partition)) else position
            for partition, position in positions.items()
        }
