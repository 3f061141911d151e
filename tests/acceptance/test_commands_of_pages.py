"""Each `retry` command that README, how-to and reference pages show does what a reader expects of it: it ends well."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from retry.__main__ import main
from tests.conftest import Deploy
from tests.support.deployment import APPEND_TIME, Deployment, await_that
from tests.support.pages import PAGES, ROOT, blocks, retry_commands

pytestmark = pytest.mark.check

# What runs until it is stopped, ends what there was, or waits for Spark has tests of its own, which name the last word.
ELSEWHERE = {
    "worker": "tests/acceptance/test_worker_command.py",
    "worker --processes": "tests/acceptance/test_processes.py",
    "worker --adopt-empty-changelog": "tests/acceptance/test_fault_topics.py",
    "api": "tests/support/timers.py",
    "scheduler": "tests/support/scheduler.py",
    "console": "tests/support/asked_console.py",
    # It looks at all topics, and others of this broker come and go.
    "discover": "tests/integration/test_discover_cluster.py",
    "act": "tests/acceptance/test_acted_letters.py",
    # It ends with 3 where no letter has that key.
    "erase": "tests/acceptance/test_erased_letters.py",
    **{f"actions {order}": "tests/acceptance/test_acted_letters.py" for order in ("hold", "resume", "cancel", "members")},
    "actions show": "tests/acceptance/test_ramped_letters.py",
    # It asks for topics of other services.
    "migrate spring-retry-topics": "tests/integration/test_migrate.py",
    "migrate scheduler": "tests/integration/test_migrate_schedules.py",
    "analytics report": "tests/acceptance/test_analytics.py",
    "analytics advise": "tests/integration/test_advise_commands.py",
    "analytics what-if": "tests/integration/test_advise_commands.py",
    "analytics ingest": "tests/support/ingesting.py",
    "analytics compact": "tests/acceptance/test_compact_killed.py",
}
POLICIES = """
teams:
  payments:
    topics: [{dead_letters: payments.orders.DLT, retry_to: payments.orders.retry, backoff: {kind: constant, delay: 1h}}]
tasks: {topics: [task-schedules], allowed_targets: [invoices.due]}
"""
TOPICS = {"payments.orders.DLT": 2, "payments.orders.retry": 2, "task-schedules": 1, "invoices.due": 1}
TASK = b'{"customerId": "acme", "taskName": "invoice"}'
DAILY = b'{"frequency": {"unit": "DAYS", "time": 1}, "config": {"outputTopic": "invoices.due"}, "data": {}}'


def commands() -> Iterator[str]:
    """Every command, once, in the order of the pages; those of tutorials are typed in tests of their own."""
    pages = [page for page in PAGES if page.parent.name != "tutorial"]
    shown = [shlex.join(words) for page in pages for block in blocks(page) for words in retry_commands(block.shell())]
    return iter(dict.fromkeys(shown))


def elsewhere(command: str) -> str | None:
    """The longest beginning of a command that has a test of its own."""
    return max((begin for begin in ELSEWHERE if f"{command} ".startswith(f"{begin} ")), key=len, default=None)


@pytest.mark.parametrize("begin", ELSEWHERE)
def test_a_command_that_is_not_run_here_is_run_by_a_test_of_its_own(begin: str) -> None:
    assert f'"{begin.split()[-1]}"' in (ROOT / ELSEWHERE[begin]).read_text()


def test_every_command_of_the_pages_ends_well(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = deploy({"others": 1}, shards=2)
    deployment.policy_file.write_text(POLICIES)
    (deployment.folder / "advised.yaml").write_text(POLICIES)
    deployment.create({topic: (partitions, APPEND_TIME) for topic, partitions in TOPICS.items()})
    worker = deployment.worker().start().await_ready()
    _fail(deployment)
    await_that("letters and a task wait", lambda: worker.metric("retry_entries_waiting") == 3)
    monkeypatch.chdir(deployment.folder)
    ran = [_run(deployment, command, worker.data_dir) for command in commands() if not elsewhere(command)]
    assert len(ran) > 20


def _fail(deployment: Deployment) -> None:
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers})
    for partition in range(2):
        headers = {"exception-class": b"com.acme.GatewayTimeout"}
        producer.produce("payments.orders.DLT", b"{}", b"order", partition=partition, headers=headers)
    producer.produce("task-schedules", DAILY, TASK)
    assert producer.flush(60) == 0


def _run(deployment: Deployment, command: str, data_dir: Path) -> str:
    # The day that a page names passes by; what is to come must be to come whenever this runs.
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    dated = re.sub(r"--until \d{4}-\d\d-\d\dT", f"--until {tomorrow}T", command)
    words = [str(data_dir) if word == "/var/lib/retry" else word for word in shlex.split(dated)]
    ended = CliRunner().invoke(main, words, env=deployment.environ)
    assert ended.exit_code == 0, f"retry {command}\n{ended.output}{ended.exception or ''}"
    return command
