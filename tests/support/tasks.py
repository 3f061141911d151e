"""Recurring tasks of a deployment: topics, policy file, definitions, runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Named
from tests.support.deployment import Deployment
from tests.support.reading import COMMITTED, QUIET, Record, read

Task = tuple[str, str]
_WITHIN_S = 90.0


class Run(NamedTuple):
    """One run of a task as its consumer sees it; `made_ms` is when it was sent, by the worker's clock."""

    number: int
    due_ms: int
    made_ms: int
    record: Record


class Tasks:
    """The tasks of a deployment, which is given a policy file that allows `outputs` topics of one partition.

    Attributes:
      topic: of definitions; compacted.
      outputs: where runs may go.
    """

    def __init__(self, deployment: Deployment, *, partitions: int = 3, outputs: int = 2, **keys: object) -> None:
        self.deployment = deployment
        self.topic = f"{deployment.app_id}.task-schedules"
        self.outputs = [f"{deployment.app_id}.runs-{n}" for n in range(outputs)]
        wanted: dict[str, tuple[int, dict[str, str]]] = {topic: (1, {}) for topic in self.outputs}
        deployment.create({self.topic: (partitions, {"cleanup.policy": "compact"}), **wanted})
        section = {"topics": [self.topic], "allowed_targets": self.outputs, "park_to": deployment.parked, "shortest": "1ms"}
        deployment.policy_file.write_text(f"tasks: {json.dumps(section | keys)}\n")
        own = {"bootstrap.servers": deployment.bootstrap_servers, "partitioner": "murmur2_random", "logger": QUIET}
        self._producer = Producer(own)

    def send(self, key: bytes | None, value: bytes | None, partition: int = -1) -> int:
        """Send a record of the topic of definitions; its timestamp."""
        told: list[Any] = []
        self._producer.produce(self.topic, value, key, partition, on_delivery=lambda *answer: told.append(answer))
        assert self._producer.flush(_WITHIN_S) == 0
        error, message = told[0]
        assert error is None, error
        return int(message.timestamp()[1])

    def define(self, task: Task, frequency: object, output: int = 0, data: str = "", **configurations: str) -> int:
        """Define a task in JSON; the definition's timestamp. `cron="…"` stands for `schedule.cron`."""
        key = {"customerId": task[0], "taskName": task[1]}
        configured = {f"schedule.{name}": text for name, text in configurations.items()}
        config = {"outputTopic": self.outputs[output], "configurations": configured}
        value = {**key, "frequency": frequency, "config": config, "data": {"is": data}}
        return self.send(_json(key), _json(value))

    def end(self, task: Task) -> None:
        """End a task by deleting its definition."""
        self.send(_json({"customerId": task[0], "taskName": task[1]}), None)

    def runs(self) -> dict[Task, list[Run]]:
        """List what consumers were sent, by task, in the order in which it lies in its topic."""
        found: defaultdict[Task, list[Run]] = defaultdict(list)
        for record in read(self.deployment.bootstrap_servers, self.outputs, COMMITTED):
            run = Run(int(record.header("task-run")), int(record.header("task-due-ms")), record.timestamp_ms, record)
            key = json.loads(record.key or b"{}")
            found[key["customerId"], key["taskName"]].append(run)
        return found

    def sent(self, output: int) -> list[Record]:
        """All that lies in an output topic, runs that were backfilled among them."""
        return read(self.deployment.bootstrap_servers, [self.outputs[output]], COMMITTED)

    def waiting(self) -> dict[str, tuple[int, Named]]:
        """Due time and entry of every task that waits in the changelog, by the task's name."""
        found: dict[bytes, bytes | None] = {}
        for record in read(self.deployment.bootstrap_servers, [self.deployment.names.changelog], COMMITTED):
            found[record.key or b""] = record.value
        named = ((key, value) for key, value in found.items() if value is not None and _waits(key))
        return {
            json.loads(entry.key or b"{}").get("taskName", "?"): (entry_keys.due_at_ms(key), entry)
            for key, entry in ((key, envelopes.decode_named(value)) for key, value in named)
        }

    def parked(self) -> list[Record]:
        """Read what could not be used."""
        return read(self.deployment.bootstrap_servers, [self.deployment.parked], COMMITTED)


def _waits(key: bytes) -> bool:
    """Whether it is the key of a task, and not of a cancel, which is remembered for some time."""
    return key[:1] == bytes([entry_keys.NAMED]) and not key.startswith(entry_keys.CANCEL)


def seconds(time: int) -> dict[str, object]:
    """Write a frequency in seconds."""
    return {"frequencyTimeUnit": "SECONDS", "time": time}


def milliseconds(time: int) -> dict[str, object]:
    """Write a frequency in milliseconds."""
    return {"frequencyTimeUnit": "MILLISECONDS", "time": time}


def at_least(tasks: Tasks, count: int, *of: Task) -> Callable[[], bool]:
    """Whether each of some tasks has had so many runs."""

    def had() -> bool:
        runs = tasks.runs()
        return all(len(runs.get(task, ())) >= count for task in of)

    return had


def numbers(runs: Iterable[Run]) -> list[int]:
    """Which runs they are."""
    return [run.number for run in runs]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
