"""What waits in the topics of another service: all that its consumer group has still to read there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from retry.errors import MigrationStopped, TopicsInvalid
from retry.kafka import consumer_groups, offset_ranges
from retry.kafka.interface import Partition
from retry.kafka.offset_ranges import Span
from retry.operations.cluster import Cluster, find_spans
from retry.policies.registry import Registry
from retry.policies.topic_names import is_of_kafka

_ASK_S, _GROUPS_S = 20.0, 30.0
_PATTERN = frozenset("*?[")


class UnreadRecords(NamedTuple):
    """The records that one consumer group has still to read, up to the end of what is committed now.

    Attributes:
      unread: topics in which the group has committed nothing, or so long ago that brokers have forgotten it.
    """

    group: str
    spans: list[Span]
    unread: tuple[str, ...] = ()

    @property
    def topics(self) -> list[str]:
        return sorted({span.topic for span in self.spans})


def demand_target(cluster: Cluster, registry: Registry, target: str) -> None:
    """Raise `MigrationStopped` where the policy file does not read a topic, `TopicsInvalid` where there is no such topic."""
    if not registry.reads_topic(target):
        raise MigrationStopped(
            f"the policy file has nothing on {target}, so nobody would retry what is moved there; add it as "
            f"'- {{dead_letters: {target}, retry_to: …}}' to the topics of a team, or give another topic to --to"
        )
    cluster.partitions(target)


def find(cluster: Cluster, registry: Registry, globs: Collection[str], group: str | None, target: str) -> list[UnreadRecords]:
    """Find what waits in the topics whose names match any of `globs`, by consumer group.

    Args:
      group: the group that reads there, as a name or a glob; None for the only one that has.

    Raises:
      MigrationStopped: topics are attached already, or it is not clear whose group counts.
      TopicsInvalid: no topic matches, or brokers did not answer.
    """
    places = offset_ranges.partitions_of(
        cluster.admin, lambda name: not is_of_kafka(name) and any(fnmatchcase(name, glob) for glob in globs), _ASK_S
    )
    if not places:
        raise TopicsInvalid([f"no topic is called {' or '.join(globs)}"], "look at the names, and at this user's rights")
    for topic in {topic for topic, _ in places}:
        if topic == target or registry.reads_topic(topic):
            raise MigrationStopped(
                f"{topic} is attached by the policy file, so workers take in all that lies there; remove it from the file, or "
                "from --from"
            )
    ends = _ends(cluster, places)
    topics = {topic for topic, _ in ends}
    by_topic = readers(_read_committed(cluster, group, topics), topics, group)
    found: dict[str, list[Span]] = {}
    for (topic, partition), (first, last) in ends.items():
        name, committed = by_topic[topic]
        start = min(max(first, committed.get((topic, partition), first)), last)
        found.setdefault(name, []).append(Span(topic, partition, start, last))
    read = {topic for topic, (_, committed) in by_topic.items() if any(name == topic for name, _ in committed)}
    return [UnreadRecords(name, spans, tuple(sorted({s.topic for s in spans} - read))) for name, spans in sorted(found.items())]


Offsets = Mapping[Partition, int]


def readers(committed: Mapping[str, Offsets], topics: Collection[str], asked: str | None) -> dict[str, tuple[str, Offsets]]:
    """Find the group that reads each topic, and its committed offsets; raises `MigrationStopped` where that is not one group."""
    found: dict[str, tuple[str, Offsets]] = {}
    for topic in sorted(topics):
        all_of_topic = sorted(group for group, offsets in committed.items() if any(name == topic for name, _ in offsets))
        of_topic = [group for group in all_of_topic if asked is None or fnmatchcase(group, asked)]
        if not all_of_topic and asked is not None and not _is_glob(asked):
            # Named outright: a group that has read nothing yet has everything before it.
            of_topic = [asked]
        if len(of_topic) != 1:
            raise MigrationStopped(_unclear(topic, of_topic, all_of_topic, asked))
        found[topic] = of_topic[0], committed.get(of_topic[0], {})
    return found


def _unclear(topic: str, of_topic: Sequence[str], all_of_topic: Sequence[str], asked: str | None) -> str:
    told = f"{', '.join(of_topic)} have read {topic}" if of_topic else f"no group{f' {asked}' if asked else ''} has read {topic}"
    others = f" ({', '.join(all_of_topic)} did)" if all_of_topic and not of_topic else ""
    forgotten = "" if all_of_topic else (
        ". If one ever has, brokers have forgotten how far, as they do some time after its consumers have ended: then all that "
        "lies there would be moved"
    )  # fmt: skip
    return f"{told}{others}, so it is not clear what waits there; name the group of its consumers with --group{forgotten}"


def list_group_members(cluster: Cluster, group: str) -> list[str]:
    """List who is in a group now; raises `MigrationStopped` where this user may not know."""
    names = consumer_groups.list_members(cluster.admin, group)
    if names is None:
        raise MigrationStopped(f"this user may not see who is in the group {group}; grant it the right to describe and read it")
    return names


def count(cluster: Cluster, waiting: Sequence[UnreadRecords]) -> Counter[str]:
    """Count the records that wait in each topic, without transaction markers."""
    counts = Counter[str]()
    for each in waiting:
        for batch in offset_ranges.read_batches(cluster.reader, each.spans):
            counts.update(message.topic() or "" for message in batch)
    return counts


def _is_glob(text: str) -> bool:
    return bool(_PATTERN & set(text))


def _ends(cluster: Cluster, places: list[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return the first and the end offset of each partition that anything was ever written to."""
    return {(span.topic, span.partition): (span.start, span.stop) for span in find_spans(cluster.admin, places) if span.stop}


def _read_committed(cluster: Cluster, group: str | None, topics: Collection[str]) -> dict[str, Offsets]:
    """Read the committed offsets by group: only of the group that is named, where it has read all topics, else of all groups."""
    if group is not None and not _is_glob(group):
        of_group = consumer_groups.positions(cluster.admin, group)
        if {topic for topic, _ in of_group}.issuperset(topics):
            return {group: of_group}
    committed, failed = consumer_groups.Committed(cluster.admin)(consumer_groups.list_groups(cluster.admin), _GROUPS_S)
    if failed:
        raise MigrationStopped(
            f"{len(failed)} consumer groups could not be asked what they have read, as {next(iter(failed.items()))}; "
            "look at the brokers and at this user's rights, then give the command again"
        )
    return dict(committed)
