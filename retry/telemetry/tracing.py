"""A span for each retry that was delivered, with OpenTelemetry: from when it was due until it was sent.

All spans of one lineage are one trace, whichever worker sends: trace and span have ids that are made of `retry-id` and the
attempt. So each can name the one of the attempt before, by a link. Another link leads to the trace that the letter's own
`traceparent` names. That header is somebody else's: it goes through as it came, and none is added.

Imported only where `RETRY_TRACES` asks for it; where spans go is told by the variables of OpenTelemetry, `OTEL_…`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from retry.dead_letters.retry_headers import ATTEMPT, ID, POLICY
from retry.delay_queue.envelopes import Entry
from retry.telemetry.recovery_ratio import is_retry
from retry.telemetry.trace_ids import make_span_ids

_NS_PER_MS = 1_000_000
_parent = TraceContextTextMapPropagator()


class _Ids(IdGenerator):
    """The ids that this thread has asked for."""

    def __init__(self) -> None:
        self.next = threading.local()

    def generate_trace_id(self) -> int:
        return int(self.next.trace_id)

    def generate_span_id(self) -> int:
        return int(self.next.span_id)


class Traces:
    """Tells of retries; for several threads. Without an `exporter` spans go where the environment says."""

    def __init__(self, service: str, exporter: SpanExporter | None = None) -> None:
        self._ids = _Ids()
        # What the environment says of the service counts more.
        resource = Resource.create().merge(Resource({SERVICE_NAME: service})).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("retry")

    def record_spans(self, sent: Sequence[Entry], due_at_ms: Sequence[int], now_ms: int) -> None:
        """Record entries that were delivered now; those that are no retries have no span."""
        for entry, due_ms in zip(sent, due_at_ms, strict=True):
            if is_retry(entry):
                self._record_span(entry, due_ms, now_ms)

    def _record_span(self, entry: Entry, due_ms: int, now_ms: int) -> None:
        said = {name: value or b"" for name, value in entry.headers}
        lineage, attempt = said[ID], int(said[ATTEMPT])
        self._ids.next.trace_id, self._ids.next.span_id = make_span_ids(lineage, attempt)
        links = [Link(_context(lineage, attempt - 1))] if attempt > 1 else []
        if (theirs := _theirs(said)).is_valid:
            links.append(Link(theirs))
        told: dict[str, str | int] = {
            "messaging.system": "kafka", "messaging.operation.type": "send", "messaging.destination.name": entry.destination,
            "retry.id": lineage.decode("ascii", "replace"), "retry.attempt": attempt,
            "retry.policy": said[POLICY].decode("utf-8", "replace"), "retry.team": entry.team,
        }  # fmt: skip
        span = self._tracer.start_span(
            f"send {entry.destination}", Context(), SpanKind.PRODUCER, told, links, start_time=due_ms * _NS_PER_MS
        )
        span.end(max(due_ms, now_ms) * _NS_PER_MS)

    def close(self) -> None:
        self._provider.shutdown()


def _context(lineage: bytes, attempt: int) -> SpanContext:
    trace_id, span_id = make_span_ids(lineage, attempt)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _theirs(said: dict[str, bytes]) -> SpanContext:
    """Return the span that the letter's own `traceparent` names, the last of several; not valid where there is none."""
    carrier = {name: said[name].decode("ascii", "replace") for name in ("traceparent", "tracestate") if name in said}
    return get_current_span(_parent.extract(carrier, Context())).get_span_context()
