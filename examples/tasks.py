"""Recurring tasks on one machine, in half a minute: `python -m examples.tasks`.

A broker, a worker, and four definitions: one of a second, one by cron, one that is done once, and one that cannot be read.
The first is changed, then deleted. Each run is shown as its consumer sees it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.screen import Screen
from examples.stage import DemoFailed, Stage
from retry.clock import Deadline
from retry.errors import RetryError
from retry.kafka.local_broker import LocalBroker

DEFINITIONS, PARKED = "task-schedules", "task-schedules.parked"
RUNS = ("invoices.due", "sensors.poll")
POLICIES = Path(__file__).with_name("tasks.yaml")
_ALL_S = 90.0


def main() -> int:
    """Run the example; 0 if all went as it must."""
    screen, deadline = Screen(), Deadline(_ALL_S)
    try:
        with tempfile.TemporaryDirectory(prefix="retry-tasks-") as folder, LocalBroker(Path(folder) / "broker") as broker:
            settings = {
                "RETRY_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
                "RETRY_POLICIES": str(POLICIES),
                "RETRY_DATA_DIR": str(Path(folder) / "worker"),
                "RETRY_SHARDS": "2",
                "RETRY_HTTP_ADDR": "127.0.0.1:0",
            }
            with Stage(Path(folder), settings) as stage:
                create_topics(broker.bootstrap_servers)
                stage.run("topics", "create", deadline=deadline)
                stage.start("worker", "retry", "worker")
                stage.await_ready("worker", deadline)
                play(stage, broker.bootstrap_servers, screen, deadline)
                stage.stop()
    except (DemoFailed, RetryError, KafkaException) as failed:
        screen.say(f"FAILED: {failed}")
        return 1
    return 0


def create_topics(servers: str) -> None:
    """The topics of definitions and of runs."""
    admin = AdminClient({"bootstrap.servers": servers})
    new = [NewTopic(DEFINITIONS, 3, 1, config={"cleanup.policy": "compact"}), *(NewTopic(topic, 1, 1) for topic in RUNS)]
    for done in admin.create_topics(new).values():
        done.result(20)


def play(stage: Stage, servers: str, screen: Screen, deadline: Deadline) -> None:
    """Define tasks, change one, end one, and show what comes of it; a worker runs that reads `tasks.yaml`, or as much.

    Raises:
      DemoFailed: something else came, or nothing in time.
    """
    runs = Consumer({"bootstrap.servers": servers, "group.id": "example", "isolation.level": "read_committed",
                     "auto.offset.reset": "earliest"})  # fmt: skip
    runs.subscribe([*RUNS, PARKED])
    producer = Producer({"bootstrap.servers": servers})

    screen.say("defined: a task of a second, one by cron, one that is done once, and one that cannot be read")
    _define(producer, "poll", {"frequencyTimeUnit": "SECONDS", "time": 1}, "sensors.poll")
    _define(producer, "invoices", {"cron": "0 6 * * MON-FRI", "timeZone": "Europe/Berlin"}, "invoices.due")
    _define(producer, "now", None, "invoices.due")
    _define(producer, "odd", {"frequencyTimeUnit": "FORTNIGHTS", "time": 1}, "invoices.due")
    seen = _show(runs, screen, 6, stage, deadline)
    if not {"poll 3", "now 0", "parked"} <= set(seen):
        raise DemoFailed(f"not what must come: {seen}")
    screen.say("changed: every two seconds")
    _define(producer, "poll", {"frequencyTimeUnit": "SECONDS", "time": 2}, "sensors.poll")
    seen = _show(runs, screen, 3, stage, deadline)
    if not {"poll 1", "poll 2"} <= set(seen):
        raise DemoFailed(f"it does not begin anew: {seen}")
    screen.say("deleted; what waits now:")
    producer.produce(DEFINITIONS, None, _key("poll"))
    producer.flush(10)
    while "sensors.poll" in (waiting := stage.run("entries", deadline=deadline)):
        stage.check()
    if "invoices.due" not in waiting:
        raise DemoFailed(f"the other task does not wait any more: {waiting}")
    screen.say(waiting)
    runs.close()


def _define(producer: Producer, name: str, frequency: object, output: str) -> None:
    definition = {"frequency": frequency, "config": {"outputTopic": output}, "data": {"for": name}}
    producer.produce(DEFINITIONS, json.dumps(definition), _key(name))
    producer.flush(10)


def _key(name: str) -> str:
    return json.dumps({"customerId": "acme", "taskName": name})


def _show(runs: Consumer, screen: Screen, count: int, stage: Stage, deadline: Deadline) -> list[str]:
    seen: list[str] = []
    while len(seen) < count:
        stage.check()
        if deadline.passed():
            raise DemoFailed(f"time is up after {seen}")
        seen += [_told(message, screen) for message in runs.consume(1, 0.2) if message.error() is None]
    return seen


def _told(message: Message, screen: Screen) -> str:
    headers = {name: (value or b"").decode() for name, value in _headers(message)}
    name = json.loads(message.key() or b"{}")["taskName"]
    if message.topic() == PARKED:
        screen.say(f"  parked  {name}: {headers['retry-parked-fault']}")
        return "parked"
    late_ms = message.timestamp()[1] - int(headers["task-due-ms"])
    screen.say(f"  {message.topic():13} {name}, run {headers['task-run']}, {late_ms} ms after it was due")
    return f"{name} {headers['task-run']}"


def _headers(message: Message) -> Iterable[tuple[str, bytes | None]]:
    return message.headers() or ()


if __name__ == "__main__":
    sys.exit(main())
