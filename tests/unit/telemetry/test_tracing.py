"""One span for each retry, in one trace for each lineage, linked to the attempt before; `traceparent` goes through as it came."""

from __future__ import annotations

import sys

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue.envelopes import Entry
from retry.errors import SettingsInvalid
from retry.record import Headers
from retry.settings import Settings
from retry.worker import composition
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


def told(spans: InMemorySpanExporter, sent: list[Entry], due_ms: list[int]) -> tuple[ReadableSpan, ...]:
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
    first, second, third = told(spans, sent, [NOW_MS - 1_500, NOW_MS - 7, NOW_MS, NOW_MS])
    assert len({span.context.trace_id for span in (first, second, third)}) == 1
    links = [[place(link.context) for link in span.links] for span in (first, second, third)]
    assert links == [[], [place(first.context)], [place(second.context)]]
    assert (first.start_time, first.end_time) == ((NOW_MS - 1_500) * 1_000_000, NOW_MS * 1_000_000)
    assert (first.name, first.parent, first.kind.name) == ("send orders.retry", None, "PRODUCER")
    assert dict(second.attributes or {}) == {
        "messaging.system": "kafka", "messaging.operation.type": "send", "messaging.destination.name": "orders.retry",
        "retry.id": (sent[0].headers[0][1] or b"").decode(), "retry.attempt": 2, "retry.policy": "orders/orders.DLT",
        "retry.team": "orders",
    }  # fmt: skip
    assert first.resource.attributes["service.name"] == "app"


def test_the_letters_own_trace_is_linked_too(spans: InMemorySpanExporter) -> None:
    sent = attempts(("traceparent", PARENT.encode()))[:2]
    first, second = told(spans, sent, [NOW_MS, NOW_MS])
    theirs = first.links[-1].context
    assert f"00-{theirs.trace_id:032x}-{theirs.span_id:016x}-01" == PARENT
    assert [place(link.context) for link in second.links] == [place(first.context), place(theirs)]


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"00-0-0-01", b"x" * 5_000, None])
def test_a_traceparent_that_is_none_costs_only_its_link(spans: InMemorySpanExporter, value: bytes | None) -> None:
    (only,) = told(spans, attempts(("traceparent", value))[:1], [NOW_MS])
    assert only.links == ()


def test_two_workers_make_the_same_ids(spans: InMemorySpanExporter) -> None:
    one, other = InMemorySpanExporter(), InMemorySpanExporter()
    sent = attempts()[:2]
    assert [s.context for s in told(one, sent, [NOW_MS] * 2)] == [s.context for s in told(other, sent, [NOW_MS] * 2)]


def test_without_the_extra_an_operator_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "retry.telemetry.tracing", None)
    assert composition._make_tracer(Settings()) is None
    with pytest.raises(SettingsInvalid, match=r"RETRY_TRACES.*pip install 'dead_letter_retry-.*\.whl\[otel\]'"):
        composition._make_tracer(Settings(traces=1))
