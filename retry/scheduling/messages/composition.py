"""A scheduler, put together: the worker of `retry.worker.composition` with the schedules source, and no policy file."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

import msgspec

from retry import clock
from retry.delay_queue.envelopes import Entry
from retry.errors import SettingsInvalid
from retry.intake.entry_source import EntrySource, QueueLimits
from retry.kafka import client_config, topics
from retry.kafka.interface import AdminClient
from retry.kafka.topic_ends import StartupBacklog
from retry.policies.registry import Registry
from retry.scheduling.messages.entry_source import CANCELLED, DONE, INVALID, PLANNED, TEAM, SchedulesSource
from retry.scheduling.messages.schedule_request import Rules
from retry.scheduling.messages.settings import SchedulerSettings
from retry.scheduling.timers.entry_source import TimersSource
from retry.settings import Settings
from retry.telemetry import prometheus
from retry.telemetry.metrics import Metrics
from retry.worker import composition
from retry.worker.engine import Engine

# A worker's metrics, and the one of the Go scheduler: `kafka_scheduler_event_total`, by `type`.
#
# | `type` | counts |
# | --- | --- |
# | `kafka_scheduler_planned_schedule` | schedules taken in, updates included |
# | `kafka_scheduler_deleted_schedule` | nulls read, those included that this service wrote after sending |
# | `kafka_scheduler_invalid_schedule` | messages that are no schedules |
# | `kafka_scheduler_triggered_schedule` | schedules that were sent |
# | `kafka_scheduler_missed_schedule` | schedules that were sent and had been due before this process started |
# | `kafka_scheduler_other` | nothing any more |

_TYPES = ("planned_schedule", "deleted_schedule", "invalid_schedule", "triggered_schedule", "missed_schedule", "other")
_TAKEN = {PLANNED: "planned_schedule", CANCELLED: "deleted_schedule", DONE: "deleted_schedule", INVALID: "invalid_schedule"}


class SchedulerMetrics(Metrics):
    """The table above, beside those of a worker; what was due before `started_at_ms` is missed, what goes to `parked` invalid."""

    def __init__(self, started_at_ms: int, parked: str) -> None:
        super().__init__()
        self._started_at_ms, self._parked = started_at_ms, parked
        events = prometheus.counter(self.registry, "kafka_scheduler_event_total")
        self._events = {kind: events.labels(f"kafka_scheduler_{kind}") for kind in _TYPES}

    def tell_taken(self, decided: Mapping[tuple[str, str], int], families: Mapping[str, int]) -> None:
        super().tell_taken(decided, families)
        for (team, decision), messages in decided.items():
            if team == TEAM:
                self._events[_TAKEN[decision]].inc(messages)

    def tell_sent(self, sent: list[Entry], due_at_ms: list[int], now_ms: int) -> None:
        super().tell_sent(sent, due_at_ms, now_ms)
        due = [due for entry, due in zip(sent, due_at_ms, strict=True) if entry.destination != self._parked]
        missed = sum(at_ms < self._started_at_ms for at_ms in due)
        self._events["missed_schedule"].inc(missed)
        self._events["triggered_schedule"].inc(len(due) - missed)


log = logging.getLogger(__name__)

# A restart at midnight must not lose what was due a moment before it.
_AT_MIDNIGHT_S = 3_600
# Of so many targets it is remembered whether they are allowed.
_TARGETS_KNOWN = 10_000
_SCHEDULES_CONFIG = {"cleanup.policy": "compact", "retention.ms": "-1"}


def build(settings: SchedulerSettings, *, adopt: bool = False) -> Engine:
    """Build the engine of a scheduler; topics that are missing are created. Raises as `retry.worker.composition.build`."""
    worker = remove_policies(settings)
    names, now_ms = topics.build_topic_names(worker.app_id), clock.wall_ms()
    own = {*topics.list_internal_topics(worker.app_id), names.parked}
    if settings.history in own or any(is_schedules_topic(settings, topic) for topic in own):
        raise SettingsInvalid("SCHEDULES_TOPICS", f"neither these nor HISTORY_TOPIC can be the service's own {sorted(own)}")
    if not settings.allowed:
        log.warning("schedules may go to every topic; SCHEDULER_ALLOWED_TARGETS lists those that are allowed")
    admin = client_config.connect_admin(worker)
    create(admin, settings)
    rules = build_rules(settings, now_ms)

    def make_sources(_registry: Registry, place: QueueLimits) -> Sequence[EntrySource]:
        return [SchedulesSource(settings.topics, rules, settings.history, names.parked, place), TimersSource()]

    member = client_config.build_consumer_config(worker, names.intake_group, "")
    backlog = StartupBacklog(admin, lambda topic: is_schedules_topic(settings, topic), member, names.changelog)
    metrics = SchedulerMetrics(now_ms, names.parked)
    return composition.build(worker, adopt=adopt, make_sources=make_sources, metrics=metrics, backlog=backlog)


def remove_policies(settings: SchedulerSettings) -> Settings:
    """Return the settings of the scheduler's worker without policies: whoever wants retries, too, runs a worker beside it."""
    return msgspec.structs.replace(settings.worker, policies=None)


def build_rules(settings: SchedulerSettings, now_ms: int) -> Rules:
    """Return the rules by which a scheduler that starts now accepts schedules."""
    permitted = lru_cache(_TARGETS_KNOWN)(partial(is_target_allowed, settings))
    since = find_start_s(now_ms // 1_000, settings.since_delta)
    return Rules(permitted, settings.grace_s, since, frozenset(topics.list_internal_topics(settings.worker.app_id)))


def is_schedules_topic(settings: SchedulerSettings, topic: str) -> bool:
    return topics.matches(topic, settings.topics)


def is_target_allowed(settings: SchedulerSettings, topic: str) -> bool:
    """Whether schedules may go to a topic. What went to a schedules topic would be no schedule there, or replace one."""
    return not is_schedules_topic(settings, topic) and (not settings.allowed or topics.matches(topic, settings.allowed))


def find_start_s(now_s: int, delta_days: int) -> int:
    """Compute the beginning of the day, by this machine's time zone, of which missed schedules are still sent."""
    first = datetime.datetime.fromtimestamp(now_s - _AT_MIDNIGHT_S).astimezone().date() + datetime.timedelta(days=delta_days)
    return int(datetime.datetime.combine(first, datetime.time()).astimezone().timestamp())


def create(admin: AdminClient, settings: SchedulerSettings) -> None:
    """Create what is missing: the service's own topics, schedules topics that are named, the history; raises TopicsInvalid."""
    named = [topic for topic in settings.topics if not topic.startswith("^")]
    worker = settings.worker
    more: dict[str, dict[str, str]] = dict.fromkeys(named, _SCHEDULES_CONFIG) | {settings.history: {}}
    for topic in topics.create(admin, worker.app_id, worker.shards, more=more):
        log.warning("created %s", topic)
    for topic, about in topics.describe(admin, named).items():
        policy = about.config.get("cleanup.policy", "")
        if policy and "compact" not in policy:
            log.warning("%s is not compacted: it keeps what was sent and replaced as long as its retention says", topic)
        if "delete" in policy and about.config.get("retention.ms", "-1") != "-1":
            log.warning("%s has retention.ms: schedules that nobody takes in by then are lost; set it to -1", topic)
