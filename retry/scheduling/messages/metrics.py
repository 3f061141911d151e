"""A worker's metrics, and the one of the Go scheduler: `kafka_scheduler_event_total`, by `type`.

| `type` | counts |
| --- | --- |
| `kafka_scheduler_planned_schedule` | schedules taken in, updates included |
| `kafka_scheduler_deleted_schedule` | nulls read, those included that this service wrote after sending |
| `kafka_scheduler_invalid_schedule` | messages that are no schedules |
| `kafka_scheduler_triggered_schedule` | schedules that were sent |
| `kafka_scheduler_missed_schedule` | schedules that were sent and had been due before this process started |
| `kafka_scheduler_other` | nothing any more |
"""

from __future__ import annotations

from collections.abc import Mapping

from retry.delay_queue.envelopes import Entry
from retry.scheduling.messages.entry_source import CANCELLED, DONE, INVALID, PLANNED, TEAM
from retry.telemetry import prometheus
from retry.telemetry.metrics import Metrics

_PREFIX = "kafka_scheduler_"
_PLANNED, _DELETED, _INVALID, _TRIGGERED, _MISSED, _OTHER = TYPES = tuple(
    _PREFIX + name
    for name in ("planned_schedule", "deleted_schedule", "invalid_schedule", "triggered_schedule", "missed_schedule", "other")
)
_TAKEN = {PLANNED: _PLANNED, CANCELLED: _DELETED, DONE: _DELETED, INVALID: _INVALID}


class SchedulerMetrics(Metrics):
    """The table above, beside those of a worker.

    Args:
      started_at_ms: what was due before is missed.
      parked: where no schedules go, but what is none.
    """

    def __init__(self, started_at_ms: int, parked: str) -> None:
        super().__init__()
        self._started_at_ms, self._parked = started_at_ms, parked
        events = prometheus.counter(self.registry, "kafka_scheduler_event_total")
        self._events = {kind: events.labels(kind) for kind in TYPES}

    def tell_taken(self, decided: Mapping[tuple[str, str], int], families: Mapping[str, int]) -> None:
        """Count messages by what was decided."""
        super().tell_taken(decided, families)
        for (team, decision), messages in decided.items():
            if team == TEAM:
                self._events[_TAKEN[decision]].inc(messages)

    def tell_sent(self, sent: list[Entry], due_at_ms: list[int], now_ms: int) -> None:
        """Count what was sent, and how late it was."""
        super().tell_sent(sent, due_at_ms, now_ms)
        due = [due for entry, due in zip(sent, due_at_ms, strict=True) if entry.destination != self._parked]
        missed = sum(at_ms < self._started_at_ms for at_ms in due)
        self._events[_MISSED].inc(missed)
        self._events[_TRIGGERED].inc(len(due) - missed)
