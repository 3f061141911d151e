"""`kafka_scheduler_event_total`, as dashboards of the Go scheduler ask for it."""

from __future__ import annotations

from collections import Counter

from retry.delay_queue.envelopes import Entry
from retry.scheduling.messages.composition import SchedulerMetrics
from retry.scheduling.messages.entry_source import CANCELLED, DONE, INVALID, PLANNED, TEAM

STARTED_MS = 1_700_000_000_000


def events(metrics: SchedulerMetrics) -> dict[str, float]:
    lines = [line for line in metrics.render_metrics().decode().splitlines() if line.startswith("kafka_scheduler_event_total{")]
    return {line.split('type="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_1_13_every_type_is_there_from_the_start() -> None:
    assert events(SchedulerMetrics(STARTED_MS, "parked")) == {
        f"kafka_scheduler_{name}": 0.0
        for name in ("planned_schedule", "deleted_schedule", "invalid_schedule", "triggered_schedule", "missed_schedule", "other")
    }


def test_1_13_what_is_taken_in_and_sent_is_counted() -> None:
    metrics = SchedulerMetrics(STARTED_MS, "parked")
    metrics.tell_taken(Counter({(TEAM, PLANNED): 5, (TEAM, CANCELLED): 1, (TEAM, DONE): 2, (TEAM, INVALID): 1}), {})
    sent = [Entry(topic, b"k", b"v", [], None, TEAM) for topic in ("a", "b", "parked", "a")]
    metrics.tell_sent(sent, [STARTED_MS - 1, STARTED_MS, STARTED_MS + 5, STARTED_MS + 5], STARTED_MS + 9)
    assert events(metrics) == {
        "kafka_scheduler_planned_schedule": 5, "kafka_scheduler_deleted_schedule": 3, "kafka_scheduler_invalid_schedule": 1,
        "kafka_scheduler_triggered_schedule": 2, "kafka_scheduler_missed_schedule": 1, "kafka_scheduler_other": 0,
    }  # fmt: skip
