"""How late deliveries are, counted a batch at a time: an observation for each entry would cost more than the entry."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector

from retry.telemetry.metric_catalogue import HISTOGRAM
from retry.telemetry.prometheus import find_declared

_DECLARED = find_declared("retry_lateness_seconds", HISTOGRAM)
_BOUNDS_MS = (10, 25, 50, 100, 200, 500, 1_000, 2_000, 5_000, 30_000, 300_000)


class Lateness(Collector):
    """A histogram of milliseconds by team, told in batches, shown in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums_ms: dict[str, int] = {}

    def observe_delays(self, team: str, due_at_ms: list[int], sent_at_ms: int) -> None:
        """Count entries of one team that were delivered at `sent_at_ms`; `due_at_ms` is sorted."""
        # Later than a bound is whatever was due before that long ago, and the batch is in due order.
        later = [bisect_left(due_at_ms, sent_at_ms - bound) for bound in _BOUNDS_MS]
        with self._lock:
            counts = self._counts.setdefault(team, [0] * (len(_BOUNDS_MS) + 1))
            for n, late in enumerate(later):
                counts[n] += len(due_at_ms) - late
            counts[-1] += len(due_at_ms)
            self._sums_ms[team] = self._sums_ms.get(team, 0) + sent_at_ms * len(due_at_ms) - sum(due_at_ms)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Yield the histogram of all teams for the metrics page, in seconds."""
        family = HistogramMetricFamily(_DECLARED.name, _DECLARED.meaning, labels=_DECLARED.labels)
        bounds = [*(str(bound / 1_000) for bound in _BOUNDS_MS), "+Inf"]
        with self._lock:
            for team, counts in self._counts.items():
                family.add_metric([team], list(zip(bounds, counts, strict=True)), self._sums_ms[team] / 1_000)
        yield family
