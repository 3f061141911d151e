"""Every panel has data, from the pages of a real worker, API, scheduler and console that work went through.

There is no Prometheus here: promtool evaluates each panel's query over series made of two readings of each page.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Message
from prometheus_client.parser import text_string_to_metric_families

from retry.clock import wall_ms
from tests.conftest import Deploy, Schedulings
from tests.support import promql
from tests.support.console_process import ConsoleProcess
from tests.support.deployment import Deployment
from tests.support.hosts import Host
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.promql import Asked
from tests.support.scheduler import Scheduling
from tests.support.timers import Api
from tests.support.tools import run

pytestmark = pytest.mark.slow

_MINUTE_MS = 60_000
# Whatever comes back was due long enough ago for its settle time to be over.
_AGO_MS = 30 * _MINUTE_MS
DEFAULTS = (
    "{backoff: {kind: constant, delay: 1s, max_delay: 2h}, jitter: none, max_attempts: 1, honour_retry_at: true, group: billing}"
)
# What waits is looked at some seconds after the start, and then every minute.
_LOOKED_S = 200.0

Page = dict[str, float]


class Run:
    """A deployment whose consumer always fails, with timers, schedules and the console beside it."""

    def __init__(self, deployment: Deployment, host: Host, scheduling: Scheduling) -> None:
        self._deployment, self._host, self._scheduling = deployment, host, scheduling
        (self._letters, self._idle) = deployment.dead_letters
        retry_topic = deployment.retry_of(self._letters)
        with deployment.policy_file.open("a") as file:
            file.write(f"targets:\n  {retry_topic}: {{breaker: {{failures: 1000, within: 1m, open_for: 1s}}}}\n")
        self._sender = Sender(deployment.bootstrap_servers)
        self._group = Consumer({
            "bootstrap.servers": deployment.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        })  # fmt: skip
        self._group.subscribe([retry_topic])
        self.worker = deployment.worker().start().await_ready()
        assert deployment.command("pause", "--topic", self._idle).returncode == 0
        self._wait()
        self.api, self.scheduler = Api(deployment).start(), scheduling.instance()
        self.console = ConsoleProcess(deployment).start()

    def _wait(self) -> None:
        """A letter that waits, soon due; held, since it would come back before a slow machine is through."""
        soon_ms = wall_ms() + 4 * _MINUTE_MS
        self._sender.send(self._idle, b"waits", b"", [("retry-at-ms", b"%d" % soon_ms)])
        self._sender.finish()

    def round(self) -> None:
        """Some letters that fail, come back, fail again and are parked; a call; a schedule; requests."""
        parked = self.worker.metric("retry_letters_parked_total")
        failed_ms = wall_ms() - _AGO_MS
        for n in range(5):
            self._sender.send(self._letters, b"key %d" % n, b"", [("exception-class", b"Timeout")], timestamp_ms=failed_ms)
        for record in self._back(5):
            self._sender.send(self._letters, record.key(), record.value(), record.headers() or [])
        self._sender.finish()
        timer = self.api.make(f"{self._host.url}/", after="0s")
        sent = len(self._scheduling.sent())
        self._scheduling.schedule(f"id {sent}", wall_ms() / 1_000 + 1)
        self._scheduling.flush()
        await_that("letters were parked", lambda: self.worker.metric("retry_letters_parked_total") >= parked + 5)
        await_that("the timer was called", lambda: self.api.state(timer).get("state") == "delivered")
        self._scheduling.await_sent(sent + 1)
        person = self.console.person()
        assert person.get("/").status_code == 200
        person.close()

    def _back(self, count: int) -> list[Message]:
        """Retries as the group reads them, and commits that it has."""
        found: list[Message] = []

        def came() -> bool:
            found.extend(message for message in self._group.consume(count, 0.5) if message.error() is None)
            return len(found) >= count

        await_that("retries came", came)
        self._group.commit(asynchronous=False)
        return found

    def looked(self) -> bool:
        """Whether the letter that waits is told of."""
        return all(self.worker.metric(f"retry_{name}") > 0 for name in ("entries_due_soon", "retention_left_seconds"))

    def pages(self) -> Page:
        """Read the metrics of all of them, with the labels that a ServiceMonitor adds."""
        processes: dict[str, WorkerProcess] = {
            "w": self.worker, "api": self.api.process, "s": self.scheduler, "c": self.console.process,
        }  # fmt: skip
        found = {}
        for instance, process in processes.items():
            status, page = process.get("/metrics")
            assert (status, process.get("/health/live")[0], process.get("/health/ready")[0]) == (200, 200, 200)
            found |= _samples(page, {"app": "a", "instance": instance})
        return found

    def close(self) -> None:
        self._group.close()


def _samples(page: str, target: dict[str, str]) -> Page:
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in {**target, **sample.labels}.items())
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


@pytest.fixture
def readings(deploy: Deploy, scheduling: Schedulings) -> list[Page]:
    """Two readings of every page, and between them a round of everything."""
    environ = {"RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", "RETRY_POSITIONS_EVERY_S": "1"}
    deployment = deploy({"orders": 1, "idle": 1}, shards=2, defaults=DEFAULTS, environ=environ)
    with Host() as host:
        running = Run(deployment, host, scheduling(1))
        try:
            found = []
            for _ in range(2):
                running.round()
                await_that("what waits was looked at", running.looked, _LOOKED_S)
                found.append(running.pages())
            return found
        finally:
            running.close()


def test_every_panel_has_data_and_every_metric_of_a_rule_is_exported(readings: list[Page], tmp_path: Path) -> None:
    exported = {name.partition("{")[0] for page in readings for name in page}
    asked_for = {metric for asked in promql.of_rules() for metric, _ in promql.read(asked.expression)}
    # Nobody's record was too large, no host has failed, and no key is missing: these have no series until then.
    assert asked_for - exported == {
        "retry_entries_deferred_total", "retry_hosts_blocked", "retry_entries_held", "retry_unreadable_records_total",
    }  # fmt: skip
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": [_test(readings)]}))
    tested = run("promtool", "test", "rules", file)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _test(readings: list[Page]) -> dict[str, Any]:
    values: dict[str, list[str]] = defaultdict(list)
    for name in readings[-1]:
        values[name] = [str(page[name]) if name in page else "_" for page in readings]
    asked = [_has_data(each) for each in [*promql.of_panels(), *promql.of_variables()]]
    series = [{"series": name, "values": " ".join(found)} for name, found in values.items()]
    return {"interval": "30s", "input_series": series, "promql_expr_test": asked}


def _has_data(asked: Asked) -> dict[str, Any]:
    # What is no number equals nothing, and Grafana shows nothing of it.
    expression = f"count(({asked.expression}) == ({asked.expression})) > bool 0"
    return {"expr": expression, "eval_time": "30s", "exp_samples": [{"labels": "{}", "value": 1}]}
