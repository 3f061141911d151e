"""Configurations of the librdkafka clients: what the protocol demands, and what bounds memory and delay.

The operator's `RETRY_KAFKA_*` properties come after our preferences and before what exactly-once rests on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from retry.errors import BrokersRefused, BrokersUnreachable, SettingsInvalid
from retry.kafka import connection
from retry.kafka.asked_again import ask_until_answered
from retry.kafka.committed_offsets import IsolatedAdminClient
from retry.repeated_lines import RepeatedLineFilter
from retry.settings import Settings

log = logging.getLogger(__name__)
# A connection is lost, the transaction coordinator refuses a partition or a producer, a transaction can only be undone.
_OFTEN = re.compile(r"(FAIL|ADDPARTS|TXNERR|GETPID) (?:\[[^]]*\] )?(\[thrd:[^]]*\])?")


def _find_kind(record: logging.LogRecord) -> Hashable | None:
    """Kind and broker of a line that ten clients, say, log 20 times a second each; None of any other."""
    often = _OFTEN.match(record.getMessage())
    return often and often.groups()


log.addFilter(RepeatedLineFilter(_find_kind))

# The shortest that brokers accept by default. No transaction may outlive it: an open one holds back every
# read_committed reader of the partitions that it touched.
SESSION_TIMEOUT_MS = 6_000
MESSAGE_BYTES_MAX = 16 << 20
_REACH_S = 10.0

_FETCHING = {
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 8 << 10,
    "fetch.message.max.bytes": 2 << 20,
    "fetch.max.bytes": MESSAGE_BYTES_MAX,
    # An end of a partition is told with the answer to a fetch; waiting long for that would make every start slow.
    "fetch.wait.max.ms": 100,
    # A full queue would otherwise pause fetching for a second.
    "fetch.queue.backoff.ms": 5,
}

_COMPRESSION = ("compression.type", "compression.codec")

Config = dict[str, Any]
_Client = TypeVar("_Client")


def connect_admin(settings: Settings, within_s: float = _REACH_S) -> AdminClient:
    """Return a connected client for topics and configurations; raises BrokersRefused, BrokersUnreachable, SettingsInvalid."""
    config = {**_common(settings), **settings.kafka}
    client = _make_client(IsolatedAdminClient, config)
    try:
        ask_until_answered(lambda left_s: client.list_topics(timeout=left_s), within_s)
    except KafkaException as error:
        if refusal := connection.find_refusal(config):
            raise BrokersRefused(settings.bootstrap_servers, refusal) from error
        raise BrokersUnreachable(settings.bootstrap_servers, error.args[0].str()) from error
    return client


def try_newest(settings: Settings, see: Callable[[AdminClient], object], within_s: float = _REACH_S) -> None:
    """Make a client by what the files of certificates hold now. If brokers answer it and `see` raises nothing, all are made so.

    Raises BrokersUnreachable, with why the last connection failed, and SettingsInvalid as `make_consumer`.
    """
    errors = connection.ConnectionErrors()

    def note_answer(client: AdminClient) -> None:
        try:
            ask_until_answered(lambda left_s: client.list_topics(timeout=left_s), within_s)
        except KafkaException as error:
            client.poll(0)
            why = errors.find_newest() or error.args[0].str()
            raise BrokersUnreachable(settings.bootstrap_servers, why) from error
        see(client)

    config = connection.quiet_config({**_common(settings), **settings.kafka}, errors)
    _make_client(IsolatedAdminClient, config, partial(connection.try_client, see=note_answer))


def make_consumer(config: Config) -> Consumer:
    """Make a consumer without connecting; raises SettingsInvalid where a property is unknown, or cannot be used as it is."""
    return _make_client(Consumer, config)


def make_producer(config: Config) -> Producer:
    return _make_client(Producer, config)


def _make_client(
    client: Callable[[Config], _Client], config: Config,
    made: Callable[[Callable[[Config], _Client], Config], _Client] = connection.make_client,
) -> _Client:  # fmt: skip
    try:
        return made(client, config)
    except connection.REFUSALS as error:
        reason = (error.args[0].str() if isinstance(error, KafkaException) else str(error)).strip()
        named = max((name for name in config if name in reason), key=len, default="")
        if named.endswith(".location"):
            reason += f" (is {config[named]} a file that this user can read?)"
        variable = f"RETRY_KAFKA_{named.replace('.', '_').upper() or '*'}"
        raise SettingsInvalid(variable, f"{reason}; correct it or unset it, here or in the file of a scheduler") from None


def build_consumer_config(settings: Settings, group_id: str, instance_id: str) -> Config:
    """Build the configuration of a consumer in `group_id`: committed records, large batches, partitions shared cooperatively."""
    preferred = {
        **_FETCHING,
        # One queue holds what is read ahead of all partitions. What waits in it stands before the letters of every other
        # team, so it is kept short; each answer of a broker brings something of every partition.
        "queued.max.messages.kbytes": 2 << 10,
        "fetch.message.max.bytes": 512 << 10,
        # A broker answers when so much has come, or after a tenth of a second: not for each letter.
        "fetch.min.bytes": 16 << 10,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 1_000,
        # How soon a new topic that matches a pattern, and a new partition, is found.
        "topic.metadata.refresh.interval.ms": 5_000,
        "partition.assignment.strategy": "cooperative-sticky",
    }
    demanded = {
        "group.id": group_id,
        # Stable per data directory: a worker that comes back in time gets its partitions back without a rebalance.
        "group.instance.id": instance_id,
        "session.timeout.ms": settings.session_timeout_ms,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # How far reading has come in a partition of which nothing can be read, of undone transactions say.
        "enable.partition.eof": True,
    }
    return {**_common(settings), **preferred, **settings.kafka, **settings.kafka_consumer, **demanded}


def build_reader_config(settings: Settings, isolation_level: str = "read_committed", preferred: Config | None = None) -> Config:
    """Build the configuration of a reader in no group. Settings overrule `preferred`.

    The reader assigns itself partitions and commits nothing.
    """
    demanded = {
        "group.id": f"{settings.app_id}-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Whoever began at the end where an offset is gone would miss entries.
        "auto.offset.reset": "earliest",
        "isolation.level": isolation_level,
        "enable.partition.eof": True,
    }
    return {**_common(settings), **_FETCHING, **(preferred or {}), **settings.kafka, **settings.kafka_consumer, **demanded}


def build_producer_config(settings: Settings, transactional_id: str, compression: str = "none") -> Config:
    """Build the configuration of a transactional producer, which partitions keys as Java clients do unless settings differ.

    `compression` is none where teams read any of what it writes, since stock KafkaJS and aiokafka cannot read lz4.
    """
    preferred = {
        "compression.type": compression,
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 64 << 10,
        # The default of 100 ms is what a transaction with offsets would wait each time.
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 500,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        # A topic that is gone must fail its records well before a commit gives up.
        "topic.metadata.propagation.max.ms": 3_000,
        # Of the changelog no key decides the partition.
        "partitioner": "murmur2_random",
    }
    demanded = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": SESSION_TIMEOUT_MS,
        "enable.idempotence": True,
        "acks": "all",
    }
    return {**_common(settings), **preferred, **settings.kafka, **settings.kafka_producer, **demanded}


def add_gzip(config: Config) -> Config:
    """Change the configuration of a producer so that it compresses with what every client reads."""
    named = {name: value for name, value in config.items() if name not in _COMPRESSION}
    return {**named, "compression.type": "gzip"}


def compresses(config: Config) -> bool:
    """Whether a producer with this configuration compresses, so that the size of a record says nothing of what is sent."""
    return any(config.get(name, "none") != "none" for name in _COMPRESSION)


def build_records_config(settings: Settings, batch_bytes_max: int = 1_000_000) -> Config:
    """Build the configuration of a producer whose single records arrive soon and once, or are refused within ten seconds.

    Brokers refuse a batch of more than their topic's `batch_bytes_max` whole, while each record is to have its own answer.
    """
    preferred = {
        "compression.type": "lz4",
        # What is asked for within 5 ms shares a request: at 2,000 records/s that costs brokers less than half of what 2 ms cost.
        "linger.ms": 5,
        "batch.size": max(1, min(batch_bytes_max, 1_000_000)),
        "delivery.timeout.ms": 10_000,
        "message.max.bytes": MESSAGE_BYTES_MAX,
    }
    demanded = {"enable.idempotence": True, "acks": "all"}
    return {**_common(settings), **preferred, **settings.kafka, **demanded}


def build_asking_config(settings: Settings) -> Config:
    """Build the configuration of a producer of single records, each sent at once or not at all.

    Such records are sent for the answers that brokers give to them.
    """
    demanded = {"acks": "all", "linger.ms": 0, "message.timeout.ms": 3_000}
    return {**_common(settings), **settings.kafka, **settings.kafka_producer, **demanded}


def _common(settings: Settings) -> Config:
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": settings.app_id,
        # Where no broker answers, a client begins anew with those it was given, each time with a thread of its own and this wait:
        # 20 such threads/s for each client, and 80 with 20 ms here, which would make connecting 40 ms sooner.
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 1_000,
        "logger": log,
    }
