"""Recurring tasks on one machine, in half a minute: `python -m examples.tasks`.

A broker, a worker, and four definitions: one of a second, one by cron, one that is done once, and one that cannot be read.
The first is changed, then deleted. Each run is shown as its consumer sees it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.lifetime import killed_on_failure, run_demo
from examples.stage import DemoFailed, Stage
from retry.clock import Deadline
from retry.kafka.local_broker import LocalBroker

DEFINITIONS, PARKED = "task-schedules", "task-schedules.parked"
RUNS = ("invoices.due", "sensors.poll")
POLICIES = Path(__file__).with_name("tasks.yaml")
_ALL_S = 90.0
Say = Callable[[str], None]


def main(folder: Path) -> None:
    """Run the example on a broker of its own."""
    deadline = Deadline(_ALL_S)
    with killed_on_failure(LocalBroker(folder / "broker")) as broker:
        settings = {
            "RETRY_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "RETRY_POLICIES": str(POLICIES),
            "RETRY_DATA_DIR": str(folder / "worker"),
            "RETRY_SHARDS": "2",
            "RETRY_HTTP_ADDR": "127.0.0.1:0",
        }
        with Stage(folder, settings) as stage:
            create_topics(broker.bootstrap_servers)
            stage.run("topics", "create", deadline=deadline)
            stage.start("worker", "retry", "worker")
            stage.await_ready("worker", deadline)
            play(stage, broker.bootstrap_servers, print, deadline)
            stage.stop()


def create_topics(servers: str) -> None:
    """The topics of definitions and of runs."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    new = [NewTopic(DEFINITIONS, 3, 1, config={"cleanup.policy": "compact"}), *(NewTopic(topic, 1, 1) for topic in RUNS)]
    for done in admin.create_topics(new).values():
        done.result(20)


def play(stage: Stage, servers: str, say: Say, deadline: Deadline) -> None:
    """Define tasks, change one, end one, and show what comes of it; a worker runs that reads `tasks.yaml`, or as much.

    Raises:
      DemoFailed: something else came, or nothing in time.
    """
    runs = Consumer({"bootstrap.servers": servers, "group.id": "example", "isolation.level": "read_committed",
                     "auto.offset.reset": "earliest", "log_level": 2})  # fmt: skip
    runs.subscribe([*RUNS, PARKED])
    with closing(runs):
        _play(stage, runs, Producer({"bootstrap.servers": servers, "log_level": 2}), say, deadline)


def _play(stage: Stage, runs: Consumer, producer: Producer, say: Say, deadline: Deadline) -> None:
    say("defined: one a second, one by cron, one done once, and one that cannot be read")
    _define(producer, "poll", {"frequencyTimeUnit": "SECONDS", "time": 1}, "sensors.poll")
    _define(producer, "invoices", {"cron": "0 6 * * MON-FRI", "timeZone": "Europe/Berlin"}, "invoices.due")
    _define(producer, "now", None, "invoices.due")
    _define(producer, "odd", {"frequencyTimeUnit": "FORTNIGHTS", "time": 1}, "invoices.due")
    _show_until({"poll 3", "now 0", "parked"}, runs, say, stage, deadline)
    say("changed: every two seconds")
    _define(producer, "poll", {"frequencyTimeUnit": "SECONDS", "time": 2}, "sensors.poll")
    # Its runs are counted anew.
    _show_until({"poll 1", "poll 2"}, runs, say, stage, deadline)
    producer.produce(DEFINITIONS, None, _key("poll"))
    producer.flush(10)
    while "sensors.poll" in (waiting := stage.run("tasks", "list", deadline=deadline)):
        stage.check()
        if deadline.has_passed():
            raise DemoFailed("time is up: the task that was deleted still waits")
    if "invoices.due" not in waiting:
        raise DemoFailed(f"the other task does not wait any more: {waiting}")
    say(f"deleted; what waits now: {waiting.strip()}")


def _define(producer: Producer, name: str, frequency: object, output: str) -> None:
    definition = {"frequency": frequency, "config": {"outputTopic": output}, "data": {"for": name}}
    producer.produce(DEFINITIONS, json.dumps(definition), _key(name))
    producer.flush(10)


def _key(name: str) -> str:
    return json.dumps({"customerId": "acme", "taskName": name})


def _show_until(expected: set[str], runs: Consumer, say: Say, stage: Stage, deadline: Deadline) -> None:
    seen: list[str] = []
    while not expected <= set(seen):
        stage.check()
        if deadline.has_passed():
            raise DemoFailed(f"time is up; of {expected} only {seen} came")
        seen += [_describe(message, say) for message in runs.consume(1, 0.2) if message.error() is None]


def _describe(message: Message, say: Say) -> str:
    headers = {name: (value or b"").decode() for name, value in _headers(message)}
    name = json.loads(message.key() or b"{}")["taskName"]
    if message.topic() == PARKED:
        say(f"parked  {name}: {headers['retry-parked-fault']}")
        return "parked"
    late_ms = message.timestamp()[1] - int(headers["task-due-ms"])
    say(f"{message.topic():13} {name}, run {headers['task-run']}, {late_ms} ms after it was due")
    return f"{name} {headers['task-run']}"


def _headers(message: Message) -> Iterable[tuple[str, bytes | None]]:
    return message.headers() or ()


if __name__ == "__main__":
    run_demo(main, print)
