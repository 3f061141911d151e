"""Metrics of a worker; `retry.telemetry.prometheus` says what each is."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector

from retry import clock
from retry.delay_queue.envelopes import Entry
from retry.telemetry import prometheus
from retry.telemetry.call_records import Called
from retry.telemetry.recovery_ratio import Key, Retry, Window, attempt_label, sum_by_label
from retry.telemetry.unreadable_records import UNREADABLE

# Which exceptions the metrics page tells apart: a letter may say anything, and a page has to stay small.

OTHERS, NONE = "(others)", "(none)"
# Of one team, and of all together.
_NAMED, _NAMED_MAX = 20, 1_000
_NAME_CHARS_MAX = 200


class Exceptions:
    """Label values of exceptions: the first 20 of a team by their names, and `(others)`.

    Those that are frequent come first, so they are named. Whatever calls itself like a label of ours is among the others, so
    a name is always that of one exception.
    """

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()
        self._of_team: Counter[str] = Counter()

    def label(self, team: str, exception: str | None) -> str:
        """Find the label value of an exception.

        >>> [Exceptions().label("a", name) for name in ("java.io.IOException", None, "(none)")]
        ['java.io.IOException', '(none)', '(others)']
        """
        if exception is None:
            return NONE
        if (team, exception) in self._named:
            return exception
        is_name = exception not in (NONE, OTHERS) and len(exception) <= _NAME_CHARS_MAX and exception.isprintable()
        if not is_name or self._of_team[team] >= _NAMED or len(self._named) >= _NAMED_MAX:
            return OTHERS
        self._named.add((team, exception))
        self._of_team[team] += 1
        return exception


# How late deliveries are, counted a batch at a time: an observation for each entry would cost more than the entry.

_DECLARED = prometheus.find_declared("retry_lateness_seconds", prometheus.HISTOGRAM)
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
        family = HistogramMetricFamily(_DECLARED.name, _DECLARED.meaning, labels=_DECLARED.labels)
        bounds = [*(str(bound / 1_000) for bound in _BOUNDS_MS), "+Inf"]
        with self._lock:
            for team, counts in self._counts.items():
                family.add_metric([team], list(zip(bounds, counts, strict=True)), self._sums_ms[team] / 1_000)
        yield family


_TOOK_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)


class Metrics:
    """Teams, policies and targets are names from the policy file, so it bounds their number."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._taken = prometheus.counter(registry, "retry_letters_consumed_total")
        self._read = prometheus.counter(registry, "retry_letters_read_total")
        self._failures = prometheus.counter(registry, "retry_failures_total")
        self._back = prometheus.counter(registry, "retry_letters_failed_again_total")
        self._given_up = prometheus.counter(registry, "retry_letters_parked_total")
        self._retried = prometheus.counter(registry, "retry_retries_sent_total")
        self._sent = prometheus.counter(registry, "retry_entries_sent_total")
        self._put_back = prometheus.counter(registry, "retry_entries_deferred_total")
        self._called = prometheus.counter(registry, "retry_webhooks_total")
        self._disregarded = prometheus.counter(registry, "retry_named_changes_disregarded_total")
        self._positions = prometheus.counter(registry, "retry_offset_samples_written_total")
        self._unsampled = prometheus.counter(registry, "retry_offset_samples_failed_total")
        self._took = prometheus.histogram(registry, "retry_webhook_duration_seconds", _TOOK_S)
        self._lateness, self._window, self._exceptions = Lateness(), Window(), Exceptions()
        registry.register(self._lateness)
        self.count_each("retry_unreadable_records_total", UNREADABLE.count_by_topic)
        self.watch_each("retry_recovery_window_sent", lambda: {key: n for key, (n, _) in self._count_settled().items()})
        self.watch_each("retry_recovery_window_failed_again", lambda: {key: n for key, (_, n) in self._count_settled().items()})
        self.watch_each("retry_recovery_ratio", self._recovery)

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Add a gauge that is asked for its value whenever the metrics are read."""
        prometheus.gauge(self.registry, name, value)

    def watch_each(self, name: str, values: prometheus.Values) -> None:
        """Add a gauge with labels, whose values by these are asked for whenever the metrics are read."""
        prometheus.gauges(self.registry, name, values)

    def count_each(self, name: str, values: prometheus.Values) -> None:
        """Add a counter that is kept elsewhere, whose values by labels are asked for whenever the metrics are read."""
        prometheus.counters(self.registry, name, values)

    def tell_taken(self, decided: Mapping[tuple[str, str], int], families: Mapping[str, int]) -> None:
        """Count letters by (team, decision), and by family."""
        for family, letters in families.items():
            self._read.labels(family).inc(letters)
        for (team, decision), letters in decided.items():
            self._taken.labels(team, decision).inc(letters)

    def tell_failures(self, failures: Mapping[tuple[str, str | None, int], int]) -> None:
        """Count letters by (team, exception, number of the retry that failed)."""
        for (team, exception, attempt), letters in failures.items():
            self._failures.labels(team, self._exceptions.label(team, exception), attempt_label(attempt)).inc(letters)

    def tell_back(self, back: Mapping[Retry, int], now_ms: int) -> None:
        """Count letters that came back, by the retry that failed."""
        self._window.count_returned(back, now_ms)
        for key, letters in sum_by_label(back):
            self._back.labels(*key).inc(letters)

    def tell_parked(self, parked: Mapping[tuple[str, str, str], int]) -> None:
        """Count letters that are parked, by (team, policy, reason)."""
        for key, letters in parked.items():
            self._given_up.labels(*key).inc(letters)

    def tell_sent(self, sent: list[Entry], due_at_ms: list[int], now_ms: int) -> None:
        by_team: dict[str, list[int]] = defaultdict(list)
        for entry, due in zip(sent, due_at_ms, strict=True):
            by_team[entry.team].append(due)
        for team, due_of_team in by_team.items():
            self._sent.labels(team).inc(len(due_of_team))
            self._lateness.observe_delays(team, sorted(due_of_team), now_ms)

    def tell_retried(self, retried: Mapping[Retry, int], now_ms: int) -> None:
        self._window.count_sent(retried, now_ms)
        for key, retries in sum_by_label(retried):
            self._retried.labels(*key).inc(retries)

    def tell_called(self, calls: Iterable[Called]) -> None:
        """Count calls of timers, how long they took, and how late the delivered ones were."""
        for called in calls:
            self._called.labels(called.team, called.decision).inc()
            self._took.observe(called.took_ms / 1_000)
            if called.decision == "delivered":
                self._lateness.observe_delays(called.team, [called.due_ms], called.at_ms - called.took_ms)

    def tell_put_back(self, destinations: Counter[str]) -> None:
        for destination, entries in destinations.items():
            self._put_back.labels(destination).inc(entries)

    def tell_disregarded(self, kind: str, changes: int) -> None:
        self._disregarded.labels(kind).inc(changes)

    def tell_positions(self, written: int, failed: int) -> None:
        """Count samples of what consumer groups have committed, and those that could not be had or written."""
        self._positions.inc(written)
        self._unsampled.inc(failed)

    def render_metrics(self) -> bytes:
        return prometheus.render_metrics(self.registry).encode()

    def _count_settled(self) -> dict[Key, tuple[int, int]]:
        return self._window.count_settled(clock.wall_ms())

    def _recovery(self) -> dict[Key, float]:
        # Letters may come back here that another worker has sent.
        return {key: max(0.0, 1.0 - back / sent) for key, (sent, back) in self._count_settled().items() if sent}
