"""A whole worker in memory tells of itself what is declared, and counts what it does."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from retry import clock
from retry.kafka import topics
from retry.settings import Settings
from retry.telemetry import prometheus
from retry.telemetry.metrics import Metrics
from retry.worker import composition
from retry.worker.backlog import BacklogGauges
from tests.simulation import worker
from tests.simulation.outside import Outside
from tests.simulation.plan import APP
from tests.simulation.world import World
from tests.support.metrics import read_exported

STEPS_MAX = 20_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(worker, "_Unmeasured", Metrics)
    # One of those in which workers live long enough to count.
    world = World(seed := 5)
    world.outside = Outside(world, seed)
    clock.use(world)
    yield world
    clock.use(clock.MACHINE)


def test_a_worker_exports_what_is_declared_and_nothing_else(world: World) -> None:
    world.calm = True
    world.start(world.hosts[0])
    process = world.hosts[0].process
    assert process is not None
    metrics, shards = process.engine.metrics, process.shards
    settings, names = Settings(app_id=APP), topics.build_topic_names(APP)
    unused: Any = None
    context: Any = SimpleNamespace(
        settings=settings, admin=unused, metrics=metrics, traces=None, partitions={names.outcomes: 4}
    )  # fmt: skip
    composition._webhooks(context, names)
    composition._watch_backlog(BacklogGauges(shards.list_open_shards, dict.fromkeys), metrics)
    composition._watch_lag(context, dict, unused)
    metrics.watch_each("retry_letters_unread", dict)
    page = read_exported(metrics.render_metrics().decode())
    # Of those that every process has, only this is watched where there are no brokers.
    assert page.keys() == {metric.name for metric in prometheus.WORKER} | {"retry_unreadable_records_total"}
    for name, (kind, labels) in page.items():
        metric = prometheus.DECLARED[name]
        assert kind == metric.type, name
        assert labels in ((), tuple(sorted(metric.labels))), name


def test_retries_and_those_that_come_back_are_counted(world: World) -> None:
    seen = {"retry_retries_sent_total": 0.0, "retry_letters_failed_again_total": 0.0}
    for _ in range(STEPS_MAX):
        if all(seen.values()):
            break
        world.something()
        for host in world.hosts:
            if host.process is not None and host.process.ready:
                for family in host.process.engine.metrics.registry.collect():
                    name = f"{family.name}_total"
                    if name in seen:
                        seen[name] = max(seen[name], sum(s.value for s in family.samples if s.name == name))
    assert all(count > 0 for count in seen.values()), seen
