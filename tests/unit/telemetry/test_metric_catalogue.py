"""Metrics are declared once: what is exported is in the table, with its type and labels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from retry.scheduling.messages.composition import SchedulerMetrics
from retry.scheduling.timers.routes import Web
from retry.telemetry import prometheus
from retry.telemetry.metrics import Metrics
from retry.telemetry.prometheus import Metric
from retry.telemetry.recovery_ratio import Retry
from tests.support.metrics import read_exported

NOW_MS = 1_700_000_000_000


class View:
    """The questions that pages of an API ask."""

    trouble = ""

    def count_waiting(self) -> int:
        return 3

    def is_ready(self) -> bool:
        return True


def describe_metric(metric: Metric) -> tuple[str, tuple[str, ...]]:
    return metric.type, tuple(sorted(metric.labels))


def test_names_are_unique_and_say_what_they_are() -> None:
    of = prometheus
    every = (*of.WORKER, *of.SCHEDULER, *of.API, *of.CONSOLE, *of.EVERY)
    assert len({metric.name for metric in every}) == len(every)
    for metric in every:
        assert metric.type in ("counter", "gauge", "histogram")
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert metric.meaning
        assert "|" not in metric.meaning


def test_the_api_exports_what_is_declared() -> None:
    unused: Any = None
    web = Web(unused, View(), unused, unused)  # type: ignore[arg-type]
    web._answered.labels("GET", "200").inc()
    declared = {metric.name: describe_metric(metric) for metric in prometheus.API}
    unreadable = "retry_unreadable_records_total"
    # Nothing was passed over yet.
    declared[unreadable] = "counter", ()
    assert read_exported(prometheus.render_metrics(web.registry)) == declared


def test_a_worker_counts_what_is_declared_and_a_scheduler_one_thing_more() -> None:
    pages = []
    for told in (Metrics(), SchedulerMetrics(NOW_MS, "parked")):
        told.tell_taken({("a", "retry"): 1}, {"unknown": 1})
        told.tell_failures({("a", "java.io.IOException", 0): 1})
        told.tell_back({Retry("a", "a/x", "1", NOW_MS // 60_000): 1}, NOW_MS)
        told.tell_parked({("a", "a/x", "rule"): 1})
        told.tell_put_back(Counter({"t": 1}))
        pages.append(read_exported(told.render_metrics().decode()))
    for name, (kind, labels) in pages[1].items():
        assert kind == prometheus.DECLARED[name].type
        assert labels in ((), describe_metric(prometheus.DECLARED[name])[1])
    assert pages[1].keys() - pages[0].keys() == {metric.name for metric in prometheus.SCHEDULER}


@pytest.mark.parametrize("make", [prometheus.counter, prometheus.histogram])
def test_what_is_not_declared_or_otherwise_is_not_made(make: Any) -> None:
    with pytest.raises(KeyError):
        make(CollectorRegistry(), "retry_something_total")
    with pytest.raises(KeyError, match="declared a gauge"):
        make(CollectorRegistry(), "retry_lineages")
