"""The topics that the replica is a fold of, as the cluster has them, and from where on each is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from retry import clock
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges, topics
from retry.kafka.interface import AdminClient
from retry.kafka.offset_ranges import Span
from retry.kafka.topics import Described, TopicNames
from retry.policies.registry import Registry

# What happened before is not shown: outcomes are many, and only counts of them are kept for longer than a day.
_OUTCOMES_MS, _AUDIT_MS = 7 * 86_400_000, 365 * 86_400_000
# Of each partition, at most; a record tells of up to 500 letters.
_NEWEST_MAX = 50_000


class Sources(NamedTuple):
    """The topics that the replica is folded from, as the cluster has them.

    Attributes:
      resting: topics where letters rest.
    """

    own: TopicNames
    described: dict[str, Described]
    resting: frozenset[str]

    def identity(self, cluster_id: str, topic_prefix: str) -> dict[str, str]:
        """Return what identifies the source of a file: cluster, changelog, and topic ids. A topic made anew has another id."""
        ids = {f"{topic_prefix}{topic}": about.topic_id for topic, about in self.described.items()}
        return {"cluster": cluster_id, "changelog": self.own.changelog, **ids}

    def retention_ms(self) -> dict[str, int]:
        """How long Kafka keeps what rests, by topic; without those that it keeps for ever."""
        kept = {topic: int(self.described[topic].config.get("retention.ms", -1)) for topic in self.resting}
        return {topic: ms for topic, ms in kept.items() if ms >= 0}

    def spans(self, admin: AdminClient) -> list[Span]:
        """List the offsets that are to be read now, one span for each partition."""
        now_ms, found = clock.wall_ms(), []
        for topic, about in self.described.items():
            if topic == self.own.outcomes:
                found += _trim_spans(offset_ranges.since(admin, topic, range(about.partitions), now_ms - _OUTCOMES_MS))
            elif topic == self.own.audit:
                found += _trim_spans(offset_ranges.since(admin, topic, range(about.partitions), now_ms - _AUDIT_MS))
            else:
                found += offset_ranges.readable_spans(admin, topic, range(about.partitions)).values()
        return found


def find_sources(admin: AdminClient, own: TopicNames, registry: Registry) -> Sources:
    """The topics that are there; all but the changelog may be missing.

    Raises:
      TopicsInvalid: there is no changelog.
    """
    resting = {own.parked, own.discarded, *registry.parking()}
    described = topics.describe(admin, {own.changelog, own.outcomes, own.audit, own.notes, *resting}, optional=True)
    if own.changelog not in described:
        raise TopicsInvalid([f"{own.changelog} is missing, or this user may not see it"], "retry topics create; retry acls")
    return Sources(own, described, frozenset(resting & described.keys()))


def _trim_spans(spans: Collection[Span]) -> list[Span]:
    return [span._replace(start=max(span.start, span.stop - _NEWEST_MAX)) for span in spans]
