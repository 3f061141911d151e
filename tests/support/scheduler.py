"""A scheduler for one test: its topics, its environment, its processes, and what was sent to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from retry.kafka import topics
from retry.scheduling import client
from tests.support.process import ROOT, WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET, Record, admin, read
from tests.support.topics import create_all

_REST = re.compile(r"rest on 127\.0\.0\.1:(\d+)(?=\s)")
COMPACTED = {"cleanup.policy": "compact", "retention.ms": "-1"}


class Scheduling:
    """Topics of a scheduler on a broker that runs, and instances of it.

    Args:
      partitions: of schedules, history and target.
      environ: more variables.
    """

    def __init__(self, bootstrap_servers: str, folder: Path, partitions: int = 3, **environ: str) -> None:
        self.id = f"s{uuid.uuid4().hex[:8]}"
        self.bootstrap_servers, self.folder, self.partitions = bootstrap_servers, folder, partitions
        self.schedules, self.history, self.target = (f"{self.id}.{name}" for name in ("schedules", "history", "target"))
        self.names = topics.build_topic_names(self.id)
        self.admin = admin(bootstrap_servers)
        self.instances: list[WorkerProcess] = []
        self.acknowledged: list[tuple[int, int]] = []
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RETRY_")},
            "PYTHONUNBUFFERED": "1", "BOOTSTRAP_SERVERS": bootstrap_servers, "GROUP_ID": self.id,
            "SCHEDULES_TOPICS": self.schedules, "HISTORY_TOPIC": self.history, "RETRY_SHARDS": "4",
            "SERVER_ADDR": "127.0.0.1:0", "METRICS_ADDR": "127.0.0.1:0", **environ,
        }  # fmt: skip
        self.create({self.schedules: COMPACTED, self.history: {}, self.target: {"message.timestamp.type": "LogAppendTime"}})
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "logger": QUIET,
                                   "queue.buffering.max.messages": 500_000})  # fmt: skip

    def create(self, wanted: dict[str, dict[str, str]]) -> None:
        """Create topics, by name with configuration."""
        new = [NewTopic(topic, self.partitions, 1, config=config) for topic, config in wanted.items()]
        create_all(self.admin, new)

    def instance(self, name: str = "a", **environ: str) -> WorkerProcess:
        """Another instance, started and ready."""
        made = WorkerProcess(name, self.folder, {**self.environ, **environ})
        self.instances.append(made)
        return self.start(made)

    @staticmethod
    def start(instance: WorkerProcess) -> WorkerProcess:
        """Start it, again, and wait until it is ready."""
        return instance.start("-m", "retry", "scheduler").await_ready()

    def schedule(self, id_: str, at: float, *, value: bytes | None = None, partition: int = -1, **other: Any) -> None:
        """Send a schedule; its value is its id unless it says otherwise."""
        told = {"topic": self.target, "key": id_.encode(), "schedules_topic": self.schedules} | other
        record = client.schedule(value=id_.encode() if value is None else value, at=at, schedule_id=id_, **told)
        self.send(partition=partition, **record)

    def cancel(self, id_: str, **where: int) -> None:
        """Send a null; `partition` and `timestamp` may be said."""
        self.send(**client.cancel(schedule_id=id_, schedules_topic=self.schedules), **where)

    def send(self, partition: int = -1, **record: Any) -> None:
        """Send a record, whatever it is."""
        self._producer.produce(**record, partition=partition, on_delivery=self._acknowledge)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all is acknowledged."""
        assert self._producer.flush(120.0) == 0

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged.append((message.partition() or 0, message.offset() or 0))

    def read(self, *names: str) -> list[Record]:
        """All committed records of topics."""
        return read(self.bootstrap_servers, names, COMMITTED)

    def sent(self) -> list[Record]:
        """All that came to the target."""
        return self.read(self.target)

    def await_sent(self, count: int, timeout_s: float = 120.0) -> list[Record]:
        """Wait until so many came to the target."""
        await_that(f"{count} were sent", lambda: len(self.sent()) >= count, timeout_s)
        return self.sent()

    @staticmethod
    def events(instance: WorkerProcess) -> dict[str, float]:
        """Read the counts of an instance by type, without what the names have in common."""
        lines = [line for line in instance.get("/metrics")[1].splitlines() if line.startswith("kafka_scheduler_event_total{")]
        told = {line.split('"')[1].removeprefix("kafka_scheduler_"): float(line.rsplit(" ", 1)[1]) for line in lines}
        return {name.removesuffix("_schedule"): value for name, value in told.items()}

    @staticmethod
    def disregarded(instance: WorkerProcess) -> dict[str, float]:
        """Read the counts of changes that were not followed, by kind."""
        name = "retry_named_changes_disregarded_total{"
        lines = [line for line in instance.get("/metrics")[1].splitlines() if line.startswith(name)]
        return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}

    @staticmethod
    def ask(instance: WorkerProcess, path: str) -> Any:
        """Ask the REST API of an instance and return what it answers."""
        port = _REST.findall(instance.log())[-1]
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def verified(self, *instances: WorkerProcess, schedules: str | None = None) -> dict[str, Any]:
        """Run `retry verify`, the tables of instances included."""
        dirs = (option for each in instances for option in ("--data-dir", str(each.data_dir)))
        given = {"RETRY_BOOTSTRAP_SERVERS": self.bootstrap_servers, "RETRY_APP_ID": self.id}
        schedules = schedules or self.environ["SCHEDULES_TOPICS"]
        done = subprocess.run(
            [sys.executable, "-m", "retry", "verify", "--json", "--schedules", schedules, *dirs],
            cwd=ROOT, env={**self.environ, **given}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "exit": done.returncode}

    def assert_verified(self, *instances: WorkerProcess) -> None:
        """Nothing is wrong, and no letter was looked for."""
        found = self.verified(*instances)
        assert (found["exit"], found["findings"], found["unchecked"]) == (0, {}, {})
        assert (found["letters"], found["not_taken_in"], found["tables"]["differing"]) == (0, 0, 0)
        assert all(found["tables"]["checked"] > 0 for _ in instances)

    def operate(self, *arguments: str) -> None:
        """Run `retry …` on what its instances have, as an operator does: `s.operate("pause", "--all")`."""
        given = {"RETRY_BOOTSTRAP_SERVERS": self.bootstrap_servers, "RETRY_APP_ID": self.id}
        done = subprocess.run(
            [sys.executable, "-m", "retry", *arguments],
            cwd=ROOT, env={**self.environ, **given}, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def logs(self) -> Iterable[tuple[str, str]]:
        """Yield what the instances log."""
        for instance in self.instances:
            yield f"scheduler {instance.name}, ended with {instance.exit_code()}", instance.tail()
            yield f"health of {instance.name}", instance.get("/health/ready")[1] if instance.running() else ""

    def close(self) -> None:
        """End what is left."""
        for instance in self.instances:
            instance.kill()
