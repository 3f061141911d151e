"""Which destinations can be written to just now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType, TopicDescription

from retry.clock import monotonic_s
from retry.kafka.record_limits import TopicLimits

# No longer than a sweep may wait for it, whose transaction lives for six seconds.
_ASK_S = 2.0
_FORGET_S = 600.0
# Of the time, at most this part is spent on asking.
_REST = 20
_ANY_AGE_MS = 1 << 60
_FORBIDDEN = "no {} right for this principal; grant it, see `retry acls`"
_REFUSALS = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)


class TargetProbe:
    """Asks the cluster whether topics are there, whether they may be written to, and whether all partitions have a leader.

    Who calls `refresh` keeps answers fresh. For several threads. Where this user is not the one who `writes`, its rights say
    nothing.
    """

    def __init__(self, admin: AdminClient, *, writes: bool = True) -> None:
        self._admin, self._writes = admin, writes
        self._refusals: dict[str, str | None] = {}
        self._wanted_at_s: dict[str, float] = {}
        self._next_s = 0.0

    def find_closed(self, destinations: set[str]) -> dict[str, str]:
        """Return why some of `destinations` cannot be written to, as far as it is known; asks brokers about new ones only."""
        self._wanted_at_s |= dict.fromkeys(destinations, monotonic_s())
        if new := destinations - self._refusals.keys():
            self._refresh_refusals(new)
        return {topic: f"{topic}: {why}" for topic in destinations if (why := self._refusals.get(topic))}

    def probe_targets(self, destinations: set[str]) -> dict[str, str]:
        """Ask brokers about all of `destinations` anew, and return why some cannot be written to."""
        self._refresh_refusals(destinations)
        return self.find_closed(destinations)

    def refresh(self) -> None:
        """Ask anew for all that anybody asked for in the last ten minutes, and forget the others."""
        began_s = monotonic_s()
        if began_s < self._next_s:
            return
        wanted = {topic for topic, at_s in list(self._wanted_at_s.items()) if began_s - at_s < _FORGET_S}
        for topic in self._wanted_at_s.keys() - wanted:
            self._wanted_at_s.pop(topic, None)
            self._refusals.pop(topic, None)
        self._refresh_refusals(wanted)
        self._next_s = began_s + _REST * (monotonic_s() - began_s)

    def ask_limits(self, topics: set[str]) -> dict[str, TopicLimits]:
        """Ask what topics take, of those of which brokers tell it just now."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        limits: dict[str, TopicLimits] = {}
        for resource, answer in self._admin.describe_configs(resources, request_timeout=_ASK_S).items() if resources else ():
            # Whoever may not ask, or is not answered, finds out by trying.
            with suppress(KafkaException, TimeoutError):
                limits[resource.name] = _read_limits({name: entry.value for name, entry in answer.result(_ASK_S).items()})
        return limits

    def _refresh_refusals(self, topics: set[str]) -> None:
        if not topics:
            return
        asked = TopicCollection(sorted(topics))
        answers = self._admin.describe_topics(asked, include_authorized_operations=True, request_timeout=_ASK_S)
        for topic, answer in answers.items():
            # Any other error is said of the cluster, not of the topic: what was known stays, and the transaction will tell.
            why = self._refusals.get(topic)
            with suppress(TimeoutError):
                try:
                    why = _find_topic_error(answer.result(_ASK_S), writes=self._writes)
                except KafkaException as error:
                    why = _error(error.args[0], writes=self._writes) or why
            self._refusals[topic] = why


def _read_limits(config: Mapping[str, str | None]) -> TopicLimits:
    """Bounds that a configuration sets; brokers before 3.6 know one for timestamps of the past and of the future."""
    ages = [config.get(f"message.timestamp.{name}.max.ms") for name in ("before", "difference")]
    age_ms_max = min((int(age) for age in ages if age), default=_ANY_AGE_MS)
    by_broker = config.get("message.timestamp.type") == "LogAppendTime" or age_ms_max >= _ANY_AGE_MS
    size, cleanup = config.get("max.message.bytes"), config.get("cleanup.policy") or ""
    return TopicLimits(int(size) if size else None, None if by_broker else age_ms_max, "compact" in cleanup)


def _error(error: KafkaError, *, writes: bool) -> str | None:
    if writes and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return _FORBIDDEN.format("DESCRIBE")
    return error.str() if error.code() in _REFUSALS else None


def _find_topic_error(topic: TopicDescription, *, writes: bool) -> str | None:
    # A broker that is too old to tell tells nothing.
    rights = topic.authorized_operations
    if topic.is_internal:
        return "it is internal to Kafka, and nothing is sent there"
    if writes and rights is not None and AclOperation.WRITE not in rights:
        return _FORBIDDEN.format("WRITE")
    away = [partition.id for partition in topic.partitions if partition.leader is None or partition.leader.id < 0]
    return f"no broker leads its partition {away[0]}; is one down that has the only copy?" if away else None
