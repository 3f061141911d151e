"""What operators do to topics while the service runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from retry.kafka.asked_again import ask_until_answered
from retry.kafka.topics import describe
from tests.support.process import await_that

_ASK_S = 20.0


def delete(admin: AdminClient, topic: str) -> None:
    _until_done(lambda within_s: admin.delete_topics([topic], request_timeout=within_s), KafkaError.UNKNOWN_TOPIC_OR_PART)


def create(admin: AdminClient, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic, as soon as the name is free."""
    await_that(f"{topic} is there", lambda: has_created(admin, NewTopic(topic, partitions, 1, config=dict(config or {}))))


def create_all(admin: AdminClient, new: Iterable[NewTopic]) -> None:
    """Create topics, and return when they are known."""
    wanted = list(new)
    names = {each.topic for each in wanted}
    _until_done(lambda within_s: admin.create_topics(wanted, request_timeout=within_s), KafkaError.TOPIC_ALREADY_EXISTS)
    await_that("new topics are known", lambda: len(describe(admin, names)) == len(names))


def _until_done(ask: Callable[[float], Mapping[Any, Future[None]]], done_before: int | None = None) -> None:
    """Ask until it is done; a broker that was starved for seconds counts as away for a moment, and is asked again.

    Args:
      done_before: the error of what is done already, which is no error for whoever asks again: an answer may be lost.
    """
    asked = 0

    def once(within_s: float) -> None:
        nonlocal asked
        asked += 1
        for done in ask(within_s).values():
            try:
                done.result(within_s)
            except KafkaException as error:
                if asked == 1 or error.args[0].code() != done_before:
                    raise

    ask_until_answered(once, 3 * _ASK_S, (KafkaError.INVALID_REPLICATION_FACTOR,))


def has_created(admin: AdminClient, new: NewTopic) -> bool:
    try:
        create_all(admin, [new])
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def grow(admin: AdminClient, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    wanted = [NewPartitions(topic, partitions)]
    _until_done(lambda within_s: admin.create_partitions(wanted, request_timeout=within_s), KafkaError.INVALID_PARTITIONS)


def configure(admin: AdminClient, topic: str, **config: str) -> None:
    """Change settings of a topic; underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
    ]
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    _until_done(lambda within_s: admin.incremental_alter_configs([wanted], request_timeout=within_s))
