"""The doors of `retry worker`, beside that of dead letters: recurring tasks, where the policy file has them."""

from __future__ import annotations

from collections.abc import Sequence

from retry.intake.entry_source import Door, Opened, Place
from retry.scheduling.tasks.entry_source import TasksDoor
from retry.errors import SettingsInvalid
from retry.kafka.schema_registry import Schemas
from retry.kafka.topics import names
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.scheduling.tasks.formats import CONFLUENT, Reader, Schema


def opened(settings: Settings) -> Opened:
    """What makes the doors anew under each policy file; schemas are kept.

    Raises:
      SettingsInvalid: the registry's client cannot be used as it is; or, when the doors are made, there is none.
    """
    schemas = Schemas(settings.registry)
    reader = Reader(lambda number: Schema(*schemas(number)))

    def doors(registry: Registry, place: Place) -> Sequence[Door]:
        if registry.tasks is None:
            return ()
        if registry.tasks.format == CONFLUENT and not settings.registry:
            raise SettingsInvalid("RETRY_REGISTRY_URL", "not set, but tasks.format of the policy file is confluent")
        return [TasksDoor(registry.tasks, reader, names(settings.app_id).parked, place)]

    return doors
