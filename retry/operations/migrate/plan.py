"""What waits in the topics of another service, and what would become of it, if it was moved: decided as intake would.

All waits that its consumer group has still to read there. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from retry.clock import wall_ms
from retry.dead_letters import retry_headers as ours
from retry.dead_letters.dead_letter import parse_moment, parse_retries_made
from retry.dead_letters.frameworks import header_values
from retry.errors import MigrationStopped, TopicsInvalid
from retry.kafka import consumer_groups, offset_ranges
from retry.kafka.interface import Partition
from retry.kafka.offset_ranges import Span
from retry.operations.cluster import Cluster, find_spans, read_first_records
from retry.operations.try_letters import Tried
from retry.policies.registry import Registry
from retry.policies.topic_names import is_of_kafka
from retry.record import Headers, Record, read_headers

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


def find_unread(
    cluster: Cluster, registry: Registry, globs: Collection[str], group: str | None, target: str
) -> list[UnreadRecords]:
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
    by_topic = find_readers(_read_committed(cluster, group, topics), topics, group)
    found: dict[str, list[Span]] = {}
    for (topic, partition), (first, last) in ends.items():
        name, committed = by_topic[topic]
        start = min(max(first, committed.get((topic, partition), first)), last)
        found.setdefault(name, []).append(Span(topic, partition, start, last))
    read = {topic for topic, (_, committed) in by_topic.items() if any(name == topic for name, _ in committed)}
    return [UnreadRecords(name, spans, tuple(sorted({s.topic for s in spans} - read))) for name, spans in sorted(found.items())]


Offsets = Mapping[Partition, int]


def find_readers(committed: Mapping[str, Offsets], topics: Collection[str], asked: str | None) -> dict[str, tuple[str, Offsets]]:
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


def count_unread(cluster: Cluster, waiting: Sequence[UnreadRecords]) -> Counter[str]:
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
        of_group = consumer_groups.read_positions(cluster.admin, group)
        if {topic for topic, _ in of_group}.issuperset(topics):
            return {group: of_group}
    committed, failed = consumer_groups.Committed(cluster.admin)(consumer_groups.list_groups(cluster.admin), _GROUPS_S)
    if failed:
        raise MigrationStopped(
            f"{len(failed)} consumer groups could not be asked what they have read, as {next(iter(failed.items()))}; "
            "look at the brokers and at this user's rights, then give the command again"
        )
    return dict(committed)


# The headers with which a record that waits elsewhere becomes a letter here. Pure: no clock, no I/O.
#
# | what the other service says | what the letter says |
# | --- | --- |
# | how many retries it has made | `retry-attempt`, so that the count goes on |
# | when the next one is due | `retry-at-ms`, so that the time is kept as far as the policy allows |
# | where the record lay | `retry-migrated-from` |
#
# All else stays as it was, so that the record can be given back in its own format.

# Headers of a record and its place → those of the letter; None where the other service does not write such records.
LetterHeaders = Callable[[Headers, bytes], Headers | None]

_ATTEMPTS, _BACKOFF = "retry_topic-attempts", "retry_topic-backoff-timestamp"
_RETRIES = "x-retry-count"
# `ATTEMPTS_HARD_CAP` of Spring's DeadLetterPublishingRecovererFactory; beyond it Spring begins to count anew.
_SPRING_ATTEMPTS_MAX = 32_767


def convert_spring_headers(headers: Headers, place: bytes) -> Headers | None:
    """Convert the headers of a record of a Spring Kafka retry topic; where each hop added a header, the last one counts.

    `retry_topic-attempts` numbers the delivery that comes next, so two less is the number of retries that were made.
    """
    last = dict(headers)
    if _ATTEMPTS not in last and _BACKOFF not in last:
        return None
    next_delivery = header_values.parse_byte_or_int32(last.get(_ATTEMPTS) or b"") or 1
    made = next_delivery - 2 if next_delivery <= _SPRING_ATTEMPTS_MAX else 0
    due_ms = header_values.parse_big_integer(last.get(_BACKOFF) or b"")
    return make_moved_headers(headers, place, made, due_ms)


def convert_cronsumer_headers(headers: Headers, place: bytes) -> Headers | None:
    """Convert the headers of a record of kafka-cronsumer's topic; the first of equal names counts, and no number means 0 retries.

    Any record is one of its own: what an application writes there for the first time has no headers.
    """
    raw = next((value for name, value in headers if name == _RETRIES), None)
    return make_moved_headers(headers, place, header_values.parse_digits_int32(raw or b"") or 0)


def make_moved_headers(headers: Headers, place: bytes, made: int = 0, due_ms: int | None = None) -> Headers:
    """Make the headers of a letter that was moved from a place.

    Args:
      made: retries that it had there. One that came from here before keeps its own count where that is higher.
      due_ms: when the next one is due; None where only the policy says so.
    """
    count = max(made, parse_retries_made(dict(headers).get(ours.ATTEMPT, b"0")) or 0)
    due = b"%d" % due_ms if due_ms is not None and parse_moment(b"%d" % due_ms) is not None else None
    counted = b"%d" % count if count > 0 else None
    return ours.set_in(headers, (ours.ATTEMPT, counted), (ours.RETRY_AT_MS, due), (ours.MIGRATED_FROM, place))


# How many records that are left are told of by their places.
_PLACES_MAX = 20


class Plan:
    """Records that wait, counted.

    Attributes:
      others: by topic, those that the other service did not write, or whose headers cannot be read.
      places: where the first of those lie.
      unreadable: how many of them have headers that the client cannot read, and cannot be moved at all.
      other_times: how many would be due at another time than the other service says.
    """

    def __init__(self) -> None:
        self.topics, self.others = Counter[str](), Counter[str]()
        self.places: list[str] = []
        self.unreadable = self.other_times = 0
        self.tried = Tried()

    def count_non_letter(self, place: bytes, topic: str, *, unreadable: bool) -> None:
        self.others[topic] += 1
        self.unreadable += unreadable
        if len(self.places) < _PLACES_MAX:
            self.places.append(place.decode())


class Conversion:
    """Converts another service's records into letters; with `others` also those that it did not write, with their own headers."""

    def __init__(self, convert: LetterHeaders, target: str, *, others: bool) -> None:
        self._convert, self._target, self._others = convert, target, others

    def convert_record(self, message: Any) -> tuple[bytes, Record | None, bool]:
        """Convert a record: return its place, the letter that it becomes or None, and whether its headers cannot be read."""
        place = b"%b/%d/%d" % (message.topic().encode(), message.partition(), message.offset())
        headers = read_headers(message)
        if headers is None:
            return place, None, True
        told = self._convert(headers, place)
        if told is None and self._others:
            told = make_moved_headers(headers, place)
        if told is None:
            return place, None, False
        where = self._target, message.partition(), message.offset()
        return place, Record(where, message.key(), message.value(), told, message.timestamp()), False


def plan_migration(cluster: Cluster, registry: Registry, waiting: Sequence[UnreadRecords], conversion: Conversion) -> Plan:
    """Decide everything that waits; raises `TopicsInvalid` where a topic cannot be read."""
    plan, inspector, now_ms = Plan(), cluster.inspector(registry), wall_ms()
    for batch in _read_waiting_batches(cluster, waiting):
        letters = []
        for message in batch:
            plan.topics[message.topic()] += 1
            place, letter, unreadable = conversion.convert_record(message)
            if letter is None:
                plan.count_non_letter(place, message.topic(), unreadable=unreadable)
            else:
                letters.append(letter)
        for case, built in inspector.decide_letters(letters, now_ms):
            plan.tried.add_now(case, built, now_ms)
            plan.tried.add_written(case, built)
            wish_ms = case.letter.retry_at_ms
            plan.other_times += built.reason is None and wish_ms is not None and case.due_at_ms != wish_ms
    return plan


def _read_waiting_batches(cluster: Cluster, waiting: Sequence[UnreadRecords]) -> Iterator[list[Any]]:
    for each in waiting:
        yield from read_first_records(cluster.reader, each.spans)
