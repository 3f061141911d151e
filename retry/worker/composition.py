"""The composition root: settings → stages → engine."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import logging
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from retry import clock
from retry.intake import entry_source
from retry.delivery.redecide import Judge
from retry.delivery.webhooks.in_flight import Calls, Limits
from retry.intake.entry_source import Door
from retry.scheduling.timers.entry_source import Timers
from retry.worker.engine import Engine, Traced
from retry.errors import DataDirInUse, SettingsInvalid
from retry.delivery.admission import Gate
from retry.intake.intake import Intake
from retry.kafka import client_config, topics
from retry.kafka.startup_backlog import Backlog
from retry.kafka.broker_clock import BrokerClock
from retry.kafka.cluster import Brokers
from retry.kafka.consumer_groups import Committed
from retry.kafka.topic_ids import Changelog, refuse_if_emptied
from retry.kafka.record_fetch import Pointers
from retry.kafka.record_producer import Records
from retry.kafka.target_probe import Targets
from retry.intake.consumer import Letters
from retry.intake.attempts import Lineages
from retry.worker.shards.restore import Surroundings
from retry.worker.backlog_gauges import Outlook
from retry.intake.build_entry import Packer
from retry.policies.registry import Registry
from retry.worker.consumer_lag_samples import Positions, place_of
from retry.intake.attempts.lineage_follower import Recent
from retry.worker.policy_reload import PolicyFile
from retry.worker.periodic import Round, Rounds
from retry.settings import Settings
from retry.worker.shards.assignment import Shards
from retry.delivery.webhooks.http_client import Client
from retry.delivery.webhooks.ssrf_guard import Guard, listed
from retry.delivery.webhooks.signing_secrets import Secrets
from retry.worker.clock_skew import Skew
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import RocksTables
from retry.telemetry.metrics import Metrics
from retry.intake.attempts.attempt_counter import Tracer

log = logging.getLogger(__name__)

_OPENERS = 8
_AHEAD_EVERY_S, _BACK_EVERY_S = 10.0, 60.0


def build(
    settings: Settings, *, adopt: bool = False, opened: entry_source.Opened = entry_source.none, metrics: Metrics | None = None,
    backlog: Backlog | None = None,
) -> Engine:
    """The engine of one worker, its topics checked, its data directory locked, its clients connected.

    Args:
      adopt: whether to begin with a changelog that is not the one that was there before.
      opened: the doors by which something comes in besides dead letters, under a policy file.
      metrics: where the engine counts.
      backlog: what is to be taken in before anything is sent.

    Raises:
      ChangelogReplaced: it is not, and that was not asked for.
      SettingsInvalid, PolicyFileInvalid: correct what the message names.
      TopicsInvalid: a topic is missing or could lose letters; the message has the command that mends it.
      DataDirInUse: another worker holds the data directory.
    """
    if settings.policies is None and opened is entry_source.none:
        raise SettingsInvalid("RETRY_POLICIES", "not set; give the path of the policy file")
    opened = partial(_and_timers, opened)
    policies, names = PolicyFile(settings, _check), topics.names(settings.app_id)
    claim(settings.data_dir)
    name, admin = instance(settings), client_config.admin(settings)
    own, cluster_id = topics.check(admin, settings.app_id), topics.cluster_id(admin)
    partitions = {topic: about.partitions for topic, about in own.items()}
    changelog = own[names.changelog]
    stale_ms = topics.table_age_ms_max(changelog)
    same = Changelog(admin, names.changelog, changelog.topic_id)
    brokers = Brokers(settings, admin, name, same)
    tables = RocksTables(
        settings.data_dir / "tables",
        names.changelog,
        cluster_id,
        changelog.topic_id,
        Memory(settings.table_cache_bytes),
        stale_ms,
        adopt=adopt,
    )
    place = entry_source.Place(changelog.partitions, topics.record_bytes_max(changelog))
    through = opened(policies.registry, place)
    if not adopt:
        reads = partial(_reads, policies.registry, through)
        member = client_config.consumer_config(settings, names.intake_group, name)
        refuse_if_emptied(admin, names.changelog, changelog.partitions, member, reads)
        tables.refuse_foreign(clock.wall_ms())
    recent = Recent(brokers, names.lineage, partitions[names.lineage], Lineages(settings.lineages))
    pointers = Pointers(client_config.reader_config(settings))

    def packer(registry: Registry) -> Packer:
        return Packer(names.changelog, names.parked, topics.limits(admin, own, registry.targets()))

    def intake(registry: Registry, packer: Packer, through: Sequence[Door]) -> Intake:
        tracer = Tracer(recent.lineages, cluster_id, registry.retry_targets(), recent.catch_up_to_now)
        return Intake(registry, tracer, packer, pointers.fetch, names, partitions, through)

    packing = packer(policies.registry)
    letters = Letters(
        brokers,
        f"intake-{name}",
        names.intake_group,
        entry_source.subscription(policies.registry, through),
        intake(policies.registry, packing, through),
        settings.batch_records,
        settings.batch_bytes,
    )
    gate = Gate(
        policies.registry, names.parked, Targets(admin).closed, lambda: shards.owned() / changelog.partitions, through
    )
    judge = Judge(policies.registry, packing)
    metrics = metrics or Metrics()
    around = Surroundings(
        brokers, tables, gate, judge, settings.sweep_records or settings.batch_records, settings.batch_bytes, stale_ms,
        _calls(settings, names, metrics),
    )  # fmt: skip
    opening = ThreadPoolExecutor(_OPENERS, "open-shard").map
    standbys = range(changelog.partitions if settings.standby else 0)
    shards = Shards(names.table_group, names.changelog, around, opening, standbys)

    def use(registry: Registry) -> None:
        packing, through = packer(registry), opened(registry, place)
        letters.use(intake(registry, packing, through), entry_source.subscription(registry, through))
        gate.use(registry, through)
        shards.around = shards.around._replace(judge=Judge(registry, packing))

    skew = Skew(BrokerClock(client_config.asking_config(settings), names.changelog).now_ms)
    # Sweeps may be far apart, and none is missed before its time.
    stalled_s = settings.stalled_s + settings.sweep_interval_ms / 1_000
    looks = [same.look, *([backlog.look] if backlog else [])]
    outlook = Outlook(shards.shards, partial(topics.retention_ms, admin))
    sampling = _sampling(settings, shards, policies, metrics, partitions, Committed(admin))
    rounds = Rounds(_rounds(outlook, metrics) + sampling)
    return Engine(
        letters, shards, recent, policies, use, metrics, skew, looks, brokers.readable, stalled_s, backlog, rounds,
        _traced(settings),
    )  # fmt: skip


def _and_timers(opened: entry_source.Opened, registry: Registry, place: entry_source.Place) -> Sequence[Door]:
    return [*opened(registry, place), Timers()]


def _calls(settings: Settings, names: topics.Names, metrics: Metrics) -> Calls:
    client = Client(Guard(listed(settings.webhook_allow)), Secrets(settings.webhook_secrets).current)
    calls = Calls(
        client.call, Limits(settings.calls, settings.calls_per_host, settings.call_timeout_ms), names, metrics.tell_called
    )
    metrics.watch("retry_calls_under_way", calls.under_way)
    metrics.watch_each("retry_hosts_held", calls.breakers)
    return calls


def _traced(settings: Settings) -> Traced | None:
    """Tells of retries with OpenTelemetry, where that is asked for."""
    if not settings.traces:
        return None
    try:
        from retry.telemetry.tracing import Traces
    except ImportError as error:
        raise SettingsInvalid("RETRY_TRACES", f"{error}; install dead-letter-retry[otel], or set it to 0") from None
    traces = Traces(settings.app_id)
    atexit.register(traces.close)
    return traces.tell


def _rounds(outlook: Outlook, metrics: Metrics) -> list[Round]:
    metrics.watch_each("retry_entries_due_soon", outlook.due_soon)
    metrics.watch("retry_oldest_due_seconds", outlook.oldest_s)
    metrics.watch_each("retry_retention_left_seconds", outlook.retention_left_s)
    return [Round(_AHEAD_EVERY_S, outlook.look_ahead), Round(_BACK_EVERY_S, outlook.look_back)]


def _sampling(
    settings: Settings, shards: Shards, policies: PolicyFile, metrics: Metrics, partitions: dict[str, int], committed: Committed
) -> list[Round]:
    names, every_s = topics.names(settings.app_id), settings.positions_every_s

    def groups() -> dict[str, set[str]]:
        mine = {shard.changelog.partition for shard in shards.shards()}
        named = policies.registry.groups()
        return {group: read for group, read in named.items() if place_of(group, partitions[names.changelog]) in mine}

    # Where no group is named none is needed.
    writer = cache(lambda: Records(client_config.records_config(settings)))
    positions = Positions(groups, committed, writer, names.outcomes, partitions[names.outcomes], metrics.tell_positions)
    metrics.watch("retry_positions_lag_seconds", positions.lag_s)
    return [Round(every_s, positions.look)] if every_s else []


def _reads(registry: Registry, through: Sequence[Door], topic: str) -> bool:
    return registry.reads(topic) or any(door.reads(topic) for door in through)


def _check(settings: Settings, registry: Registry) -> None:
    """Refuse a policy file that reads from or sends to the service's own topics."""
    internal = topics.internal(settings.app_id)
    parked = topics.names(settings.app_id).parked
    if read := sorted(topic for topic in internal | {parked} if registry.reads(topic) or registry.defines(topic)):
        reason = f"the file reads letters from the service's own topics {', '.join(read)}"
        raise SettingsInvalid("RETRY_POLICIES", reason)
    if sent := sorted(registry.targets() & internal):
        raise SettingsInvalid("RETRY_POLICIES", f"the file sends letters to the service's own {', '.join(sent)}")


def claim(data_dir: Path) -> None:
    """Lock the data directory for this process.

    Raises:
      DataDirInUse: another process has it.
    """
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (data_dir / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        raise DataDirInUse(str(data_dir), file.read().strip() or "unknown") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _HELD.append(file)


def instance(settings: Settings) -> str:
    """The stable name of whoever runs on this data directory, even after the directory was lost."""
    place = f"{socket.gethostname()}:{settings.data_dir.absolute()}"
    return settings.instance or hashlib.sha256(place.encode()).hexdigest()[:16]


# Locks live as long as the process: a closed file would give its lock back.
_HELD: list[object] = []
