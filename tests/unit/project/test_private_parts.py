"""Libraries are the service's to use, and some of their private parts, too: each test is named after what breaks without one.

A newer version of such a library is taken by lifting its bound in `pyproject.toml` and running these tests.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import tomllib
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import aiokafka.cluster
import faust
import pytest
import uvicorn
from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import set_exception
from aiohttp.streams import StreamReader
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import Consumer, Producer, TopicPartition
from faust.app.base import BootStrategy
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from starlette.requests import Request
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from retry.delay_queue.envelopes import HEADERS_MAX
from retry.http_client.connection_pool import BoundedAnswers
from retry.http_server.connections import Connection, Connections, Handshake
from retry.kafka.record_writers import _ListTransactions, _ListTransactionsV0, _Transactions
from retry.kafka.refused_headers import RefusedHeaders, UnreadableHeaders
from retry.worker.faust_app import _App, _Boot, _Worker

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUNDED = ("aiohttp", "aiokafka", "confluent-kafka", "faust-streaming", "mode-streaming", "pyspark", "starlette", "uvicorn")


def parameters(function: Callable[..., Any]) -> list[str]:
    """Names of what a function takes."""
    return list(inspect.signature(function).parameters)


def overrides(own: type, library: type) -> set[str]:
    """Names of what a class has in place of the library's; special methods, and what metaclasses add, left out."""
    return {name for name in vars(own) if hasattr(library, name) and not name.startswith("__")} - {"_abc_impl", "logger"}


def find_declared_versions(name: str) -> SpecifierSet:
    """The versions of a library that are taken."""
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    [found] = [wanted.specifier for line in lines if (wanted := Requirement(line)).name == name]
    return found


@pytest.mark.parametrize("name", BOUNDED)
def test_a_version_that_nobody_tried_is_not_installed(name: str) -> None:
    found = find_declared_versions(name)
    assert version(name) in found
    major, minor, *_ = (int(part) for part in re.findall(r"\d+", version(name)))
    assert f"{major + 1}.0" not in found
    # Versions of these say by their first number alone what may have changed; Kafka's source for Spark looks at the rest.
    assert name in ("pyspark", "starlette") or f"{major}.{minor + 1}" not in found


def test_a_python_whose_tls_nobody_tried_is_refused() -> None:
    assert [f"3.{minor}" in SpecifierSet(PROJECT["requires-python"]) for minor in (10, 11, 14, 15)] == [False, True, True, False]


@pytest.fixture
def connection() -> Iterator[Connection]:
    loop = asyncio.new_event_loop()
    yield Connection(uvicorn.Config(lambda: None, log_config=None, http=Connection), Connections(1), {}, _loop=loop)
    loop.close()


def test_uvicorn_calls_what_bounds_the_head_and_the_waiting_of_a_connection(connection: Connection) -> None:
    assert overrides(Connection, HttpToolsProtocol) == {
        "connection_made", "data_received", "on_header", "on_headers_complete", "on_message_complete", "on_response_complete",
        "send_400_response", "shutdown",
    }  # fmt: skip
    for name in overrides(Connection, HttpToolsProtocol):
        assert parameters(getattr(Connection, name)) == parameters(getattr(HttpToolsProtocol, name)), name
    assert {"config", "connections", "cycle", "flow", "loop", "server_state", "transport"} <= vars(connection).keys()
    of_cycle, of_flow = (inspect.getsource(each.__init__) for each in (RequestResponseCycle, FlowControl))
    assert all(f"self.{name} =" in of_cycle for name in ("response_complete", "more_body"))
    assert "self.write_paused =" in of_flow


def test_uvicorn_has_the_state_in_which_connections_are_counted_and_the_date_is_told() -> None:
    assert {"connections", "default_headers"} <= vars(Connections(1)).keys()
    assert parameters(uvicorn.Server.main_loop) == ["self"]
    assert parameters(uvicorn.Server.serve) == ["self", "sockets"]
    assert "config.http_protocol_class(" in inspect.getsource(uvicorn.Server.startup)


def test_the_buffer_of_a_tls_connection_is_small_and_its_end_is_bounded() -> None:
    assert overrides(Handshake, SSLProtocol) == {"max_size", "connection_made", "connection_lost"}
    assert SSLProtocol.max_size > Handshake.max_size
    assert parameters(SSLProtocol.__init__)[:5] == ["self", "loop", "app_protocol", "sslcontext", "waiter"]
    assert {"server_side", "ssl_shutdown_timeout"} <= set(parameters(SSLProtocol.__init__))
    assert "bytearray(self.max_size)" in inspect.getsource(SSLProtocol.__init__)


def test_aiohttp_hands_on_what_bounds_the_answer_of_a_host() -> None:
    async def make() -> BoundedAnswers:
        connector = TCPConnector()
        connector._factory = partial(BoundedAnswers, asyncio.get_running_loop())  # type: ignore[assignment]
        return cast(BoundedAnswers, connector._factory())

    assert overrides(BoundedAnswers, ResponseHandler) == {"connection_made", "data_received", "set_response_params"}
    protocol = asyncio.run(make())
    assert (protocol.transport, protocol._payload, len(protocol._buffer)) == (None, None, 0)
    assert (protocol.is_connected(), protocol.should_close) == (False, False)
    assert "self._factory" in inspect.getsource(TCPConnector._create_direct_connection)
    assert "total_bytes" in StreamReader.__slots__
    assert parameters(set_exception)[:2] == ["fut", "exc"]
    assert all(parameters(getattr(ResponseHandler, name)) == ["self"] for name in ("abort", "is_connected"))


def test_faust_starts_without_kafka_and_is_ended_by_our_shutdown() -> None:
    assert overrides(_Boot, BootStrategy) == {"enable_kafka", "enable_web"}
    assert overrides(_App, faust.App) == {"BootStrategy", "_wait_for_table_recovery_completed", "on_started"}
    assert overrides(_Worker, faust.Worker) == {"on_first_start", "_schedule_shutdown", "execute_from_commandline"}
    for own, library in ((_App, faust.App), (_Worker, faust.Worker)):
        for name in overrides(own, library) - {"BootStrategy"}:
            assert parameters(getattr(own, name)) == parameters(getattr(library, name)), name
    assert "await self._wait_for_table_recovery_completed()" in inspect.getsource(faust.App)
    assert {"_signal_stop_time", "_starting_fut", "on_worker_shutdown", "stop_and_shutdown"} <= set(dir(faust.Worker))
    assert "self._schedule_shutdown(signal.SIGTERM)" in inspect.getsource(faust.Worker.__mro__[1])


def test_the_transaction_that_wrote_a_record_is_asked_for_through_aiokafka() -> None:
    assert parameters(FetchRequest)[:5] == ["max_wait_time", "min_bytes", "max_bytes", "isolation_level", "topics"]
    assert parameters(AIOKafkaClient.send)[:3] == ["self", "node_id", "request"]
    assert {"bootstrap", "set_topics", "close"} <= set(dir(AIOKafkaClient))
    assert {"leader_for_partition", "brokers"} <= set(dir(aiokafka.cluster.ClusterMetadata))
    assert {"has_next", "next_batch"} <= set(dir(MemoryRecords))
    request = _ListTransactions(7).build(_ListTransactionsV0)
    assert request.encode() == b"\x01\x02" + (7).to_bytes(8, "big") + b"\x00"
    answer = _Transactions.SCHEMA.encode((0, 0, [], [("id", 7, "Ongoing", {})], {}))
    assert answer.endswith(b"\x02\x03id" + (7).to_bytes(8, "big") + b"\x08Ongoing\x00\x00")


def test_a_form_is_read_from_the_body_that_was_bounded() -> None:
    async def receive() -> Any:
        raise AssertionError("the body was read once more")

    headers = [(b"content-type", b"application/x-www-form-urlencoded")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    request._body = b"a=1"

    async def read() -> Any:
        return await request.form()

    assert asyncio.run(read())["a"] == "1"


def test_records_whose_headers_librdkafka_refuses_are_told_from_those_without() -> None:
    # The library has brokers of its own for tests; nothing of ours is in their way.
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 3, "message.max.bytes": 10 << 20})
    [broker] = producer.list_topics(timeout=10).brokers.values()
    config = {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "readers", "log_level": 3}
    for headers in (1, 0, HEADERS_MAX + 1, HEADERS_MAX):
        producer.produce("letters", b"%d" % headers, b"key", 0, headers=[("a", b"b")] * headers)
    assert producer.flush(10) == 0
    consumer, found = Consumer(config), list[Any]()
    consumer.assign([TopicPartition("letters", 0, 0)])
    while len(found) < 4:
        found += [message for message in consumer.consume(4, 10) if not message.error()]
    consumer.close()
    assert [message.headers() and len(message.headers()) for message in found] == [1, None, None, HEADERS_MAX]
    looked_at = RefusedHeaders(config)
    looked_at.replace_unreadable(found)
    looked_at.close()
    assert [isinstance(message, UnreadableHeaders) for message in found] == [False, False, True, False]
