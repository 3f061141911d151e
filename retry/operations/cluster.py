"""The brokers, as far as a command looks at letters there: nothing is joined, committed or sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from retry.errors import TopicsInvalid
from retry.intake.pointer_letters import Fetch
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.client_config import Config
from retry.kafka.interface import AdminClient, KafkaException, Partition
from retry.kafka.offset_ranges import OffsetSpec, Span
from retry.kafka.record_fetch import RecordFetcher
from retry.kafka.refused_headers import RefusedHeaders
from retry.kafka.topic_ends import cut_to_newest
from retry.operations.inspect import Inspector
from retry.policies.registry import Registry
from retry.settings import Settings

_ASK_S = 20.0
_MEND = "look at its name, and at this user's rights"


class LetterRange(NamedTuple):
    """Which letters of a topic.

    Attributes:
      partition: the only one; None for all.
      from_offset: the first, in every partition; None for the oldest.
      limit: how many letters of each partition: the newest, or the first from `from_offset` on; None for all.
    """

    topic: str
    partition: int | None = None
    from_offset: int | None = None
    limit: int | None = None

    def cut_span(self, readable: Span) -> Span:
        """Cut off from a partition what lies before the range; `limit` is not looked at, since an offset may have no letter."""
        return readable._replace(start=max(readable.start, self.from_offset or 0))


class Cluster:
    """The brokers that the settings name; raises `BrokersUnreachable` where nobody answered."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.names = settings, topics.build_topic_names(settings.app_id)
        self.admin, self.reader = client_config.connect_admin(settings), client_config.build_reader_config(settings)

    def inspector(self, registry: Registry, cluster_id: str | None = None, fetch: Fetch | None = None) -> Inspector:
        """Build an `Inspector`, which decides as a worker on the cluster would; the service's own topics need not exist yet.

        Args:
          fetch: gets the records that pointer letters name; by default from these brokers.
        """
        wanted = {self.names.changelog, self.names.parked, *registry.list_targets()}
        described = topics.describe(self.admin, wanted, optional=True)
        described.setdefault(self.names.changelog, topics.TO_BE_CHANGELOG)
        bytes_max = {topic: topics.record_bytes_max(about) for topic, about in described.items()}
        cluster_id = topics.read_cluster_id(self.admin) if cluster_id is None else cluster_id
        return Inspector(registry, self.settings.app_id, cluster_id, bytes_max, fetch or RecordFetcher(self.reader).fetch)

    def partitions(self, topic: str) -> int:
        """Count the partitions of a topic; raises `TopicsInvalid` where there is none, or it must not be looked at."""
        try:
            about = topics.describe(self.admin, [topic]).get(topic)
        except KafkaException as error:
            raise TopicsInvalid([f"{topic}: {error.args[0].str()}"], _MEND) from error
        if about is None:
            raise TopicsInvalid([f"there is no topic {topic}"], _MEND)
        return about.partitions

    def spans(self, part: LetterRange) -> list[Span]:
        """Cut a topic's part by partitions up to the committed end, whatever its limit; raises `TopicsInvalid` if missing."""
        count = self.partitions(part.topic)
        if part.partition is not None and part.partition >= count:
            mend = f"give one from 0 to {count - 1}"
            raise TopicsInvalid([f"{part.topic} has no partition {part.partition}"], mend)
        wanted = range(count) if part.partition is None else [part.partition]
        return [
            part.cut_span(readable) for readable in offset_ranges.find_readable_spans(self.admin, part.topic, wanted).values()
        ]

    def cut_to_newest(self, spans: Iterable[Span], records_max: int) -> list[Span]:
        """Cut spans to their newest committed records, so many at most; raises `TopicsInvalid` where one cannot be read."""
        return cut_to_newest(partial(offset_ranges.read_batches, self.reader), dict.fromkeys(spans, records_max))

    def cut_spans(self, spans: list[Span], at_ms: int) -> list[Span]:
        """Cut off from spans what was written before a time, in milliseconds since 1970."""
        partitions: dict[str, list[int]] = {}
        for span in spans:
            partitions.setdefault(span.topic, []).append(span.partition)
        found = [
            each
            for topic, numbers in partitions.items()
            for each in offset_ranges.find_spans_since(self.admin, topic, numbers, at_ms)
        ]
        starts = {(each.topic, each.partition): each.start for each in found}
        return [span._replace(start=max(span.start, starts[span.topic, span.partition])) for span in spans]

    def read_letters(self, part: LetterRange) -> Iterator[list[Any]]:
        """Read the committed letters of a part of a topic, in batches; raises as `spans` and `read_first_records`."""
        spans = self.spans(part)
        if part.limit is not None and part.from_offset is None:
            return read_first_records(self.reader, self.cut_to_newest(spans, part.limit))
        return read_first_records(self.reader, spans, part.limit)


def find_spans(admin: AdminClient, places: Collection[Partition]) -> list[Span]:
    """Find what lies in some partitions, all offsets that a reader sees; raises `TopicsInvalid` where brokers do not answer."""
    first = offset_ranges.find_offsets_at(admin, places, OffsetSpec.earliest(), _ASK_S)
    last = offset_ranges.find_offsets_at(admin, places, OffsetSpec.latest(), _ASK_S)
    if silent := [f"{topic}/{n}: no answer" for topic, n in places if (topic, n) not in first or (topic, n) not in last]:
        raise TopicsInvalid(silent[:5], "look at the brokers, then try again")
    return [Span(*place, first[place], last[place]) for place in places]


def read_first_records(config: Config, spans: list[Span], records_max: int | None = None) -> Iterator[list[Any]]:
    """Read the first records of each span; asking one for headers that the client cannot read raises SystemError.

    The client by itself shows a record with more than 100,000 headers as one that has none.

    Raises:
      TopicsInvalid: a topic cannot be read, or nobody answered whether records have headers.
    """
    refused = RefusedHeaders(config)
    try:
        for batch in offset_ranges.read_batches(config, spans, records_max=records_max):
            yield refused.replace_unreadable(batch)
    except TimeoutError as error:
        raise TopicsInvalid([str(error)], "look at the brokers, then try again") from error
    finally:
        refused.close()
