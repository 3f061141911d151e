"""A ramp on real brokers: a consumer that fails three of ten letters stops it; once that is mended, it comes to its end."""

from __future__ import annotations

import json
import signal
import uuid
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from tests.acceptance.test_acted_letters import WAITING, came, deploy_with_waiting, numbers, run_act
from tests.conftest import Deploy
from tests.support import policies
from tests.support.deployment import Deployment
from tests.support.process import await_that
from tests.support.reading import COMMITTED, QUIET, Tail

pytestmark = pytest.mark.check

_ASK_S = 120.0


class Failing:
    """A consumer group that fails on three of ten letters, until it is mended; it dead-letters them, and then commits.

    Attributes:
      failed: numbers of the letters that it has dead-lettered.
    """

    def __init__(self, deployment: Deployment, group: str, *, keeps_headers: bool) -> None:
        self.failed: list[int] = []
        self.mended = Event()
        ((self._dead_letters, _),) = deployment.dead_letters.items()
        self._keeps_headers, self._stop = keeps_headers, Event()
        self._producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "logger": QUIET})
        self._consumer = Consumer({
            "bootstrap.servers": deployment.bootstrap_servers, "group.id": group, "isolation.level": COMMITTED,
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50, "logger": QUIET,
        })  # fmt: skip
        self._consumer.subscribe(deployment.retry_topics())
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            records = [m for m in self._consumer.consume(500, 0.1) if m.error() is None]
            for record in records:
                self._process(record)
            if records:
                assert self._producer.flush(_ASK_S) == 0
                self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def _process(self, record: Message) -> None:
        number = json.loads(record.value() or b"")["n"]
        if not self.mended.is_set() and number % 10 < 3:
            self.failed.append(number)
            headers = record.headers() if self._keeps_headers else None
            self._producer.produce(self._dead_letters, record.value(), record.key(), headers=headers)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2 * _ASK_S)
        assert not self._thread.is_alive()


def show_action(deployment: Deployment, action: str) -> dict[str, Any]:
    """Run `retry actions show` and return what it prints."""
    told = deployment.command("actions", "show", action)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def sums(told: dict[str, Any]) -> dict[str, int]:
    """The numbers of all steps together."""
    return {name: sum(step[name] for step in told["ramp"]["steps"]) for name in ("put", "sent", "failed", "passed")}


def test_a_consumer_that_fails_three_of_ten_stops_the_ramp_and_mended_and_resumed_it_ends(deploy: Deploy) -> None:
    letters, group = 400, f"billing-{uuid.uuid4().hex[:8]}"
    deployment, worker = deploy_with_waiting(deploy, letters, topic_keys=f"group: {group}")
    consumer = Failing(deployment, group, keeps_headers=True)
    shown_first = deployment.command("act", "retry", "state:waiting", "--ramp", "--settle", "1s")
    assert "in steps of 1, 2, 5, 20, 50, 200, 122, as long as 90% recover" in shown_first.stdout
    assert "no consumer group is named" not in shown_first.stdout
    held = run_act(deployment, "retry", "state:waiting", "--ramp", "--settle", "1s", code=4)
    assert "letters failed again, so at most" in held["held"]["reason"]
    told = show_action(deployment, held["action"])
    (at,) = [step for step in told["ramp"]["steps"] if step["status"] == "held"]
    assert (told["status"], at["bound"] < 0.9) == ("held", True)
    assert {step["status"] for step in told["ramp"]["steps"][at["step"] :]} <= {"waits"}
    worker.kill()
    worker.start().await_ready()
    sent, tail = len(came(deployment)), Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(sent)
    assert tail.quiet(2.0) == []
    again = len(consumer.failed)
    told = show_action(deployment, held["action"])
    assert sums(told) == {"put": sent, "sent": sent, "failed": again, "passed": sum(
        step["put"] - step["failed"] for step in told["ramp"]["steps"][: at["step"] - 1]
    )}  # fmt: skip
    # The first three letters may be three that fail, so that all that were sent have failed.
    assert 0 < again <= sent < letters

    consumer.mended.set()
    assert deployment.command("actions", "resume", held["action"], "--reason", "mended").returncode == 0
    await_that("it ends", lambda: show_action(deployment, held["action"])["status"] == "done")
    told = show_action(deployment, held["action"])
    assert (told["done"], told["gone"], told["ramp"]["counts_from"]) == (letters, 0, at["step"] + 1)
    assert (sums(told)["sent"], sums(told)["failed"], sums(told)["passed"]) == (letters, again, letters - again)
    assert numbers(came(deployment)) == list(range(letters))
    # Those that failed again wait as their policy says.
    assert worker.metric("retry_entries_waiting") == again
    consumer.close()
    tail.close()
    worker.terminate()


@pytest.mark.slow
def test_without_a_named_group_silence_counts_and_a_breaker_that_opens_holds_the_ramp(deploy: Deploy) -> None:
    letters = 58
    deployment, worker = deploy_with_waiting(deploy, letters)
    # Of the first 28 letters of 58 hardly ever less than two fail, so that the breaker opens before the last step.
    (topic,) = deployment.dead_letters
    limits = f"{{{deployment.retry_of(topic)}: {{breaker: {{failures: 2, within: 1m, open_for: 2s}}}}}}"
    team = {"testers": policies.team(policies.topic(deployment, topic))}
    deployment.policy_file.write_text(policies.text(team, WAITING, limits))
    worker.signal(signal.SIGHUP)
    consumer = Failing(deployment, f"nameless-{uuid.uuid4().hex[:8]}", keeps_headers=False)
    asked = "retry", "state:waiting", "--ramp", "--keep", "0.01", "--silence", "4s"
    shown_first = deployment.command("act", *asked)
    retry_topic = deployment.retry_topics()[0]
    assert f"no consumer group is named for {retry_topic}: their steps have passed after 4s of silence" in shown_first.stdout
    held = run_act(deployment, *asked, code=4)
    assert held["held"]["reason"] == f"the breaker of {retry_topic} is open"
    consumer.mended.set()

    def has_ended() -> bool:
        """Resumed as often as the breaker is found open."""
        if (status := show_action(deployment, held["action"])["status"]) == "held":
            deployment.command("actions", "resume", held["action"])
        return status == "done"

    await_that("it ends", has_ended)
    told = show_action(deployment, held["action"])
    assert (told["done"], told["ramp"]["passed_in_silence"]) == (letters, [retry_topic])
    assert [step["status"] for step in told["ramp"]["steps"]] == ["passed"] * 5
    failed = len(consumer.failed)
    assert sums(told) == {"put": letters, "sent": letters, "failed": failed, "passed": letters - failed}
    assert 2 <= failed == len(set(consumer.failed))
    consumer.close()
    worker.signal(signal.SIGTERM)
    worker.wait(60)


@pytest.mark.slow
def test_parked_letters_come_back_in_steps_once_each_though_workers_are_killed(deploy: Deploy) -> None:
    letters, group = 300, f"billing-{uuid.uuid4().hex[:8]}"
    deployment, worker = deploy_with_waiting(deploy, letters, shards=4, topic_keys=f"group: {group}")
    assert run_act(deployment, "park", "state:waiting")["done"] == letters
    await_that("all are parked", lambda: len(came(deployment, deployment.parked)) == letters)
    other = deployment.worker("b").start().await_ready()
    consumer = Failing(deployment, group, keeps_headers=True)
    consumer.mended.set()
    asked = deployment.command("act", "retry", "state:parked", "--ramp", "--settle", "500ms", "--yes", "--json", "--wait", "1ms")
    assert asked.returncode == 1, asked.stderr
    action = json.loads(asked.stdout)["action"]
    for number, each in enumerate((worker, other, worker), 2):
        await_that(f"{number} steps have passed", lambda: count_passed_steps(deployment, action) >= number)  # noqa: B023
        each.kill()
        each.start().await_ready()
    await_that("it ends", lambda: show_action(deployment, action)["status"] == "done")
    told = show_action(deployment, action)
    assert (told["done"], told["gone"], told["refused"]) == (letters, 0, {})
    assert sums(told) == {"put": letters, "sent": letters, "failed": 0, "passed": letters}
    assert numbers(came(deployment)) == list(range(letters))
    consumer.close()
    for each in (worker, other):
        each.terminate()


def count_passed_steps(deployment: Deployment, action: str) -> int:
    return sum(step["status"] == "passed" for step in show_action(deployment, action)["ramp"]["steps"])
