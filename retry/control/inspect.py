"""What a worker would make of letters, without being one: nothing is joined, committed or sent.

It is intake up to its decision, with a record of lineages that knows of no past send. So a letter that came back without
its `retry-id` counts as a first failure here, which a worker would know better.

| key of a row | meaning |
| --- | --- |
| `topic`, `partition`, `offset` | the letter |
| `family` | who wrote it |
| `origin_topic`, `origin_partition`, `origin_offset`, `consumer_group` | what failed, and whose |
| `attempt` | failed deliveries that the letter tells of |
| `exception`, `cause`, `message`, `stage` | of the failure |
| `lineage` | what `retry-id` would be |
| `policy` | what `retry-policy` would be |
| `decision`, `reason`, `target` | `retry` or `park`, why it parks, and the topic that it goes to |
| `due_at_ms` | when the retry is due; null where it parks |
| `pointer` | true, and there only where the payload lies elsewhere and was not fetched: decided without it |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Message

from retry.decide import Case
from retry.errors import TopicsInvalid
from retry.intake import Fetch, Intake
from retry.kafka import clients, spans, topics
from retry.kafka.pointers import Pointers
from retry.kafka.spans import Span
from retry.lineages import Lineages
from retry.pack import Packed, Packer
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.trace import Tracer

Row = dict[str, object]

_NO_LINEAGES = 16
_FAILURE = ("exception", "cause", "message", "stage")
_ORIGIN = ("origin_topic", "origin_partition", "origin_offset", "consumer_group")


class Inspector:
    """Decides letters as a worker with this registry would.

    Args:
      cluster_id: of the brokers that the letters are from; a part of the lineage where they tell coordinates.
      bytes_max: by topic, the largest record that it takes; those that are not there take what brokers do by default.
      fetch: gets the records that pointer letters name; None where nobody can.
    """

    def __init__(
        self, registry: Registry, app_id: str, cluster_id: str, bytes_max: Mapping[str, int], fetch: Fetch | None = None
    ) -> None:
        names = topics.names(app_id)
        tracer = Tracer(Lineages(_NO_LINEAGES), cluster_id, registry.retry_targets())
        packer = Packer(names.changelog, names.parked, bytes_max)
        self._intake, self._fetches = Intake(registry, tracer, packer, fetch, names, 1), fetch is not None

    def decided(self, letters: Iterable[Any], now_ms: int) -> Iterator[tuple[Case, Packed]]:
        """What becomes of a batch of letters, which is held in memory."""
        return self._intake.decided(letters, now_ms)

    def rows(self, letters: Iterable[Any], now_ms: int) -> Iterator[Row]:
        """The same, as the rows of the module's docstring."""
        for case, packed in self.decided(letters, now_ms):
            pointer = {} if self._fetches or not case.letter.is_pointer() else {"pointer": True}
            yield {**_row(case, packed), **pointer}


def _row(case: Case, packed: Packed) -> Row:
    letter, failure = case.letter, case.letter.failure
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "family": failure.family,
        **{name: getattr(failure, name) for name in _ORIGIN},
        "attempt": failure.attempts,
        **{name: getattr(failure, name) for name in _FAILURE},
        "lineage": case.trace.id.decode(),
        "policy": case.plan.name,
        "decision": "park" if packed.reason else "retry",
        "reason": packed.reason,
        "target": packed.destination,
        "due_at_ms": None if packed.reason else case.due_at_ms,
    }


class Part(NamedTuple):
    """Which letters of a topic.

    Attributes:
      partition: the only one; None for all.
      from_offset: the first, in every partition; None for the oldest.
      limit: how many offsets of each partition: the newest, or the first from `from_offset` on; None for all. Fewer
        letters where some of these have none.
    """

    topic: str
    partition: int | None = None
    from_offset: int | None = None
    limit: int | None = None

    def of(self, whole: Span) -> Span:
        """What that is of one partition."""
        start, stop = max(whole.start, self.from_offset or 0), whole.stop
        if self.limit is not None and self.from_offset is None:
            start = max(start, stop - self.limit)
        elif self.limit is not None:
            stop = min(stop, start + self.limit)
        return whole._replace(start=start, stop=stop)


class Cluster:
    """The brokers that the settings name.

    Raises:
      BrokersUnreachable: nobody answered.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.names = settings, topics.names(settings.app_id)
        self.admin, self.reader = clients.admin(settings), clients.reader_config(settings)

    def inspector(self, registry: Registry, cluster_id: str | None = None) -> Inspector:
        """Decides as a worker on this cluster would; the service's own topics need not exist yet."""
        known = topics.describe(self.admin, {self.names.changelog, self.names.parked, *registry.targets()})
        known.setdefault(self.names.changelog, topics.TO_BE_CHANGELOG)
        bytes_max = {topic: topics.record_bytes_max(about) for topic, about in known.items()}
        cluster_id = topics.cluster_id(self.admin) if cluster_id is None else cluster_id
        return Inspector(registry, self.settings.app_id, cluster_id, bytes_max, Pointers(self.reader).fetch)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
          TopicsInvalid: there is no such topic.
        """
        found = topics.describe(self.admin, [topic]).get(topic)
        if found is None:
            raise TopicsInvalid([f"there is no topic {topic}"], "look at its name")
        return found.partitions

    def letters(self, part: Part) -> Iterator[list[Message]]:
        """The committed letters of a part of a topic, up to the end that it has now, in batches.

        Raises:
          TopicsInvalid: there is no such topic or partition, or it cannot be read.
        """
        count = self.partitions(part.topic)
        if part.partition is not None and part.partition >= count:
            mend = f"give one from 0 to {count - 1}"
            raise TopicsInvalid([f"{part.topic} has no partition {part.partition}"], mend)
        wanted = range(count) if part.partition is None else [part.partition]
        whole = spans.whole(self.admin, part.topic, wanted).values()
        return spans.batches(self.reader, [part.of(span) for span in whole])
