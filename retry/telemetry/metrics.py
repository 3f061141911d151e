"""Prometheus metrics of a worker.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
| `retry_letters_taken_total` | counter | team, decision | letters taken in; decision is `retry` or `park` |
| `retry_letters_read_total` | counter | family | letters taken in, by who wrote them; `unknown` tells nothing of its failure |
| `retry_entries_sent_total` | counter | team | entries delivered and committed, parked letters included |
| `retry_entries_put_back_total` | counter | target | entries that a topic refused, and that wait on |
| `retry_calls_total` | counter | team, decision | HTTP calls of timers: `delivered`, `retry` or `parked` |
| `retry_call_seconds` | histogram | | how long these took |
| `retry_calls_under_way` | gauge | | those without an answer yet |
| `retry_hosts_held` | gauge | state | hosts whose breaker is `open` or `half-open` |
| `retry_lateness_seconds` | histogram | team | from the due time to the commit of the delivery |
| `retry_entries_waiting` | gauge | | entries in the shards of this worker |
| `retry_shards_owned`, `retry_shards_ready` | gauge | | shards of this worker, and those that are swept |
| `retry_shards_read_only`, `retry_shards_halted` | gauge | | shards that stand: a newer version, or a stranger, wrote there |
| `retry_intake_read_only` | gauge | | 1 while no letter is taken in, since a newer version wrote the record of lineages |
| `retry_shards_standing_by` | gauge | | shards of other workers of which this one keeps copies |
| `retry_standby_lag_records` | gauge | | changelog records that these copies are behind |
| `retry_restore_records` | gauge | | changelog records that restoring shards have still to read |
| `retry_lanes_held` | gauge | | lanes (team, dead-letter topic, target) whose entries may not go; `/health/ready` says why |
| `retry_shard_ready` | gauge | shard | 1 if the shard is swept and gets on; only shards of this worker |
| `retry_held` | gauge | reason | lanes, shards and parts of the worker that wait, by `retry.reasons` |
| `retry_clock_believed` | gauge | | 0 while nothing is delivered, since this worker's clock is not the brokers' |
| `retry_lineages` | gauge | | lineages in the record of recent sends |
| `retry_policy_file_valid` | gauge | | 0 while a changed policy file is refused and the old one stays |
| `retry_policy_file_refused` | gauge | | how often it was refused since the start |
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from retry.entry import Entry
from retry.telemetry.calls import Called
from retry.telemetry.lateness import Lateness

_TOOK_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)


class Metrics:
    """The table above. Teams and targets are names from the policy file, so it bounds their number."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._taken = self._counter("retry_letters_taken", "Letters taken in and committed.", "team", "decision")
        self._read = self._counter("retry_letters_read", "Letters taken in, by who wrote them.", "family")
        self._sent = self._counter("retry_entries_sent", "Entries delivered and committed.", "team")
        self._put_back = self._counter("retry_entries_put_back", "Entries that a topic refused.", "target")
        self._called = self._counter("retry_calls", "HTTP calls that have ended.", "team", "decision")
        self._took = Histogram("retry_call_seconds", "How long calls took.", buckets=_TOOK_S, registry=self.registry)
        self._lateness = Lateness()
        self.registry.register(self._lateness)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Add a gauge that is asked for its value whenever the metrics are read."""
        Gauge(name, meaning, registry=self.registry).set_function(value)

    def watch_each(self, name: str, meaning: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Add a gauge with one label, whose values by label are asked for whenever the metrics are read."""
        self.registry.register(_Each(name, meaning, label, values))

    def tell_taken(self, decided: Mapping[tuple[str, str], int], families: Mapping[str, int]) -> None:
        """Count letters by (team, decision), and by family."""
        for family, letters in families.items():
            self._read.labels(family).inc(letters)
        for (team, decision), letters in decided.items():
            self._taken.labels(team, decision).inc(letters)

    def tell_sent(self, sent: list[Entry], due_at_ms: list[int], now_ms: int) -> None:
        """Count delivered entries and how late each was."""
        by_team: dict[str, list[int]] = defaultdict(list)
        for entry, due in zip(sent, due_at_ms, strict=True):
            by_team[entry.team].append(due)
        for team, due_of_team in by_team.items():
            self._sent.labels(team).inc(len(due_of_team))
            self._lateness.tell(team, sorted(due_of_team), now_ms)

    def tell_called(self, calls: Iterable[Called]) -> None:
        """Count calls of timers, how long they took, and how late the delivered ones were."""
        for called in calls:
            self._called.labels(called.team, called.decision).inc()
            self._took.observe(called.took_ms / 1_000)
            if called.decision == "delivered":
                self._lateness.tell(called.team, [called.due_ms], called.at_ms - called.took_ms)

    def tell_put_back(self, destinations: Tally[str]) -> None:
        """Count entries that were put back, by destination."""
        for destination, entries in destinations.items():
            self._put_back.labels(destination).inc(entries)

    def text(self) -> bytes:
        """What `/metrics` answers."""
        return generate_latest(self.registry)


class _Each(Collector):
    def __init__(self, name: str, meaning: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        self._name, self._meaning, self._label, self._values = name, meaning, label, values

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Its name, which may be asked for before there is anything to count."""
        return [GaugeMetricFamily(self._name, self._meaning, labels=[self._label])]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """What the metrics page shows."""
        family = GaugeMetricFamily(self._name, self._meaning, labels=[self._label])
        for label, value in self._values().items():
            family.add_metric([label], value)
        return [family]
