"""Every metric, once: declared in this table, of which `make docs` writes docs/reference/metrics.md, and made as declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Metric(NamedTuple):
    """One metric; `name` is the one on the page, of a histogram the one before `_bucket`, `_sum` and `_count`."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


_RETRY = ("team", "policy", "attempt")

WORKER = (
    Metric("retry_letters_consumed_total", COUNTER, ("team", "decision"),
           "letters that were read and committed, by `retry` or `park`. Definitions of tasks count as `schedule`, "
           "`cancel` or `park`"),
    Metric("retry_letters_read_total", COUNTER, ("family",),
           "the same letters by the framework that wrote them; `unknown` where the headers say nothing of the failure"),
    Metric("retry_failures_total", COUNTER, ("team", "exception", "attempt"),
           "letters by root cause, or by class where no cause is known, and by the number of the retry that failed, `0` for a "
           "first failure. The first 20 exceptions of a team by name, then `(others)`; `(none)` where the letter names none"),
    Metric("retry_letters_failed_again_total", COUNTER, _RETRY,
           "letters whose retry failed, by policy and number of that retry, `10+` from the tenth on"),
    Metric("retry_letters_parked_total", COUNTER, ("team", "policy", "reason"), "letters parked, by reason"),
    Metric("retry_retries_sent_total", COUNTER, _RETRY, "retries delivered, by policy and number, `10+` from the tenth on"),
    Metric("retry_recovery_window_sent", GAUGE, _RETRY,
           "retries that this worker sent and that were due in the hour before the last ten minutes"),
    Metric("retry_recovery_window_failed_again", GAUGE, _RETRY,
           "of these retries, those that failed again, so that this worker read their letter"),
    Metric("retry_recovery_ratio", GAUGE, _RETRY,
           "1 - `retry_recovery_window_failed_again` / `retry_recovery_window_sent`. With several workers, divide the sums of "
           "these"),
    Metric("retry_entries_sent_total", COUNTER, ("team",), "entries delivered and committed, parked letters included"),
    Metric("retry_entries_deferred_total", COUNTER, ("target",),
           "records that their topic refused, for their size or for what they are, and that were postponed by 30 s"),
    Metric("retry_entries_refused", GAUGE, ("target",),
           "entries that wait since this topic refuses each of them for what it is, while all others go; `/health/ready` "
           "names them"),
    Metric("retry_transaction_bytes_max", GAUGE, ("kind",),
           "most bytes in one transaction of `intake` and of `deliveries`: that of the settings, or less where a quota or a slow "
           "link lets less through in the time that a transaction has"),
    Metric("retry_letters_unread", GAUGE, ("topic", "reason"),
           "offsets of a dead-letter topic that this worker reads and has not taken in yet: `behind`, those that it can read, "
           "and `open_transaction`, those that no reader gets while another producer keeps a transaction open. Updated every "
           "ten seconds"),
    Metric("retry_named_changes_disregarded_total", COUNTER, ("kind",),
           "changes of schedules and tasks that were not followed: `late_cancel` and `late_replacement` were written before the "
           "due time, and taken in when the message had been sent; `older_cancel` has no effect, since what another partition "
           "has by that id was written later; `older_than_sent` is sent although a later one was. The log names these. "
           "`ended_elsewhere` was replaced or cancelled from another partition, by what was written later"),
    Metric("retry_webhooks_total", COUNTER, ("team", "decision"),
           "webhook calls of HTTP timers that have ended: `delivered`, `retry`, `parked`"),
    Metric("retry_webhook_duration_seconds", HISTOGRAM, (), "duration of these webhook calls"),
    Metric("retry_webhooks_in_flight", GAUGE, (), "webhook calls in flight"),
    Metric("retry_hosts_blocked", GAUGE, ("state",), "hosts whose circuit breaker is `open` or `half-open`"),
    Metric("retry_lateness_seconds", HISTOGRAM, ("team",), "from the due time to the commit of the delivery"),
    Metric("retry_entries_waiting", GAUGE, (), "entries in the shards of this worker"),
    Metric("retry_entries_due_soon", GAUGE, ("within",),
           "of these, the entries that are due by now, within `1m` and within `5m`; updated every 10 s, and estimated "
           "where they are thousands. Entries that wait for an earlier one of their key are not counted"),
    Metric("retry_oldest_due_seconds", GAUGE, (),
           "how long ago the oldest waiting entry was due, updated every 10 s; 0 where none is due"),
    Metric("retry_entries_held", GAUGE, ("key",),
           "entries that are never sent as they are, since the key that they are sealed under is missing or does not fit, by its "
           "id, or `foreign` of what no version of this service wrote; counted anew every minute"),
    Metric("retry_shards_owned", GAUGE, (), "shards of this worker"),
    Metric("retry_shards_ready", GAUGE, (), "shards of this worker that are swept"),
    Metric("retry_shards_read_only", GAUGE, (), "shards that deliver nothing since a newer version wrote there"),
    Metric("retry_shards_halted", GAUGE, (), "shards that deliver nothing since they met what no version can act on"),
    Metric("retry_shard_ready", GAUGE, ("shard",), "1 if the shard is swept and makes progress; only the shards of this worker"),
    Metric("retry_shard_entries_waiting", GAUGE, ("shard",), "entries that wait in the shard; only the shards of this worker"),
    Metric("retry_shard_restored_ratio", GAUGE, ("shard",),
           "share of the changelog records that are read, of those that the shard had to read when it was opened"),
    Metric("retry_restore_remaining_records", GAUGE, (), "changelog records that restoring shards have still to read"),
    Metric("retry_shards_standby", GAUGE, (), "standbys: copies of shards that other workers own"),
    Metric("retry_standby_lag_records", GAUGE, (), "changelog offsets that these copies are behind"),
    Metric("retry_intake_read_only", GAUGE, (),
           "1 while no letter is taken in because a newer version wrote how far letters were taken in"),
    Metric("retry_blocked", GAUGE, ("reason",),
           "how many lanes, shards or parts of the worker are blocked: lanes `paused`, `not_allowed`, `refused`, "
           "`circuit_breaker`, `rate_limit`; topics `refused_letters`; partitions of letters `open_transaction`; intake or "
           "deliveries `slow_link`; shards `opening`, `restoring`, `read_only`, `halted`, `broken`, `sealed`; parts `failing`, "
           "`stalled`; the worker `brokers`, `clock`, `policy_file`"),
    Metric("retry_lanes_blocked", GAUGE, (),
           "lanes (team, dead-letter topic, target) that have something due and may not send it; `/health/ready` says why"),
    Metric("retry_circuit_breaker_open", GAUGE, ("target",),
           "1 while the circuit breaker of a target is open, 0.5 while it is half open, 0 for closed ones that the "
           "policy file names"),
    Metric("retry_paused", GAUGE, ("scope",), "pauses, by what they name: `all`, `team`, `topic`, `target`"),
    Metric("retry_clock_trusted", GAUGE, (),
           "0 while nothing is delivered because this worker's clock differs from the brokers'"),
    Metric("retry_lineages", GAUGE, (), "lineages that are remembered"),
    Metric("retry_policy_file_valid", GAUGE, (), "0 while a changed policy file is refused and the former one stays in use"),
    Metric("retry_policy_file_refused_total", COUNTER, (), "how often a changed policy file was refused"),
    Metric("retry_policy_file_used_timestamp_seconds", GAUGE, (), "when the policy file in use was read, in seconds since 1970"),
    Metric("retry_retention_left_seconds", GAUGE, ("topic",),
           "time until Kafka may delete the oldest letter of a dead-letter topic among those that wait here; negative "
           "where it may be deleted already. Updated every minute, from up to 100 letters of each lane"),
    Metric("retry_offset_samples_written_total", COUNTER, (), "samples of committed offsets that were written"),
    Metric("retry_offset_samples_failed_total", COUNTER, (),
           "consumer groups that did not answer, and samples that could not be written"),
    Metric("retry_offset_sample_age_seconds", GAUGE, (),
           "time since a consumer group was last sampled by this worker; 0 where it samples none"),
)  # fmt: skip

SCHEDULER = (
    Metric("kafka_scheduler_event_total", COUNTER, ("type",), "events, by the types of the Go scheduler"),
)  # fmt: skip

API = (
    Metric("retry_api_requests_total", COUNTER, ("method", "status"), "requests that were answered"),
    Metric("retry_api_request_duration_seconds", HISTOGRAM, (), "duration of these requests"),
    Metric("retry_api_entries_waiting", GAUGE, (), "named entries that wait: timers, schedules and tasks"),
    Metric("retry_api_ready", GAUGE, (), "1 once the API has read the whole changelog"),
    Metric("retry_api_certificate_ends_timestamp_seconds", GAUGE, (),
           "when the certificate in use ends, in seconds since 1970; +Inf where there is none"),
)

CONSOLE = (
    Metric("retry_console_requests_total", COUNTER, ("method", "status"), "requests that were answered"),
    Metric("retry_console_request_duration_seconds", HISTOGRAM, (), "how long these took to begin to be answered"),
    Metric("retry_console_streams", GAUGE, (), "open pages that are kept fresh"),
    Metric("retry_console_lag_records", GAUGE, (), "offsets that are there and not shown yet"),
    Metric("retry_console_ready", GAUGE, (), "1 once everything that was there at the start is read"),
    Metric("retry_console_notifications_total", COUNTER, ("target", "result"),
           "messages to targets of notifications, `sent` or `failed`; by the one console that tells"),
)  # fmt: skip

# Of worker, scheduler, API and console alike.
EVERY = (
    Metric("retry_build_info", GAUGE, ("version",), "1, with the version of the service that runs"),
    Metric("retry_client_certificate_begins_timestamp_seconds", GAUGE, (),
           "when the certificate that this process shows the brokers became valid, in seconds since 1970; 0 where it shows none"),
    Metric("retry_client_certificate_ends_timestamp_seconds", GAUGE, (),
           "when it ends, in seconds since 1970; +Inf where it shows none. What the process was started with counts, until files "
           "that have replaced it are in use"),
    Metric("retry_unreadable_records_total", COUNTER, ("topic",),
           "records of the service's own topics that this process has passed over: no version of it wrote them, or of lineages "
           "and outcomes a newer one. What is read again counts again"),
)  # fmt: skip

DECLARED = {metric.name: metric for metric in (*WORKER, *SCHEDULER, *API, *CONSOLE, *EVERY)}


# By the value of the only label, or by a tuple of them in the order of their names.
Values = Callable[[], Mapping[Any, float]]
_Family = CounterMetricFamily | GaugeMetricFamily


def counter(registry: CollectorRegistry, name: str) -> Counter:
    metric = find_declared(name, COUNTER)
    return Counter(name, metric.meaning, metric.labels, registry=registry)


def histogram(registry: CollectorRegistry, name: str, bounds: Sequence[float] = Histogram.DEFAULT_BUCKETS) -> Histogram:
    return Histogram(name, find_declared(name, HISTOGRAM).meaning, buckets=bounds, registry=registry)


def gauge(registry: CollectorRegistry, name: str, value: Callable[[], float]) -> None:
    """Add a gauge without labels that is asked for its value whenever the page is read."""
    Gauge(name, find_declared(name, GAUGE).meaning, registry=registry).set_function(value)


def gauges(registry: CollectorRegistry, name: str, values: Values) -> None:
    """Add a gauge whose values by labels, in the order of their names, are asked for whenever the page is read."""
    registry.register(_Each(find_declared(name, GAUGE), values, GaugeMetricFamily))


def counters(registry: CollectorRegistry, name: str, values: Values) -> None:
    """Add a counter that is kept elsewhere, whose values by labels are asked for whenever the page is read."""
    registry.register(_Each(find_declared(name, COUNTER), values, CounterMetricFamily))


def add_process_metrics(registry: CollectorRegistry) -> None:
    """Add which version runs, and what every program tells of itself by names of Prometheus' own: `process_…`, `python_…`."""
    version = metadata.version("dead-letter-retry")
    gauges(registry, "retry_build_info", lambda: {version: 1.0})
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)


def render_metrics(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def find_declared(name: str, kind: str) -> Metric:
    """Find the declaration of a metric; KeyError where there is none, or it has another type."""
    metric = DECLARED[name]
    if metric.type != kind:
        raise KeyError(f"{name} is declared a {metric.type}")
    return metric


class _Each(Collector):
    def __init__(self, metric: Metric, values: Values, family: type[_Family]) -> None:
        self._metric, self._values, self._family = metric, values, family

    def describe(self) -> Iterable[_Family]:
        """Name the metric without values: its name may be asked for before there is anything to count."""
        return [self._family(self._metric.name, self._metric.meaning, labels=self._metric.labels)]

    def collect(self) -> Iterable[_Family]:
        (family,) = self.describe()
        for labels, value in self._values().items():
            family.add_metric([labels] if isinstance(labels, str) else labels, value)
        return [family]
