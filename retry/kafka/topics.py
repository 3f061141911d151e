"""The service's own topics: their names, what they must look like, and what teams' topics allow."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from retry.clock import Deadline, pause
from retry.errors import TopicsInvalid
from retry.kafka import authorization
from retry.kafka.asked_again import ask_until_answered
from retry.kafka.authorization import Right

log = logging.getLogger(__name__)

_ASK_S = 20.0
# A broker may not know for a moment what the controller has just created.
_AWAIT_TOPICS_S = 3.0
_DAY_MS = 86_400_000
_ASKED_FOR_ONE_BY_ONE = 200
# Deletes must outlive every table that has not seen them; a table older than half of this is wiped when it is opened.
DELETE_RETENTION_MS = 2 * _DAY_MS
# Letters wait in it uncompressed as far as brokers can tell, whatever they were as they came: this is what hosted clusters allow.
CHANGELOG_BYTES_MAX = 8 << 20
# What brokers take where nobody says otherwise.
_BYTES_MAX = "1048588"
# What a record batch adds to a record, and some room.
_BATCH_OVERHEAD = 256
LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

_PARTS = (
    "changelog", "outcomes", "lineage", "parked", "intake", "table", "calls", "parked-timers", "discarded", "audit", "notes",
    "positions", "notifications",
)  # fmt: skip


class TopicNames(NamedTuple):
    """The topics and groups of one deployment, all derived from its application id."""

    changelog: str
    outcomes: str
    lineage: str
    parked: str
    intake_group: str
    table_group: str
    calls: str = "calls"
    parked_timers: str = "parked-timers"
    discarded: str = "discarded"
    audit: str = "audit"
    notes: str = "notes"
    positions: str = "positions"
    notifications_group: str = "notifications"

    def list_resting(self, parking: Iterable[str]) -> set[str]:
        """List the topics where letters rest until somebody acts on them: teams' `parking` topics, and those of the service."""
        return {self.parked, self.discarded, *parking}


def build_topic_names(app_id: str) -> TopicNames:
    """Build the names of all topics that `app_id` prefixes."""
    return TopicNames(*(f"{app_id}-{part}" for part in _PARTS))


def list_internal_topics(app_id: str) -> set[str]:
    """List the service's own topics, from which no team's letters are read and to which none are sent."""
    own = build_topic_names(app_id)
    return {own.changelog, own.outcomes, own.lineage, own.calls, own.parked_timers, own.discarded, own.audit, own.notes,
            own.positions}  # fmt: skip


class Described(NamedTuple):
    """One topic as the cluster describes it; without configuration where this user may not see that."""

    topic_id: str
    partitions: int
    config: dict[str, str]


_CHANGELOG_DEMANDS = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
# Compacted soon, so that what is read anew is short.
_COMPACTED = {"cleanup.policy": "compact", "max.compaction.lag.ms": str(_DAY_MS), "min.cleanable.dirty.ratio": "0.2"}
_CHANGELOG_CONFIG = {
    **_CHANGELOG_DEMANDS, "delete.retention.ms": str(DELETE_RETENTION_MS), **_COMPACTED, "segment.bytes": str(128 << 20),
    "max.message.bytes": str(CHANGELOG_BYTES_MAX),
}  # fmt: skip
# What is known of a changelog that is not there yet.
TO_BE_CHANGELOG = Described("", 0, _CHANGELOG_CONFIG)
_KEEP_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)}
# The record of recent lineages is read whole when a worker starts. All of a team lies in one partition, which holds 1.2 million
# letters: more than workers remember by default, of that team and of those that share the partition with it.
_LINEAGE_PARTITIONS = 4
_LINEAGE_CONFIG = {**_KEEP_CONFIG, "retention.bytes": str(32 << 20), "segment.bytes": str(4 << 20)}
# What became of calls: the last of each timer, for a week.
_CALLS_CONFIG = {"cleanup.policy": "compact,delete", "retention.ms": str(7 * _DAY_MS), "segment.bytes": str(32 << 20)}
# Letters that nobody has looked at yet are kept for ever. A timer that was given up is not: its URL and headers may hold secrets.
_PARKING_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}
# Who did what to which letters, for a year.
_AUDIT_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(365 * _DAY_MS)}
# What operators write beside letters: few records, the newest of each.
_NOTES_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
# How far each dead-letter partition was taken in; every batch of intake adds to it.
_POSITIONS_CONFIG = {**_COMPACTED, "segment.bytes": str(4 << 20)}


class TopicPlan(NamedTuple):
    """A topic as it is to be made."""

    partitions: int
    config: Mapping[str, str]


def plan_topics(
    app_id: str, shards: int, parking: Iterable[str] = (), more: Mapping[str, dict[str, str]] | None = None
) -> dict[str, TopicPlan]:
    """Plan the service's topics, those of `parking`, and `more`, whose configurations are given, all by name."""
    own = build_topic_names(app_id)
    plans = {own.changelog: TopicPlan(shards, _CHANGELOG_CONFIG), own.outcomes: TopicPlan(shards, _KEEP_CONFIG)}
    plans[own.lineage] = TopicPlan(_LINEAGE_PARTITIONS, _LINEAGE_CONFIG)
    plans[own.calls] = TopicPlan(shards, _CALLS_CONFIG)
    plans[own.parked_timers] = plans[own.discarded] = TopicPlan(shards, _KEEP_CONFIG)
    plans[own.audit] = TopicPlan(shards, _AUDIT_CONFIG)
    plans[own.notes] = TopicPlan(1, _NOTES_CONFIG)
    plans[own.positions] = TopicPlan(1, _POSITIONS_CONFIG)
    plans |= dict.fromkeys((own.parked, *parking), TopicPlan(shards, _PARKING_CONFIG))
    return plans | {topic: TopicPlan(shards, config) for topic, config in (more or {}).items()}


def create(
    admin: AdminClient, app_id: str, shards: int, parking: Iterable[str] = (), more: Mapping[str, dict[str, str]] | None = None
) -> list[str]:
    """Create those of the service's topics, of `parking` and of `more` that are missing, and return the names of the new ones.

    `more` has configurations by name. Raises TopicsInvalid where the cluster refuses one.
    """
    wanted = plan_topics(app_id, shards, parking, more)
    present = describe(admin, wanted)
    copies = min(3, ask_until_answered(lambda within_s: len(admin.list_topics(timeout=within_s).brokers), _ASK_S))
    # With three copies one broker may be down and every acknowledged write is still on two.
    safe = {"min.insync.replicas": "2"} if copies == 3 else {}
    new = [NewTopic(t, n, copies, config={**c, **safe}) for t, (n, c) in wanted.items() if t not in present]
    try:
        ask_until_answered(lambda within_s: _create(admin, new, within_s), _ASK_S)
    except KafkaException as error:
        raise TopicsInvalid([error.args[0].str()], "look at the brokers, then try again") from error
    if unknown := sorted(wanted.keys() - _await_topics(admin, wanted, _ASK_S)):
        raise TopicsInvalid([f"{topic} was created, and no broker tells of it" for topic in unknown], "retry topics create")
    return [topic.topic for topic in new]


def _create(admin: AdminClient, new: list[NewTopic], within_s: float) -> None:
    for topic, done in (admin.create_topics(new, request_timeout=within_s) if new else {}).items():
        try:
            done.result(within_s)
        except KafkaException as error:
            if authorization.is_denied(error):
                raise authorization.build_right_missing(Right(authorization.TOPIC, topic, authorization.CREATE)) from error
            # Whoever asks again after a lost answer finds that it was done.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise KafkaException(KafkaError(error.args[0].code(), f"{topic}: {error.args[0].str()}")) from error


def _await_topics(admin: AdminClient, topics: Collection[str], within_s: float) -> dict[str, Described]:
    """Describe those of `topics` that exist; waits a while for brokers to learn of new ones."""
    deadline = Deadline(within_s)
    while len(present := describe(admin, topics)) < len(set(topics)) and not deadline.has_passed():
        pause(0.05)
    return present


def check(admin: AdminClient, app_id: str, parking: Iterable[str] = ()) -> dict[str, Described]:
    """Describe the service's topics; raises TopicsInvalid, with the command that mends it, where a worker may not trust them."""
    own = build_topic_names(app_id)
    present = check_these(admin, own.changelog, [own.changelog, own.outcomes, own.lineage, own.positions, own.parked, *parking])
    policy = present[own.positions].config.get("cleanup.policy", "compact")
    if policy != "compact":
        raise TopicsInvalid(
            [f"{own.positions}: cleanup.policy is {policy}, not compact, so that positions could be deleted by time"],
            f"kafka-configs --alter --topic {own.positions} --add-config cleanup.policy=compact",
        )
    return present


def check_these(admin: AdminClient, changelog: str, wanted: Sequence[str]) -> dict[str, Described]:
    """Describe some topics, the changelog among them, after a check that all exist and that the changelog loses no entries."""
    present = _await_topics(admin, wanted, _AWAIT_TOPICS_S)
    if missing := [topic for topic in wanted if topic not in present]:
        raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")
    demand_configs({changelog: present[changelog]})
    config = present[changelog].config
    wrong = {name: want for name, want in _CHANGELOG_DEMANDS.items() if config.get(name) != want}
    if int(config.get("delete.retention.ms", "0")) < _DAY_MS:
        wrong["delete.retention.ms"] = str(DELETE_RETENTION_MS)
    if wrong:
        settings = ",".join(f"{name}={want}" for name, want in wrong.items())
        raise TopicsInvalid(
            [f"{changelog}: {name} is {config.get(name)}, not {want}" for name, want in wrong.items()],
            f"kafka-configs --alter --topic {changelog} --add-config {settings}",
        )
    return present


def choose_timer_topics(admin: AdminClient, own: TopicNames) -> TopicNames:
    """Choose the topic names for parking timers: timers go to the topic of parked letters where they have none of their own."""
    if own.parked_timers in describe(admin, [own.parked_timers], optional=True):
        return own
    log.warning(
        "%s is missing, so timers are parked in %s, with their URLs and headers, as long as that keeps them: retry topics create",
        own.parked_timers, own.parked,
    )  # fmt: skip
    return own._replace(parked_timers=own.parked)


def describe(admin: AdminClient, topics: Iterable[str], *, optional: bool = False) -> dict[str, Described]:
    """Describe those of `topics` that exist: a topic counts once both brokers that are asked know of it.

    A configuration that this user may not see is empty; a topic is left out where `optional`, else RightMissing is raised.
    """
    # Records say where they went, and may say anything: of what is no topic's name brokers would refuse the whole request.
    wanted = sorted({topic for topic in topics if LEGAL_NAME.fullmatch(topic) and topic not in (".", "..")})
    if optional and len(wanted) > _ASKED_FOR_ONE_BY_ONE:
        # Each topic that is asked for costs an answer of its own, which thousands of teams without topics make seconds of.
        there = ask_until_answered(lambda within_s: admin.list_topics(timeout=within_s).topics, _ASK_S)
        wanted = [topic for topic in wanted if topic in there]
    if not wanted:
        return {}
    answers = _collect_answers(lambda within_s: admin.describe_topics(TopicCollection(wanted), request_timeout=within_s))
    described = {topic: about for topic, about in answers.items() if _may_see(topic, about, optional=optional)}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in described]
    entries = _collect_answers(lambda within_s: admin.describe_configs(resources, request_timeout=within_s)) if resources else {}
    configs = {resource.name: {name: entry.value for name, entry in (of or {}).items()} for resource, of in entries.items()}
    seen = ((topic, about) for topic, about in described.items() if topic in configs)
    return {topic: Described(str(about.topic_id), len(about.partitions), configs[topic]) for topic, about in seen}


def demand_configs(described: Mapping[str, Described]) -> None:
    """Refuse to judge by configurations that this user may not see: raises RightMissing where one is empty."""
    for topic, about in described.items():
        if not about.config:
            raise authorization.build_right_missing(Right(authorization.TOPIC, topic, authorization.DESCRIBE_CONFIGS))


def _collect_answers(ask: Callable[[float], Mapping[Any, Future[Any]]]) -> dict[Any, Any]:
    """The answers, less those that say that there is no such topic; None where they are refused to this user."""

    def iterate_answers(within_s: float) -> Iterator[tuple[Any, Any]]:
        for question, done in ask(within_s).items():
            try:
                yield question, done.result(within_s)
            except KafkaException as error:
                if authorization.is_denied(error):
                    yield question, None
                elif error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    return ask_until_answered(lambda within_s: dict(iterate_answers(within_s)), _ASK_S)


def _may_see(topic: str, about: object, *, optional: bool) -> bool:
    if about is None and not optional:
        raise authorization.build_right_missing(Right(authorization.TOPIC, topic, authorization.DESCRIBE))
    return about is not None


def read_retention_ms(admin: AdminClient, topics: Iterable[str]) -> dict[str, int]:
    """Return how long Kafka keeps a record of each topic; topics that are missing, or delete nothing by time, are left out.

    Raises KafkaException or TimeoutError where nobody answers.
    """
    configs = {topic: about.config for topic, about in describe(admin, topics, optional=True).items()}
    deleting = {t: int(of.get("retention.ms", -1)) for t, of in configs.items() if "delete" in of.get("cleanup.policy", "")}
    return {topic: kept_ms for topic, kept_ms in deleting.items() if kept_ms >= 0}


def record_bytes_max(described: Described) -> int:
    """Compute how many bytes a record for a topic may have, its headers included."""
    return int(described.config.get("max.message.bytes", _BYTES_MAX)) - _BATCH_OVERHEAD


def compute_table_age_max_ms(changelog: Described) -> int:
    """Compute how old a table may be, in milliseconds: an older one may have missed deletes that compaction has dropped."""
    return min(DELETE_RETENTION_MS, int(changelog.config.get("delete.retention.ms", "0"))) // 2


def read_record_limits(admin: AdminClient, own: Mapping[str, Described], targets: Iterable[str]) -> dict[str, int]:
    """Return how many bytes a record of each topic may have: of `own`, as `check` described them, and of `targets` that exist."""
    described = {**own, **describe(admin, targets, optional=True)}
    return {topic: record_bytes_max(about) for topic, about in described.items()}


def read_cluster_id(admin: AdminClient) -> str:
    ask = admin.describe_cluster
    return str(ask_until_answered(lambda within_s: ask(request_timeout=within_s).result(within_s), _ASK_S).cluster_id)


def matches(topic: str, names: Sequence[str]) -> bool:
    """Whether a topic is among names and patterns, which begin with `^`."""
    return topic in names or any(name.startswith("^") and re.search(name, topic) is not None for name in names)
