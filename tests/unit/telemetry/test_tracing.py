"""One span for each retry, in one trace for each lineage, linked to the attempt before; `traceparent` goes through as it came."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue.envelopes import Entry
from retry.errors import SettingsInvalid
from retry.intake.batch import BatchResult
from retry.process.start import open_traces
from retry.record import Headers
from retry.settings import Settings
from retry.telemetry import outcomes
from retry.telemetry.spans import HttpExchange, make_span_ids
from tests.unit.intake.test_intake import NOW_MS, prepare, record

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from retry.telemetry.tracing import Traces

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    return InMemorySpanExporter()


def trace_sent(spans: InMemorySpanExporter, sent: list[Entry], due_ms: list[int]) -> tuple[ReadableSpan, ...]:
    traces = Traces("app", spans)
    traces.record_spans(sent, due_ms, NOW_MS)
    traces.close()
    return spans.get_finished_spans()


def attempts(*headers: tuple[str, bytes | None]) -> list[Entry]:
    """A letter that fails three times, and whose consumer copies all headers."""
    letter, found = record(*headers), []
    for attempt in range(1, 4):
        found.append(prepare(letter).entry)
        letter = record(*found[-1].headers, offset=42 + attempt)
    return [*found, prepare(letter).entry]


def place(context: SpanContext) -> tuple[int, int]:
    return context.trace_id, context.span_id


def parents(headers: Headers) -> list[bytes | None]:
    return [value for name, value in headers if name == "traceparent"]


@pytest.mark.parametrize("before", [[], [PARENT.encode()], [b"one", b"other"], [b"not one at all", None]])
def test_traceparent_goes_through_unchanged_and_never_stacks(before: list[bytes | None]) -> None:
    for entry in attempts(*(("traceparent", value) for value in before)):
        assert parents(entry.headers) == before


def test_attempts_of_one_lineage_are_linked_from_each_to_the_one_before(spans: InMemorySpanExporter) -> None:
    sent = attempts()
    assert (sent[-1].destination, sent[-1].headers[-1][0]) == ("orders.parked", names.PARKED_REASON)
    first, second, third = trace_sent(spans, sent, [NOW_MS - 1_500, NOW_MS - 7, NOW_MS, NOW_MS])
    assert len({span.context.trace_id for span in (first, second, third)}) == 1
    links = [[place(link.context) for link in span.links] for span in (first, second, third)]
    assert links == [[], [place(first.context)], [place(second.context)]]
    assert (first.start_time, first.end_time) == ((NOW_MS - 1_500) * 1_000_000, NOW_MS * 1_000_000)
    assert (first.name, first.parent, first.kind.name) == ("send orders.retry", None, "PRODUCER")
    assert dict(second.attributes or {}) == {
        "messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders.retry",
        "retry.id": (sent[0].headers[0][1] or b"").decode(), "retry.attempt": 2, "retry.policy": "orders/orders.DLT",
        "retry.team": "orders",
    }  # fmt: skip
    assert first.resource.attributes["service.name"] == "app"


def trace_taken(spans: InMemorySpanExporter, record: Callable[[Traces], None]) -> tuple[ReadableSpan, ...]:
    traces = Traces("app", spans, "app-intake")
    record(traces)
    traces.close()
    return spans.get_finished_spans()


def test_a_letter_that_was_taken_in_is_a_span_of_its_lineage_linked_to_the_sending_before(spans: InMemorySpanExporter) -> None:
    told_of = BatchResult()
    alike = outcomes.SharedFields(
        team="orders", topic="orders.DLT", partition=3, policy="orders/x", attempt=2, exception="E", decision="park",
        reason="max_attempts", target="parked", cause="java.io.IOException", fingerprint=None, group="billing",
    )  # fmt: skip
    told_of.letters[alike] = [(b"4711", 42, NOW_MS - 5, NOW_MS - 5, None)]
    told_of.pack(NOW_MS - 2)
    values = [row["value"] for row in told_of.outcomes]
    (only,) = trace_taken(spans, lambda traces: traces.record_letters(values, NOW_MS))
    assert (only.name, only.kind.name, only.parent) == ("process orders.DLT", "CONSUMER", None)
    assert (only.start_time, only.end_time) == ((NOW_MS - 2) * 1_000_000, NOW_MS * 1_000_000)
    assert dict(only.attributes or {}) == {
        "messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders.DLT", "messaging.destination.partition.id": "3", "messaging.kafka.offset": 42,
        "messaging.consumer.group.name": "app-intake", "retry.id": "4711", "retry.attempt": 2, "retry.policy": "orders/x",
        "retry.team": "orders", "retry.decision": "park", "retry.target": "parked", "retry.reason": "max_attempts",
        "retry.cause": "java.io.IOException", "retry.group": "billing",
    }  # fmt: skip
    before, same = make_span_ids(b"4711", 1), make_span_ids(b"4711", 2)
    assert [place(link.context) for link in only.links] == [before]
    assert only.context.trace_id == same[0]
    assert only.context.span_id != same[1]


def test_a_call_and_a_request_belong_to_the_trace_that_came_with_them(spans: InMemorySpanExporter) -> None:
    about = {"method": "POST", "team": "orders", "traceparent": PARENT, "began_ms": NOW_MS - 9, "ended_ms": NOW_MS}
    call = HttpExchange(**about, status=None, error="timeout", url="https://u:p@host:8443/secret?q=1", timer="t1")
    request = HttpExchange(**{**about, "traceparent": "none"}, status=201, error=None, route="/timers")

    def record(traces: Traces) -> None:
        for each in (call, request):
            traces.record_exchange(each)

    called, asked = trace_taken(spans, record)
    assert (called.name, called.kind.name, called.status.status_code.name) == ("POST", "CLIENT", "ERROR")
    assert called.parent is not None
    assert f"00-{called.parent.trace_id:032x}-{called.parent.span_id:016x}-01" == PARENT
    assert dict(called.attributes or {}) == {
        "http.request.method": "POST", "server.address": "host", "server.port": 8443, "error.type": "timeout",
        "retry.team": "orders", "retry.timer": "t1",
    }  # fmt: skip
    assert (asked.name, asked.kind.name, asked.parent, asked.status.status_code.name) == ("POST /timers", "SERVER", None, "UNSET")
    assert dict(asked.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/timers", "http.response.status_code": 201, "retry.team": "orders",
    }  # fmt: skip


def test_the_letters_own_trace_is_linked_too(spans: InMemorySpanExporter) -> None:
    sent = attempts(("traceparent", PARENT.encode()))[:2]
    first, second = trace_sent(spans, sent, [NOW_MS, NOW_MS])
    theirs = first.links[-1].context
    assert f"00-{theirs.trace_id:032x}-{theirs.span_id:016x}-01" == PARENT
    assert [place(link.context) for link in second.links] == [place(first.context), place(theirs)]


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"00-0-0-01", b"x" * 5_000, None])
def test_a_traceparent_that_is_none_costs_only_its_link(spans: InMemorySpanExporter, value: bytes | None) -> None:
    (only,) = trace_sent(spans, attempts(("traceparent", value))[:1], [NOW_MS])
    assert only.links == ()


def test_two_workers_make_the_same_ids(spans: InMemorySpanExporter) -> None:
    one, other = InMemorySpanExporter(), InMemorySpanExporter()
    sent = attempts()[:2]
    assert [s.context for s in trace_sent(one, sent, [NOW_MS] * 2)] == [s.context for s in trace_sent(other, sent, [NOW_MS] * 2)]


def test_without_the_extra_an_operator_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "retry.telemetry.tracing", None)
    assert open_traces(Settings()) is None
    with pytest.raises(SettingsInvalid, match=r"RETRY_TRACES.*pip install 'dead_letter_retry-.*\.whl\[otel\]'"):
        open_traces(Settings(traces=1))
