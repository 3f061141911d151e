"""The composition root: settings → stages → engine."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
from pathlib import Path

from retry.engine import Engine
from retry.errors import DataDirInUse, SettingsInvalid
from retry.gate import Gate
from retry.intake import Intake
from retry.kafka import clients, topics
from retry.kafka.orphans import Orphans
from retry.kafka.targets import Targets
from retry.letters import Letters
from retry.policies.file import load
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.shard import Surroundings
from retry.shards import Shards
from retry.table.rocks import Memory
from retry.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


def build(settings: Settings) -> Engine:
    """The engine of one worker, its topics checked, its data directory locked, its clients connected.

    Raises:
      SettingsInvalid, PolicyFileInvalid: correct what the message names.
      TopicsInvalid: a topic is missing or could lose letters; the message has the command that mends it.
      DataDirInUse: another worker holds the data directory.
    """
    registry, names = _registry(settings), topics.names(settings.app_id)
    claim(settings.data_dir)
    name = instance(settings)
    admin = clients.admin(settings)
    own = topics.check(admin, settings.app_id)
    known = own | topics.describe(admin, registry.targets())
    changelog = own[names.changelog]
    intake = Intake(
        registry,
        changelog=names.changelog,
        shards=changelog.partitions,
        outcomes=names.outcomes,
        parked=names.parked,
        bytes_max={topic: topics.record_bytes_max(about) for topic, about in known.items()},
    )
    letter_reader = clients.consumer_config(settings, names.intake_group, name)
    letters = Letters(
        letter_reader,
        clients.producer_config(settings, f"{settings.app_id}-intake-{name}"),
        registry.subscription(),
        Orphans(admin, letter_reader, registry.subscription()),
        intake,
        settings.batch_records,
        settings.batch_bytes,
    )
    memory, cluster_id = Memory(settings.table_cache_bytes), topics.cluster_id(admin)
    gate = Gate(registry, names.parked, Targets(admin).closed, lambda: shards.owned() / changelog.partitions)
    around = Surroundings(settings, admin, memory, gate, cluster_id, changelog.topic_id)
    member = clients.consumer_config(settings, names.table_group, name)
    orphans = Orphans(admin, member, [names.changelog])
    shards = Shards(member, clients.reader_config(settings), names.changelog, orphans, around)
    return Engine(letters, shards, Metrics())


def _registry(settings: Settings) -> Registry:
    if settings.policies is None:
        raise SettingsInvalid("RETRY_POLICIES", "not set; give the path of the policy file")
    registry = load(settings.policies)
    own = [topic for topic in topics.names(settings.app_id)[:3] if registry.reads(topic)]
    if own:
        raise SettingsInvalid(
            "RETRY_POLICIES", f"the file reads letters from the service's own topics {', '.join(own)}"
        )
    internal = registry.targets() & set(topics.names(settings.app_id)[:2])
    if internal:
        raise SettingsInvalid("RETRY_POLICIES", f"the file sends letters to the service's own {', '.join(internal)}")
    return registry


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
