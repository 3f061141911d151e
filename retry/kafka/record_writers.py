"""Which transaction a record was written in: brokers keep that with each batch, and clients of librdkafka do not tell it.

The batch is fetched as it lies on the broker, through the classes for requests of aiokafka, and the coordinators of transactions
are asked whose producer it was. The formats are those of https://kafka.apache.org/protocol: Fetch (key 1) with record batches of
version 2, and ListTransactions (key 66).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from retry.kafka.connection import build_trust

log = logging.getLogger(__name__)
# What fails is said once, in words of ours.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)

_WAIT_MS, _BYTES_MAX, _ASK_S, _READ_COMMITTED = 1_000, 1 << 20, 20.0, 1
_FOUND_MAX, _FETCHES_MAX = 100, 10
# What a strange broker, a connection that breaks, or a login of a kind that aiokafka does not know come to.
_FAULTS = (KafkaError, OSError, ValueError, TypeError, KeyError, NotImplementedError, TimeoutError)

Config = Mapping[str, Any]
_TEXT = CompactString("utf-8")


class Writer(NamedTuple):
    """Who wrote a record; `leader` is the node that was asked.

    Attributes:
      transactional_id: empty where brokers no longer know it, or do not tell this user.
      producer_id, epoch: what brokers call the producer; both are -1 where it had neither transactions nor idempotence.
      batch_offset: of the first record that was written with it.
      was_undone: whether brokers have marked its transaction as undone: no reader of committed records should be given it.
      is_listed: whether the partition's leader tells such readers so, who go by that list and not by the mark.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    batch_offset: int
    was_undone: bool = False
    is_listed: bool = False
    leader: int = -1

    def __str__(self) -> str:
        if self.producer_id < 0:
            return f"a producer without transactions, batch at {self.batch_offset}"
        name = self.transactional_id or "a producer without a known name"
        told = f"{name}, producer {self.producer_id}, epoch {self.epoch}, batch at {self.batch_offset}"
        if not self.was_undone:
            return told
        says = "says so to readers" if self.is_listed else "does not say so to readers"
        return f"{told}, which was undone, and its leader, node {self.leader}, {says}"


class RecordWriters:
    """Finds who wrote records, one by one, and finds no more than a hundred. `config` is of a client of librdkafka."""

    def __init__(self, config: Config) -> None:
        self._config, self._left, self._has_warned = config, _FOUND_MAX, False

    def find(self, topic: str, partition: int, offset: int) -> Writer | None:
        """Find who wrote one record; None where it is not there any more, or brokers cannot be asked in this way."""
        if not self._left:
            return None
        self._left -= 1
        try:
            return asyncio.run(asyncio.wait_for(self._find(TopicPartition(topic, partition), offset), _ASK_S))
        except _FAULTS as error:
            if not self._has_warned:
                why = str(error) or type(error).__name__
                log.warning("which transaction wrote %s/%d/%d is not known: %s", topic, partition, offset, why)
            self._has_warned = True
            if isinstance(error, TimeoutError):
                # Whoever hangs once would do so for each record.
                self._left = 0
            return None

    async def _find(self, partition: TopicPartition, offset: int) -> Writer | None:
        client = AIOKafkaClient(**_translate(self._config))
        try:
            await client.bootstrap()
            await client.set_topics([partition.topic])
            leader = client.cluster.leader_for_partition(partition)

            async def fetch_partition(offset: int) -> tuple[Any, ...]:
                wanted = [(partition.topic, [(partition.partition, offset, _BYTES_MAX)])]
                request = FetchRequest(_WAIT_MS, 1, _BYTES_MAX, _READ_COMMITTED, wanted)
                answer: tuple[Any, ...] = (await client.send(leader, request)).topics[0][1][0]
                return answer

            about = await fetch_partition(offset)
            batch = _find_batch(about[-1], offset)
            if batch is None:
                return None
            name = await _find_name(client, batch.producer_id) if batch.producer_id >= 0 else ""
            writer = Writer(name, batch.producer_id, batch.producer_epoch, batch.base_offset)
            if batch.is_transactional and await _is_undone(fetch_partition, batch):
                return writer._replace(was_undone=True, is_listed=_is_listed(about, batch), leader=leader)
            return writer
        finally:
            await client.close()


def _translate(config: Config) -> dict[str, Any]:
    protocol = str(config.get("security.protocol", "plaintext")).upper()
    login = {
        "sasl_mechanism": config.get("sasl.mechanism", config.get("sasl.mechanisms", "PLAIN")),
        "sasl_plain_username": config.get("sasl.username"),
        "sasl_plain_password": config.get("sasl.password"),
    }
    return {
        "bootstrap_servers": config["bootstrap.servers"],
        "security_protocol": protocol,
        "ssl_context": _make_tls(config) if protocol.endswith("SSL") else None,
        **(login if protocol.startswith("SASL") else {}),
    }


def _make_tls(config: Config) -> ssl.SSLContext:
    context = build_trust(dict(config))
    if certificate := config.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, config.get("ssl.key.location"), config.get("ssl.key.password"))
    return context


def _find_batch(content: bytes, offset: int) -> Any:
    return next((batch for batch in _list_batches(content) if batch.base_offset <= offset < batch.next_offset), None)


async def _is_undone(fetch_partition: Callable[[int], Awaitable[tuple[Any, ...]]], batch: Any) -> bool:
    """Whether the next mark of a batch's producer undoes what came before it; False where it is not in the next ten fetches."""
    # The mark may lie in the next file of the log, where no fetch goes that begins in this one.
    offset = batch.next_offset
    for _ in range(_FETCHES_MAX):
        batches = list(_list_batches((await fetch_partition(offset))[-1]))
        if mark := next((each for each in batches if each.is_control_batch and each.producer_id == batch.producer_id), None):
            return bool(ControlRecord.parse(next(iter(mark)).key) == ABORT_MARKER)
        if not batches:
            break
        offset = batches[-1].next_offset
    return False


def _is_listed(about: tuple[Any, ...], batch: Any) -> bool:
    """Whether a leader lists the transaction of a batch among those of a partition that were undone."""
    listed = next((part for part in about if isinstance(part, list)), None) or []
    return any(producer_id == batch.producer_id and first <= batch.base_offset for producer_id, first in listed)


def _list_batches(content: bytes) -> Iterator[Any]:
    batches = MemoryRecords(content)
    while batches.has_next():
        if (batch := batches.next_batch()) is not None:
            yield batch


_STATE = ("transactional_id", _TEXT), ("producer_id", Int64), ("transaction_state", _TEXT), ("tags", TaggedFields)


class _Transactions(Response):
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16), ("unknown_state_filters", CompactArray(_TEXT)),
        ("transaction_states", CompactArray(*_STATE)), ("tags", TaggedFields),
    )  # fmt: skip


class _ListTransactionsV0(RequestStruct):
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Transactions
    SCHEMA = Schema(("state_filters", CompactArray(_TEXT)), ("producer_id_filters", CompactArray(Int64)), ("tags", TaggedFields))


class _ListTransactions(Request[_ListTransactionsV0]):
    API_KEY = 66

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id

    def build(self, request_struct_class: type[_ListTransactionsV0]) -> _ListTransactionsV0:
        return request_struct_class([], [self._producer_id], {})


async def _find_name(client: AIOKafkaClient, producer_id: int) -> str:
    """Find the transactional id of a producer: each broker tells those that it coordinates and that this user may see."""
    for broker in client.cluster.brokers():
        answer = await client.send(broker.nodeId, _ListTransactions(producer_id))
        if answer.transaction_states:
            return str(answer.transaction_states[0][0])
    return ""
