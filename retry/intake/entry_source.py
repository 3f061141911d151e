"""Entry sources: what comes in that is no dead letter. Messages of their topics become named entries, without any I/O.

A batch is taken in as one of letters is, exactly once; see `retry.intake.intake` and `retry.delay_queue.table.named_entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from retry.delay_queue.entry_keys import VERSIONS_OF_MS
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.intake.batch import BatchResult
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import Partition
from retry.policies.registry import Registry

# Versions for what is asked for by a name: of two records of one name the later has the greater, whatever their partitions.
#
# Within a partition records are ordered by their offsets, and across partitions by their timestamps. One number does for both:
#
#     version = milliseconds since 1970 << 20 | which one it is of this millisecond << 1 | whether it is a cancel
#
# The milliseconds are those of the record's timestamp; but never later than when it is read, so that a clock that is ahead
# orders only its own record wrongly, and never earlier than in the version before of the same partition. That one stands in the
# partition's read position, in the transaction that takes the record in, so the rule holds whoever reads on.
#
# What it does not know is the order of two records of different partitions where clocks of producers differ by more than what
# lies between them: then the one with the later timestamp counts. What has no effect for that reason is counted and logged; see
# `retry.delivery.disregarded_changes`.

class RecordVersions:
    """The last version of each partition that this worker reads. Versions are given by the thread that prepares batches."""

    def __init__(self) -> None:
        self._last: dict[Partition, int] = {}

    def set_last_version(self, partition: Partition, version: int) -> None:
        """Read a partition on behind a record of this version; any thread may say so."""
        self._last[partition] = version

    def next_version(self, message: Any, now_ms: int, *, of_cancel: bool = False) -> int:
        """Give a record, read at `now_ms`, its version: greater than that of every record before it in its partition."""
        partition = message.topic(), message.partition()
        stamp_ms = message.timestamp()[1]
        written_ms = stamp_ms if 0 < stamp_ms < now_ms else now_ms
        # The last bit is that of cancels, so that of two that were written in one millisecond a cancel counts.
        version = max(written_ms * VERSIONS_OF_MS, (self._last.get(partition, 0) | 1) + 1) | of_cancel
        self._last[partition] = version
        return version

    def stamp(self, positions: Mapping[Partition, ReadPosition]) -> dict[Partition, ReadPosition]:
        """Return the read positions of partitions, each with the last version that was given in its partition."""
        return {
            partition: msgspec.structs.replace(position, version=version) if (version := self._last.get(partition)) else position
            for partition, position in positions.items()
        }


# So long a cancel ends older records of other partitions that are taken in after it.
CANCELS_REMEMBERED_MS = 15 * 60_000


class EntrySource(Protocol):
    """Turns messages of its topics, which are no dead-letter topics, into entries. Replaced when the policy file is."""

    @property
    def topics(self) -> Sequence[str]: ...

    def reads_topic(self, topic: str) -> bool:
        """Whether messages of this topic are its own."""

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        """Add the changelog rows that a batch gives, `{"key": …, "value": …}`, by shard to `into.entries`.

        A message that makes no sense is passed over and counted: one that raises would be read for ever. A row fits
        `QueueLimits.bytes_max`.
        """

    def permits_target(self, team: str, destination: str) -> bool:
        """Whether entries that a team has from this entry source may go to a topic; asked again before each is sent."""


class QueueLimits(NamedTuple):
    """The place that entry sources write entries to; a record of theirs may have `bytes_max` bytes, envelope, key and all."""

    shards: int
    bytes_max: int
    versions: RecordVersions
    codec: EnvelopeCodec = PLAIN


MakeSources = Callable[[Registry, QueueLimits], Sequence[EntrySource]]


def none(_registry: Registry, _place: QueueLimits) -> Sequence[EntrySource]:
    """Return no entry sources, so that only dead letters come in."""
    return ()


def list_subscription(registry: Registry, sources: Sequence[EntrySource]) -> list[str]:
    """List the topics of dead letters and of entry sources that a worker reads: names, and patterns that begin with `^`."""
    return [*registry.subscription(), *(topic for source in sources for topic in source.topics)]


def is_target_permitted(registry: Registry, sources: Sequence[EntrySource], team: str, destination: str) -> bool:
    return registry.permits_target(team, destination) or any(source.permits_target(team, destination) for source in sources)
