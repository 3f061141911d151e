"""What may be wrong with a deployment: its installation, brokers, topics, rights, clock, groups and retention. Only reads.

Each check yields findings; one that cannot be made says why, and the others go on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from backoff import duration_text
from retry import clock, distribution, jars
from retry.errors import BrokersUnreachable, RetryError
from retry.kafka import authorization, consumer_groups, offset_ranges, topics
from retry.kafka.interface import KafkaException
from retry.kafka.target_probe import TargetProbe
from retry.operations.cluster import Cluster
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.process import acls
from retry.settings import Settings

OK, NOTE, WRONG = "ok", "note", "wrong"
_ASK_S = 20.0
_DAY_MS = 86_400_000
# As far as workers let their own clock be apart.
_SKEW_MS = 30_000
_COPIES = 3


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
      state: `ok`; `note` for what may be meant so; `wrong` for what has to be mended.
      about: what was looked at, in a word or two.
      told: what was found, and how to mend it, in a sentence.
    """

    state: str
    about: str
    told: str


class _Examination(NamedTuple):
    """Cluster, policy file and parts of the service that an examination is about."""

    cluster: Cluster
    registry: Registry
    parts: tuple[str, ...]


def examine(settings: Settings, parts: tuple[str, ...]) -> Iterator[Finding]:
    """Look at everything, one finding after the other; `parts` of the service are those whose rights this user should have.

    Raises:
      BrokersUnreachable: none answers; what was looked at before that has been yielded.
    """
    yield from _installation()
    registry = Registry()
    try:
        if settings.policies is None:
            yield Finding(WRONG, "policy file", "RETRY_POLICIES is not set: set it to the policy file, which workers need")
        else:
            registry = load(settings.policies)
            yield Finding(OK, "policy file", f"{settings.policies} attaches {len(registry.list_routes()):,} topics")
    except RetryError as error:
        yield Finding(WRONG, "policy file", str(error))
    examined = _Examination(Cluster(settings), registry, parts)
    for about, look in _CHECKS.items():
        try:
            yield from look(examined)
        except BrokersUnreachable:
            raise
        except RetryError as error:
            yield Finding(WRONG, about, str(error))
        except KafkaException as error:
            yield Finding(WRONG, about, f"the brokers answered: {error.args[0].str()}; look at them and at this user's rights")
        except TimeoutError:
            yield Finding(WRONG, about, "no broker answered in time; look at the brokers, then try again")


def _installation() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(OK, "versions", f"service {version(distribution.NAME)}, Python {python}, client {version('confluent-kafka')}")
    for name in ("backoff", "retry"):
        try:
            other = version(name)
        except PackageNotFoundError:
            continue
        told = f"the package {name} {other} is installed here, too, and its users get the service's: give each an environment"
        yield Finding(WRONG, "packages", told)
    for what, demand in (("the local broker", jars.find_java), ("analytics", jars.demand_java_of_spark)):
        try:
            demand()
        except RetryError as error:
            yield Finding(NOTE, "Java", f"for {what} alone: {error}")
        else:
            yield Finding(OK, "Java", f"there is one for {what}")


def _brokers(examined: _Examination) -> Iterator[Finding]:
    about = examined.cluster.admin.describe_cluster(request_timeout=_ASK_S).result(_ASK_S)
    count = len(about.nodes)
    if count < _COPIES:
        told = f"there are {count}, so topics are made with so many copies, and a lost disk may lose letters"
        yield Finding(NOTE, "brokers", f"{told}; run {_COPIES} where that matters")
    else:
        yield Finding(OK, "brokers", f"{count} of cluster {about.cluster_id} answer")


def _own_topics(examined: _Examination) -> Iterator[Finding]:
    names = examined.cluster.names
    others = [names.calls, names.parked_timers, names.discarded, names.audit, names.notes, *sorted(examined.registry.parking())]
    found = topics.check(examined.cluster.admin, examined.cluster.settings.app_id, others)
    yield Finding(OK, "topics", f"all {len(found)} of the service are there, {found[names.changelog].partitions} shards")


def _teams_topics(examined: _Examination) -> Iterator[Finding]:
    registry, admin = examined.registry, examined.cluster.admin
    missing = sorted(registry.exact.keys() - topics.describe(admin, registry.exact, optional=True).keys())
    for topic in missing:
        yield Finding(NOTE, "dead letters", f"{topic} is not there, or not for this user: correct its name, or make it")
    closed = TargetProbe(admin, writes=acls.WORKER in examined.parts).probe_targets(registry.retry_targets())
    for _, why in sorted(closed.items()):
        yield Finding(WRONG, "retry topics", f"{why}; until it can be written to, letters for it wait")
    if registry.exact and not missing and not closed:
        yield Finding(OK, "teams' topics", "dead letters can be read, and retry topics written to")


def _rights(examined: _Examination) -> Iterator[Finding]:
    names = acls.resolve_names(examined.cluster.settings.app_id, examined.registry)
    wanted = list(acls.list_rights(examined.parts, names))
    gone = set(authorization.list_missing_rights(examined.cluster.admin, [line.right for line in wanted]))
    for line in wanted:
        if line.right in gone:
            state = WRONG if line.vital else NOTE
            yield Finding(
                state, "rights", f"{line.who}: {authorization.build_right_missing(line.right)}; without it {line.without}"
            )
    if not gone:
        yield Finding(OK, "rights", f"none is missing of {', '.join(examined.parts)}, as far as brokers tell it of topics")


def _clock(examined: _Examination) -> Iterator[Finding]:
    cluster, topic = examined.cluster, examined.cluster.names.changelog
    newest_ms = offset_ranges.find_newest_ms(cluster.admin, topic, range(cluster.partitions(topic)))
    ahead_ms = newest_ms - clock.wall_ms()
    if ahead_ms > _SKEW_MS:
        told = f"this machine's is {duration_text(ahead_ms)} behind that of a broker: set it by NTP; workers with it send nothing"
        yield Finding(WRONG, "clock", told)
    elif newest_ms < 0:
        yield Finding(NOTE, "clock", "it is not known whether it is right: the changelog has no record that a broker stamped")
    else:
        yield Finding(OK, "clock", f"no record of a broker is ahead of it; the newest is {duration_text(max(0, -ahead_ms))} old")


def _groups(examined: _Examination) -> Iterator[Finding]:
    names = examined.cluster.names
    readers = {group: f"retries in {', '.join(sorted(of))}" for group, of in examined.registry.list_group_topics().items()}
    for group, reads in {names.table_group: "the changelog: no worker runs", **readers}.items():
        members = consumer_groups.count_members(examined.cluster.admin, group)
        if members is None:
            yield Finding(NOTE, "groups", f"{group}: this user may not see it; retry acls lists the rights")
        elif members == 0:
            yield Finding(NOTE, "groups", f"{group} has no member that reads {reads}")
        else:
            yield Finding(OK, "groups", f"{group} has {members:,} members")


def _retention(examined: _Examination) -> Iterator[Finding]:
    registry, admin = examined.registry, examined.cluster.admin
    for topic, kept_ms in sorted(topics.read_retention_ms(admin, registry.exact).items()):
        if kept_ms < _DAY_MS:
            told = f"{topic} keeps letters for {duration_text(kept_ms)}: in a longer outage they are lost; raise its retention.ms"
            yield Finding(NOTE, "retention", told)
    oldest_ms: dict[str, int] = {}
    for route in registry.list_routes():
        age_ms = max(plan.policy.max_age_ms for plan in route.plans())
        oldest_ms |= {topic: max(age_ms, oldest_ms.get(topic, 0)) for topic in route.retry_targets()}
    kept = topics.read_retention_ms(admin, oldest_ms)
    described = topics.describe(admin, kept, optional=True)
    by_letter = {t for t, about in described.items() if about.config.get("message.timestamp.type") != "LogAppendTime"}
    short = {topic: kept_ms for topic, kept_ms in kept.items() if kept_ms < oldest_ms[topic] and topic in by_letter}
    for topic, kept_ms in sorted(short.items()):
        yield Finding(
            WRONG, "retention",
            f"{topic} keeps records for {duration_text(kept_ms)} from their own time on, and retries have the time of their "
            f"letter, up to {duration_text(oldest_ms[topic])} ago (max_age): Kafka may delete them before they are read. Set "
            "message.timestamp.type=LogAppendTime there, or raise its retention.ms",
        )  # fmt: skip
    if kept and not short:
        yield Finding(OK, "retention", "retry topics keep what is sent there until it can be read")


_CHECKS: dict[str, Callable[[_Examination], Iterator[Finding]]] = {
    "brokers": _brokers, "topics": _own_topics, "teams' topics": _teams_topics, "rights": _rights, "clock": _clock,
    "groups": _groups, "retention": _retention,
}  # fmt: skip
