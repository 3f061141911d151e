"""Entry sources: what comes in that is no dead letter.

An entry source turns messages of its topics into named entries, without any I/O.

Everything else is the engine's: a batch of its messages is taken in as one of letters is, exactly once, and what it made
waits, is delivered and ends as every entry does. See `retry.intake.intake` and `retry.delay_queue.table.named_entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.intake.batch import BatchResult
from retry.intake.record_versions import RecordVersions
from retry.policies.registry import Registry

# So long a cancel ends older records of other partitions that are taken in after it.
CANCELS_REMEMBERED_MS = 15 * 60_000


class EntrySource(Protocol):
    """Turns messages into entries. Replaced as a whole when the policy file is.

    Attributes:
      topics: what is read for it: names, and patterns that begin with `^`. No dead-letter topic may be among them.
    """

    @property
    def topics(self) -> Sequence[str]: ...

    def reads_topic(self, topic: str) -> bool:
        """Whether messages of this topic are its own."""
        ...

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        """Add the changelog rows that a batch gives, `{"key": …, "value": …}`, by shard to `into.entries`.

        Total: a message that makes no sense is passed over and counted, since one that raises would be read for ever.
        A row must fit into the changelog, see `QueueLimits.bytes_max`.
        """
        ...

    def permits_target(self, team: str, destination: str) -> bool:
        """Whether entries that a team has from this entry source may go to a topic; asked again before each is sent."""
        ...


class QueueLimits(NamedTuple):
    """The shards, the size limit, the versions and the codec that entry sources write entries with.

    Attributes:
      shards: how many there are.
      bytes_max: how large a record of theirs may be, envelope, key and all.
      versions: gives versions to records.
      codec: writes envelopes.
    """

    shards: int
    bytes_max: int
    versions: RecordVersions
    codec: EnvelopeCodec = PLAIN


MakeSources = Callable[[Registry, QueueLimits], Sequence[EntrySource]]


def none(_registry: Registry, _place: QueueLimits) -> Sequence[EntrySource]:
    """No entry source but that of dead letters."""
    return ()


def subscription(registry: Registry, sources: Sequence[EntrySource]) -> list[str]:
    """List the topics of dead letters and of entry sources that a worker reads: names, and patterns that begin with `^`."""
    return [*registry.subscription(), *(topic for source in sources for topic in source.topics)]


def is_target_permitted(registry: Registry, sources: Sequence[EntrySource], team: str, destination: str) -> bool:
    """Whether anybody lets entries of a team go there."""
    return registry.permits_target(team, destination) or any(source.permits_target(team, destination) for source in sources)
