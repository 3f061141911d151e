"""One deployment of the service: topics, policy file, state and a worker of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from retry.kafka.local_broker import LocalBroker
from retry.kafka.topics import build_topic_names

from . import check
from .letters import PARTITIONS, PLAIN, WARM, Incorrect, Reader, admin, fill, flush, producer, write
from .machine import Usage
from .worker import ROOT, Worker

_WARM_LETTERS = 20_000
_ASK_S = 20


class Service:
    """Leaving the context ends the worker and deletes topics and state.

    Args:
      more: settings of the worker beside what it needs here.
      topics: how many dead-letter topics there are; several have one partition each, and the policy file has a pattern.
      teams: further teams, each with a dead-letter topic of its own.
      workers: how many share the work; `worker` is the first of them.

    Attributes:
      read: the dead-letter topics of the first team, which `fill` and `warmed` write to.
    """

    def __init__(
        self, broker: LocalBroker, work: Path, more: Mapping[str, str],
        topics: int = 1, teams: Sequence[str] = (), workers: int = 1,
    ) -> None:  # fmt: skip
        tag = uuid.uuid4().hex[:8]
        self.headers = PLAIN
        self.letters, self.retries, self.names = f"letters-{tag}", f"retries-{tag}", build_topic_names(f"bench-{tag}")
        self.bootstrap, self.broker_pid = broker.bootstrap_servers, broker.pid
        self.folder, self._admin = work / tag, admin(broker.bootstrap_servers)
        self.data_dir = self.folder / "data"
        self.folder.mkdir(parents=True)
        self.environment = environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RETRY_")},
            "RETRY_BOOTSTRAP_SERVERS": self.bootstrap,
            "RETRY_APP_ID": f"bench-{tag}",
            "RETRY_SHARDS": str(PARTITIONS),
            "RETRY_POLICIES": str(self.folder / "policies.yaml"),
            "RETRY_DATA_DIR": str(self.data_dir),
            **more,
        }
        self.read = [f"{self.letters}-{n}" for n in range(topics)] if topics > 1 else [self.letters]
        self.of_team = {team: f"{self.letters}-of-{team}" for team in teams}
        self.shards = int(environment["RETRY_SHARDS"])
        self._make_topics(environment)
        places = [self.data_dir, *(self.folder / f"data-{n}" for n in range(1, workers))]
        self.workers = [Worker({**environment, "RETRY_DATA_DIR": str(at)}, self.folder / f"{at.name}.log") for at in places]
        self.worker = self.workers[0]
        self.reader = Reader(self.bootstrap, self.retries)

    def _make_topics(self, environment: dict[str, str]) -> None:
        stamped = {"message.timestamp.type": "LogAppendTime"}
        one = [NewTopic(topic, 1, 1) for topic in (*(self.read if len(self.read) > 1 else ()), *self.of_team.values())]
        new = [NewTopic(self.letters, PARTITIONS, 1), NewTopic(self.retries, PARTITIONS, 1, config=stamped), *one]
        for made in self._admin.create_topics(new).values():
            made.result(_ASK_S)
        prepare = [sys.executable, str(Path(__file__).with_name("prepare.py")), environment["RETRY_POLICIES"]]
        letters = self.letters if len(self.read) == 1 else f"{{pattern: '{self.letters}-[0-9]+'}}"
        arguments = [letters, self.retries, *(f"{team}={topic}" for team, topic in self.of_team.items())]
        subprocess.run([*prepare, *arguments], env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    def fill(self, letters: int, due_ms: int) -> None:
        """Write that many letters, all due at one time."""
        fill(self.bootstrap, self.letters, range(letters), due_ms, headers=self.headers)

    def warmed(self) -> Service:
        """Start the worker, and send letters through the whole of it until code and connections are warm."""
        self.worker.start()
        self.worker.ready()
        return self.warm()

    def warm(self, beside: int = 0) -> Service:
        """Start workers and warm them up, while so many entries wait."""
        to = producer(self.bootstrap)
        for number in range(_WARM_LETTERS):
            write(to, self.read[number % len(self.read)], number, now_ms() - 1_000, WARM, self.headers)
        flush(to)
        self.reader.await_count(_WARM_LETTERS, 120, self.worker.running)
        self.until_waiting(beside, 30)
        time.sleep(0.5)
        check.retries(self.reader.batches, _WARM_LETTERS, WARM)
        self.reader.forget()
        return self

    def waiting(self) -> int:
        """How many entries wait, in all workers."""
        return sum(worker.waiting() for worker in self.workers)

    def until_waiting(self, entries: int, timeout_s: float) -> float:
        """When so many wait in all workers."""
        return self.worker.until(f"{entries:,} waiting entries", lambda: self.waiting() == entries, timeout_s, 0.05)

    def usage(self) -> Usage:
        """Begin to count what the worker uses from here on."""
        return Usage(self.worker.pid, self.broker_pid)

    def until_committed(self, timeout_s: float) -> float:
        """When the intake group has committed the ends of all dead-letter partitions."""
        partitions = [TopicPartition(self.letters, n) for n in range(PARTITIONS)]
        asked = self._admin.list_offsets({p: OffsetSpec.latest() for p in partitions})
        ends = {p.partition: answer.result(_ASK_S).offset for p, answer in asked.items()}
        group = ConsumerGroupTopicPartitions(self.names.intake_group, partitions)

        def has_reached_ends() -> bool:
            found = next(iter(self._admin.list_consumer_group_offsets([group]).values())).result(_ASK_S)
            return all(p.offset >= ends[p.partition] for p in found.topic_partitions)

        return self.worker.until("commit of all letters", has_reached_ends, timeout_s, 0.02)

    def check_retries(self, letters: int) -> None:
        """After a moment for late doubles: every letter came back exactly once."""
        time.sleep(1.0)
        check.retries(self.reader.batches, letters)

    def check_waiting(self, letters: int) -> None:
        """Every letter waits exactly once, and none came back."""
        if self.reader.count:
            raise Incorrect(f"{self.reader.count:,} letters came back before they were due")
        check.waiting(self.bootstrap, self.names.changelog, letters)

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
            if error is not None:
                error.add_note(worker.log_tail())
        self.reader.close()
        made = [*{self.letters, *self.read}, self.retries, *self.of_team.values(), *self.names[:-2]]
        for gone in self._admin.delete_topics(made).values():
            gone.exception(_ASK_S)
        shutil.rmtree(self.folder, ignore_errors=True)


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000
