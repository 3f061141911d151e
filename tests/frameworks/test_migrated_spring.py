"""What waits in the retry topics of a real Spring Boot application moves here, is processed once, and is given back to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Deploy
from tests.fixtures.capture.running import jvm
from tests.frameworks.conftest import build_class_path
from tests.frameworks.test_spring_kafka import JARS
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Sender
from tests.support.reading import COMMITTED, Record, read

pytestmark = pytest.mark.release

# Long enough for the application to be away when the first retry is due.
DELAY_MS = 60_000
ORDERS = [f"order-{n}" for n in range(6)]


def run_migration(deployment: Deployment, *arguments: str) -> dict[str, Any]:
    ended = deployment.command(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_orders_that_wait_in_springs_retry_topic_move_here_and_one_of_them_back(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy({"orders": 3}, shards=1)
    (target,), orders = deployment.dead_letters, f"{deployment.app_id}.orders"
    waiting, group = f"{orders}-retry-{DELAY_MS}", f"{deployment.app_id}.shop"
    deployment.create({orders: (3, {})})
    retry = deployment.retry_topics()[0]
    deployment.policy_file.write_text(
        deployment.policy_file.read_text().replace(
            f"retry_to: {retry}", f"retry_to: origin, allowed_targets: [{orders}, {waiting}, {deployment.parked}]"
        )
    )
    jars = build_class_path(Path(__file__).with_name("RetryTopicsSpring.java"), "spring-boot", JARS, tmp_path)
    (tmp_path / "application.properties").write_text(
        f"orders={orders}\ngroup={group}\ndelay={DELAY_MS}\nspring.kafka.bootstrap-servers={deployment.bootstrap_servers}\n"
        "spring.kafka.consumer.auto-offset-reset=earliest\nspring.kafka.consumer.isolation-level=read_committed\n"
        "spring.kafka.producer.key-serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    )

    def read_committed(topic: str) -> list[Record]:
        return read(deployment.bootstrap_servers, [topic], COMMITTED)

    with jvm(jars, tmp_path, "com.example.RetryTopicsSpring"):
        sender = Sender(deployment.bootstrap_servers)
        for key in ORDERS:
            sender.send(orders, key.encode(), b"two of " + key.encode())
        sender.finish()
        await_that("all wait for their first retry", lambda: len(read_committed(waiting)) == len(ORDERS))
    due = {
        (record.key or b"").decode(): int.from_bytes(dict(record.headers)["retry_topic-backoff-timestamp"] or b"", "big")
        for record in read_committed(waiting)
    }
    # Spring has a group for each retry topic. It has read nothing there yet, and so committed nothing.
    moved = run_migration(
        deployment, "migrate", "spring-retry-topics", "--from", waiting, "--to", target, "--group", f"{group}-retry-{DELAY_MS}",
        "--yes",
    )  # fmt: skip
    assert (moved["moved"], moved["other_times"], moved["after"]) == (len(ORDERS), 0, {waiting: 0})
    worker = deployment.worker().start().await_ready()
    await_that("all wait here", lambda: worker.metric("retry_entries_waiting") == len(ORDERS))
    back = run_migration(deployment, "act", "redirect", f"key:{ORDERS[0]}", "--to", waiting, "--yes", "--wait", "2m")
    assert back["done"] == 1
    (tmp_path / "storehouse").mkdir()
    with jvm(jars, tmp_path, "com.example.RetryTopicsSpring"):

        def stored() -> dict[str, list[str]]:
            return {file.name: file.read_text().splitlines() for file in tmp_path.glob("storehouse/*")}

        await_that("each order is processed", lambda: stored().keys() == set(ORDERS))
        retried = {(record.key or b"").decode(): record for record in read_committed(orders) if record.header("retry-attempt")}
        assert retried.keys() == set(ORDERS[1:])
        assert {key: int(record.header("retry-due-ms")) for key, record in retried.items()} == {key: due[key] for key in retried}
        assert {record.header("retry-attempt") for record in retried.values()} == {"1"}
        # The one that was given back was read from its retry topic, by the offset of Spring's group.
        asked = ("migrate", "spring-retry-topics", "--from", waiting, "--to", target)
        nothing = {waiting: {"group": f"{group}-retry-{DELAY_MS}", "records": 0}}
        await_that("nothing waits there", lambda: run_migration(deployment, *asked)["before"] == nothing)
        assert stored() == {key: [f"two of {key}"] for key in ORDERS}
    worker.terminate()
