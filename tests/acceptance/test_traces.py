"""Spans of a worker and an API reach a collector by OTLP: of a letter that comes in and goes out, a call, and a request."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from tests.conftest import Deploy
from tests.support.hosts import Host
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.timers import Api

pytestmark = pytest.mark.check

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """Takes what is sent to `/v1/traces`, as a collector does."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        received = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        received.update({span.name: span for span in scope.spans})
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Take spans for as long as this lasts."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span by name."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_a_collector_gets_spans_of_intake_delivery_calls_and_requests(deploy: Deploy) -> None:
    collector = Collector()
    environ = {
        "RETRY_TRACES": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200",
        "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8",
    }  # fmt: skip
    with collector.serve(), Host() as host:
        deployment = deploy({"orders": 1}, shards=1, environ=environ, defaults="{backoff: {kind: constant, delay: 1s}}")
        worker, api = deployment.worker().start().await_ready(), Api(deployment).start()
        (letters,) = deployment.dead_letters
        sender = Sender(deployment.bootstrap_servers)
        sender.send(letters, b"key", b"", [("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode())])
        sender.finish()
        api.make(f"{host.url}/", after="0s")
        target = deployment.retry_of(letters)
        wanted = {f"process {letters}", f"send {target}", "POST", "POST /timers"}
        await_that("all spans came", lambda: wanted <= collector.spans.keys())
        worker.terminate()
    names = f"process {letters}", f"send {target}", "POST", "POST /timers"
    taken, sent, called, asked = (collector.spans[name] for name in names)
    assert taken.trace_id == sent.trace_id
    assert [link.trace_id.hex() for link in sent.links] == [TRACE]
    about = attributes(taken)
    assert (about["messaging.operation.name"], about["messaging.destination.name"]) == ("process", letters)
    assert about["messaging.consumer.group.name"] == deployment.names.intake_group
    assert attributes(sent)["messaging.operation.name"] == "send"
    assert attributes(called)["server.address"] == "127.0.0.1"
    assert attributes(asked)["http.response.status_code"] == 201
