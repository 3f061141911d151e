"""Entry sources of `retry worker` beside dead letters: HTTP timers, and recurring tasks where the policy file has them."""

from __future__ import annotations

from collections.abc import Sequence

from retry.errors import SettingsInvalid
from retry.intake.entry_source import EntrySource, MakeSources, QueueLimits
from retry.kafka.schema_registry import Schemas
from retry.kafka.topics import build_topic_names
from retry.policies.registry import Registry
from retry.scheduling.tasks.entry_source import TasksSource
from retry.scheduling.tasks.formats import CONFLUENT, Reader
from retry.scheduling.timers.entry_source import TimersSource
from retry.settings import Settings


def entry_source_factory(settings: Settings) -> MakeSources:
    """Return the function that makes the entry sources anew under each policy file; schemas are kept.

    Raises:
      SettingsInvalid: the registry's client cannot be used as it is; or, when the entry sources are made, there is none.
    """
    reader = Reader(Schemas(settings.registry))

    def sources(registry: Registry, limits: QueueLimits) -> Sequence[EntrySource]:
        if registry.tasks is None:
            return [TimersSource()]
        if registry.tasks.format == CONFLUENT and not settings.registry:
            raise SettingsInvalid("RETRY_REGISTRY_URL", "not set, but tasks.format of the policy file is confluent")
        return [TasksSource(registry.tasks, reader, build_topic_names(settings.app_id).parked, limits), TimersSource()]

    return sources
