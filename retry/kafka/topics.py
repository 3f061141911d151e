"""The service's own topics: their names, what they must look like, and what teams' topics allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from retry.clock import Deadline, pause
from retry.errors import TopicsInvalid
import re
from collections.abc import Sequence

_ASK_S = 20.0
_DAY_MS = 86_400_000
# Deletes must outlive every table that has not seen them; a table older than half of this is wiped when it is opened.
DELETE_RETENTION_MS = 2 * _DAY_MS
# Letters of the default broker limit fit with their headers and our envelope.
CHANGELOG_BYTES_MAX = 2 << 20
# What a record batch adds to a record, and some room.
_BATCH_OVERHEAD = 256


_PARTS = ("changelog", "outcomes", "lineage", "parked", "intake", "table", "calls")


class Names(NamedTuple):
    """The topics and groups of one deployment, all derived from its application id."""

    changelog: str
    outcomes: str
    lineage: str
    parked: str
    intake_group: str
    table_group: str
    calls: str = "calls"


def names(app_id: str) -> Names:
    """Every name that `app_id` prefixes."""
    return Names(*(f"{app_id}-{part}" for part in _PARTS))


def internal(app_id: str) -> set[str]:
    """The service's own topics that nobody's letters are read from or sent to."""
    own = names(app_id)
    return {own.changelog, own.outcomes, own.lineage, own.calls}


class Described(NamedTuple):
    """What the cluster says of one topic."""

    topic_id: str
    partitions: int
    config: dict[str, str]


_CHANGELOG_DEMANDS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
}
_CHANGELOG_CONFIG = {
    **_CHANGELOG_DEMANDS,
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "max.compaction.lag.ms": str(_DAY_MS),
    "min.cleanable.dirty.ratio": "0.2",
    "segment.bytes": str(128 << 20),
    "max.message.bytes": str(CHANGELOG_BYTES_MAX),
}
# What is known of a changelog that is not there yet.
TO_BE_CHANGELOG = Described("", 0, _CHANGELOG_CONFIG)
_KEEP_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)}
# The record of recent lineages is read whole when a worker starts; in all partitions together it holds two million.
_LINEAGE_PARTITIONS = 4
_LINEAGE_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(30 * _DAY_MS),
    "retention.bytes": str(16 << 20),
    "segment.bytes": str(4 << 20),
}
# What became of calls: the last of each timer, for a week.
_CALLS_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(7 * _DAY_MS), "segment.bytes": str(32 << 20)}
_PARKING_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}


def create(
    admin: AdminClient, app_id: str, shards: int, parking: Iterable[str] = (), more: Mapping[str, dict[str, str]] | None = None
) -> list[str]:
    """Create those of the service's topics, of `parking` and of `more`, by name with configuration, that are missing; say which.

    Raises:
      TopicsInvalid: the cluster refused one.
    """
    own = names(app_id)
    wanted = {own.changelog: (shards, _CHANGELOG_CONFIG), own.outcomes: (shards, _KEEP_CONFIG)}
    wanted[own.lineage] = _LINEAGE_PARTITIONS, _LINEAGE_CONFIG
    wanted[own.calls] = shards, _CALLS_CONFIG
    wanted |= dict.fromkeys((own.parked, *parking), (shards, _PARKING_CONFIG))
    wanted |= {topic: (shards, config) for topic, config in (more or {}).items()}
    present = describe(admin, wanted)
    copies = min(3, len(admin.list_topics(timeout=_ASK_S).brokers))
    # With three copies one broker may be down and every acknowledged write is still on two.
    safe = {"min.insync.replicas": "2"} if copies == 3 else {}
    new = [NewTopic(t, n, copies, config={**c, **safe}) for t, (n, c) in wanted.items() if t not in present]
    for topic, done in (admin.create_topics(new) if new else {}).items():
        try:
            done.result(_ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicsInvalid([f"{topic}: {error.args[0].str()}"], "ask for the right to create it") from error
    _await_known(admin, wanted)
    return [topic.topic for topic in new]


def _await_known(admin: AdminClient, topics: Iterable[str]) -> None:
    """A broker may not know for a moment what the controller has just created."""
    deadline = Deadline(_ASK_S)
    while len(describe(admin, topics)) < len(set(topics)) and not deadline.passed():
        pause(0.05)


def check(admin: AdminClient, app_id: str, parking: Iterable[str] = ()) -> dict[str, Described]:
    """What the cluster says of the service's topics, if a worker may trust them with letters.

    Raises:
      TopicsInvalid: a topic is missing, or the changelog could lose entries; with the command that mends it.
    """
    own = names(app_id)
    wanted = [own.changelog, own.outcomes, own.lineage, own.parked, *parking]
    present = describe(admin, wanted)
    missing = [topic for topic in wanted if topic not in present]
    if missing:
        raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")
    config = present[own.changelog].config
    wrong = {name: want for name, want in _CHANGELOG_DEMANDS.items() if config.get(name) != want}
    if int(config.get("delete.retention.ms", "0")) < _DAY_MS:
        wrong["delete.retention.ms"] = str(DELETE_RETENTION_MS)
    if wrong:
        settings = ",".join(f"{name}={want}" for name, want in wrong.items())
        raise TopicsInvalid(
            [f"{own.changelog}: {name} is {config.get(name)}, not {want}" for name, want in wrong.items()],
            f"kafka-configs --alter --topic {own.changelog} --add-config {settings}",
        )
    return present


def describe(admin: AdminClient, topics: Iterable[str]) -> dict[str, Described]:
    """What the cluster says of those of `topics` that exist: of which both brokers know that are asked."""
    wanted = TopicCollection(sorted(set(topics)))
    described = dict(_known(admin.describe_topics(wanted, request_timeout=_ASK_S)))
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in described]
    found = _known(admin.describe_configs(asked, request_timeout=_ASK_S) if asked else {})
    configs = {resource.name: {name: entry.value for name, entry in told.items()} for resource, told in found}
    return {
        t: Described(str(about.topic_id), len(about.partitions), configs[t])
        for t, about in described.items()
        if t in configs
    }


def _known(answers: Mapping[Any, Future[Any]]) -> Iterator[tuple[Any, Any]]:
    """The answers, less those that say that there is no such topic."""
    for asked, done in answers.items():
        try:
            yield asked, done.result(_ASK_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def retention_ms(admin: AdminClient, topics: Iterable[str]) -> dict[str, int]:
    """By topic, how long Kafka keeps a record; topics that are not there, or delete nothing by time, are left out.

    Raises:
      KafkaException, TimeoutError: nobody answered.
    """
    told = {topic: about.config for topic, about in describe(admin, topics).items()} if topics else {}
    deleting = {t: int(of.get("retention.ms", -1)) for t, of in told.items() if "delete" in of.get("cleanup.policy", "")}
    return {topic: kept for topic, kept in deleting.items() if kept >= 0}


def record_bytes_max(described: Described) -> int:
    """How large a record this topic takes, its headers included."""
    return int(described.config.get("max.message.bytes", "1048588")) - _BATCH_OVERHEAD


def table_age_ms_max(changelog: Described) -> int:
    """How old a table may be: an older one may not have seen deletes that compaction has dropped since."""
    return min(DELETE_RETENTION_MS, int(changelog.config.get("delete.retention.ms", "0"))) // 2


def limits(admin: AdminClient, own: Mapping[str, Described], targets: Iterable[str]) -> dict[str, int]:
    """By topic, the largest record that it takes: of the service's own, which `check` told of, and of some others that exist."""
    known = {**own, **describe(admin, targets)}
    return {topic: record_bytes_max(about) for topic, about in known.items()}


def cluster_id(admin: AdminClient) -> str:
    """The cluster's own name for itself."""
    return str(admin.describe_cluster(request_timeout=_ASK_S).result(_ASK_S).cluster_id)


def matches(topic: str, names: Sequence[str]) -> bool:
    """Whether a topic is among names and patterns, which begin with `^`."""
    return topic in names or any(name.startswith("^") and re.search(name, topic) is not None for name in names)
