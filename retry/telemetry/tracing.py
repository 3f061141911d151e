"""Spans of OpenTelemetry, named by its conventions for messaging and for HTTP:

| span | from | until |
| --- | --- | --- |
| `process <dead-letter topic>` | a letter was taken in | the decision about it was committed |
| `send <topic>` | a retry was due | it was sent |
| `POST`, or another method | a timer's call began | it was answered, or failed |
| `POST /timers`, and other routes | a request to the API came | it was answered |

The first two of one lineage are one trace, whichever worker they are of: trace and span have ids that are made of `retry-id` and
the attempt. So each can name the sending before it, by a link. Another link leads to the trace that the letter's own
`traceparent` names. That header is somebody else's: it goes through as it came, and none is added. Calls and requests belong to
the trace that their `traceparent` names, and begin one where there is none.

Imported only where `RETRY_TRACES` asks for it; where spans go is told by the variables of OpenTelemetry, `OTEL_…`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from retry.dead_letters.retry_headers import ATTEMPT, ID, POLICY
from retry.delay_queue.envelopes import Entry
from retry.telemetry import outcomes
from retry.telemetry.recovery_ratio import is_retry
from retry.telemetry.spans import HttpExchange, make_span_ids

_NS_PER_MS = 1_000_000
_Told = dict[str, str | int]
_MESSAGING: _Told = {"messaging.system": "kafka"}
_parent = TraceContextTextMapPropagator()


class _Ids(IdGenerator):
    """The ids that this thread has asked for, and any where it has asked for none."""

    def __init__(self) -> None:
        self._next, self._any = threading.local(), RandomIdGenerator()

    def set_ids(self, ids: tuple[int, int] | None) -> None:
        """Set the ids of trace and span that this thread's next span gets; None lets the span draw any."""
        self._next.ids = ids

    def generate_trace_id(self) -> int:
        return self._next.ids[0] if self._next.ids else self._any.generate_trace_id()

    def generate_span_id(self) -> int:
        return self._next.ids[1] if self._next.ids else self._any.generate_span_id()


class Traces:
    """Tells of letters, calls and requests; for several threads. Without an `exporter` spans go where the environment says.

    Args:
      group: the consumer group that takes letters in.
    """

    def __init__(self, service: str, exporter: SpanExporter | None = None, group: str = "") -> None:
        self._ids, self._group = _Ids(), group
        # What the environment says of the service counts more.
        resource = Resource.create().merge(Resource({SERVICE_NAME: service})).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("retry")

    def record_letters(self, told: Iterable[bytes], now_ms: int) -> None:
        """Record letters whose decisions were committed now, of which records of the outcomes topic tell."""
        for value in told:
            for letter in outcomes.read(value):
                self._record_letter(letter, now_ms)

    def _record_letter(self, letter: outcomes.Outcome, now_ms: int) -> None:
        lineage, attempt = letter["id"].encode(), letter["attempt"]
        trace_id, _ = make_span_ids(lineage, attempt)
        _, partition, offset = letter["source"].rsplit("/", 2)
        told: _Told = {
            **_MESSAGING, "messaging.operation.name": "process", "messaging.operation.type": "process",
            "messaging.destination.name": letter["topic"], "messaging.destination.partition.id": partition,
            "messaging.kafka.offset": int(offset), "messaging.consumer.group.name": self._group, "retry.id": letter["id"],
            "retry.attempt": attempt, "retry.policy": letter["policy"], "retry.team": letter["team"],
            "retry.decision": letter["decision"], "retry.target": letter["target"],
            **{f"retry.{name}": value for name in ("reason", "cause", "group") if (value := letter[name])},  # type: ignore[literal-required]
        }  # fmt: skip
        # Of the same letter, beside the span of its sending.
        self._ids.set_ids((trace_id, make_span_ids(b"process " + lineage, attempt)[1]))
        links = [Link(_context(lineage, attempt - 1))] if attempt > 1 else []
        times_ms = min(letter["taken_ms"], now_ms), now_ms
        self._record(f"process {letter['topic']}", SpanKind.CONSUMER, told, times_ms, links)

    def record_exchange(self, done: HttpExchange) -> None:
        """Record a timer's call, or a request to the API."""
        called = urlsplit(done.url)
        told: dict[str, str | int | None] = {
            "http.request.method": done.method, "http.route": done.route, "http.response.status_code": done.status,
            "server.address": called.hostname, "server.port": called.port, "error.type": done.error, "retry.team": done.team,
            "retry.timer": done.timer,
        }  # fmt: skip
        self._ids.set_ids(None)
        self._record(
            f"{done.method} {done.route}".rstrip(), SpanKind.SERVER if done.route else SpanKind.CLIENT,
            {name: value for name, value in told.items() if value is not None and value != ""}, (done.began_ms, done.ended_ms),
            parent=_parent.extract({"traceparent": done.traceparent}, Context()), is_failed=done.error is not None,
        )  # fmt: skip

    def _record(
        self, name: str, kind: SpanKind, told: Mapping[str, str | int], times_ms: tuple[int, int], links: Sequence[Link] = (), *,
        parent: Context | None = None, is_failed: bool = False,
    ) -> None:  # fmt: skip
        began_ms, ended_ms = times_ms
        span = self._tracer.start_span(name, parent or Context(), kind, told, links, start_time=began_ms * _NS_PER_MS)
        if is_failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(began_ms, ended_ms) * _NS_PER_MS)

    def record_spans(self, sent: Sequence[Entry], due_at_ms: Sequence[int], now_ms: int) -> None:
        """Record entries that were delivered now; those that are no retries have no span."""
        for entry, due_ms in zip(sent, due_at_ms, strict=True):
            if is_retry(entry):
                self._record_span(entry, due_ms, now_ms)

    def _record_span(self, entry: Entry, due_ms: int, now_ms: int) -> None:
        said = {name: value or b"" for name, value in entry.headers}
        lineage, attempt = said[ID], int(said[ATTEMPT])
        self._ids.set_ids(make_span_ids(lineage, attempt))
        links = [Link(_context(lineage, attempt - 1))] if attempt > 1 else []
        if (theirs := _theirs(said)).is_valid:
            links.append(Link(theirs))
        told: _Told = {
            **_MESSAGING, "messaging.operation.name": "send", "messaging.operation.type": "send",
            "messaging.destination.name": entry.destination,
            "retry.id": lineage.decode("ascii", "replace"), "retry.attempt": attempt,
            "retry.policy": said[POLICY].decode("utf-8", "replace"), "retry.team": entry.team,
        }  # fmt: skip
        self._record(f"send {entry.destination}", SpanKind.PRODUCER, told, (due_ms, now_ms), links)

    def close(self) -> None:
        self._provider.shutdown()


def _context(lineage: bytes, attempt: int) -> SpanContext:
    trace_id, span_id = make_span_ids(lineage, attempt)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _theirs(said: dict[str, bytes]) -> SpanContext:
    """Return the span that the letter's own `traceparent` names, the last of several; not valid where there is none."""
    carrier = {name: said[name].decode("ascii", "replace") for name in ("traceparent", "tracestate") if name in said}
    return get_current_span(_parent.extract(carrier, Context())).get_span_context()
