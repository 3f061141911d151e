"""Metrics of the Prometheus client, made as they are declared: whoever names one that is not gets a KeyError."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from retry.telemetry.metric_catalogue import COUNTER, DECLARED, GAUGE, HISTOGRAM, Metric

# By the value of the only label, or by a tuple of them in the order of their names.
Values = Callable[[], Mapping[Any, float]]
_Family = CounterMetricFamily | GaugeMetricFamily


def counter(registry: CollectorRegistry, name: str) -> Counter:
    """A counter, with labels where it has some."""
    metric = find_declared(name, COUNTER)
    return Counter(name, metric.meaning, metric.labels, registry=registry)


def histogram(registry: CollectorRegistry, name: str, bounds: Sequence[float] = Histogram.DEFAULT_BUCKETS) -> Histogram:
    """A histogram without labels."""
    return Histogram(name, find_declared(name, HISTOGRAM).meaning, buckets=bounds, registry=registry)


def gauge(registry: CollectorRegistry, name: str, value: Callable[[], float]) -> None:
    """A gauge without labels that is asked for its value whenever the page is read."""
    Gauge(name, find_declared(name, GAUGE).meaning, registry=registry).set_function(value)


def gauges(registry: CollectorRegistry, name: str, values: Values) -> None:
    """A gauge whose values by labels, in the order of their names, are asked for whenever the page is read."""
    registry.register(_Each(find_declared(name, GAUGE), values, GaugeMetricFamily))


def counters(registry: CollectorRegistry, name: str, values: Values) -> None:
    """A counter that is kept elsewhere, whose values by labels are asked for whenever the page is read."""
    registry.register(_Each(find_declared(name, COUNTER), values, CounterMetricFamily))


def render_metrics(registry: CollectorRegistry) -> str:
    """Render a registry in the Prometheus text format."""
    return generate_latest(registry).decode()


def find_declared(name: str, kind: str) -> Metric:
    """Return the declaration of a metric; KeyError where there is none, or it has another type."""
    metric = DECLARED[name]
    if metric.type != kind:
        raise KeyError(f"{name} is declared a {metric.type}")
    return metric


class _Each(Collector):
    def __init__(self, metric: Metric, values: Values, family: type[_Family]) -> None:
        self._metric, self._values, self._family = metric, values, family

    def describe(self) -> Iterable[_Family]:
        """Return the metric without values: its name may be asked for before there is anything to count."""
        return [self._family(self._metric.name, self._metric.meaning, labels=self._metric.labels)]

    def collect(self) -> Iterable[_Family]:
        """Return the metric with its values of now, by labels."""
        (family,) = self.describe()
        for labels, value in self._values().items():
            family.add_metric([labels] if isinstance(labels, str) else labels, value)
        return [family]
