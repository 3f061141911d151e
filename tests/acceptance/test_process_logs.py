"""What a worker and a console log while their brokers are away: JSON alone, and nothing again and again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from retry.kafka.local_broker import LocalBroker
from tests.conftest import Deploy
from tests.support.console_process import ConsoleProcess
from tests.support.letters import Sender
from tests.support.process import await_that, let_pass

pytestmark = pytest.mark.slow

# Whatever was logged each five seconds would be there six times.
AWAY_S = 35.0


def told_apart(message: str) -> str:
    """The message without durations, which differ each time that the same is said."""
    return re.sub(r"=[0-9]+\.[0-9]+", "=", message)


def test_a_worker_and_a_console_without_brokers_log_json_and_repeat_no_line(deploy: Deploy, tmp_path: Path) -> None:
    logs = {"RETRY_LOG_FORMAT": "json", "RETRY_LOG_LEVEL": "debug"}
    with LocalBroker(tmp_path / "broker", heap_mb=384) as own:
        deployment = deploy({"orders": 1}, on=own, shards=1, environ=logs, defaults="{backoff: {kind: constant, delay: 1s}}")
        worker, console = deployment.worker().start().await_ready(), ConsoleProcess(deployment).start()
        sender = Sender(own.bootstrap_servers)
        sender.send(*deployment.dead_letters, b"key", b"a-secret-value", [])
        sender.finish()
        await_that("the letter is sent", lambda: "retry_id" in worker.log())
        own.kill()
        before = len(worker.log()), len(console.process.log())
        await_that("the worker misses its brokers", lambda: "brokers do not answer" in worker.log())
        let_pass(AWAY_S)
        told = worker.log()[before[0] :], console.process.log()[before[1] :]
        own.start()
        await_that("brokers are back", lambda: "brokers answer again" in worker.log())
        worker.terminate()
        lines = [json.loads(line) for line in worker.log().splitlines()]
    (sent,) = [line for line in lines if "retry_id" in line]
    assert (sent["level"], sent["letter"], sent["team"]) == ("DEBUG", f"{next(iter(deployment.dead_letters))}/0/0", "testers")
    assert "a-secret-value" not in worker.log()
    for text in told:
        said = [json.loads(line) for line in text.splitlines()]
        repeated = Counter((line["logger"], told_apart(line["message"])) for line in said if line["level"] != "DEBUG")
        assert max(repeated.values(), default=0) <= 2, repeated.most_common(5)
        assert len(repeated) < 40, repeated
