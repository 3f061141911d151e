"""`kafka_scheduler_event_total`, as dashboards of the Go scheduler ask for it."""

from __future__ import annotations

from collections import Counter

from retry.scheduling.messages.entry_source import CANCELLED, DONE, DOOR, INVALID, PLANNED
from retry.delay_queue.entry import Entry
from retry.scheduling.messages.metrics import SchedulerMetrics

STARTED_MS = 1_700_000_000_000


def events(metrics: SchedulerMetrics) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("kafka_scheduler_event_total{")]
    return {line.split('type="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_1_13_every_type_is_there_from_the_start() -> None:
    assert events(SchedulerMetrics(STARTED_MS, "parked")) == {
        f"kafka_scheduler_{name}": 0.0
        for name in ("planned_schedule", "deleted_schedule", "invalid_schedule", "triggered_schedule", "missed_schedule", "other")
    }


def test_1_13_what_is_taken_in_and_sent_is_counted() -> None:
    metrics = SchedulerMetrics(STARTED_MS, "parked")
    metrics.tell_taken(Counter({(DOOR, PLANNED): 5, (DOOR, CANCELLED): 1, (DOOR, DONE): 2, (DOOR, INVALID): 1}), {})
    sent = [Entry(topic, b"k", b"v", [], None, DOOR) for topic in ("a", "b", "parked", "a")]
    metrics.tell_sent(sent, [STARTED_MS - 1, STARTED_MS, STARTED_MS + 5, STARTED_MS + 5], STARTED_MS + 9)
    assert events(metrics) == {
        "kafka_scheduler_planned_schedule": 5, "kafka_scheduler_deleted_schedule": 3, "kafka_scheduler_invalid_schedule": 1,
        "kafka_scheduler_triggered_schedule": 2, "kafka_scheduler_missed_schedule": 1, "kafka_scheduler_other": 0,
    }  # fmt: skip
