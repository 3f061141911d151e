"""One deployment of the service for one test: topics, policy file, environment, workers; nothing is shared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic

from retry.kafka import topics
from tests.support.process import ROOT, WorkerProcess, await_that
from tests.support.reading import admin
from tests.support.topics import create_all

__all__ = ["ROOT", "Deployment", "WorkerProcess", "await_that"]

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
# One that is frozen says nothing.
_TELL_S = 5.0


class _Whole(type(Path())):  # type: ignore[misc]
    """A file that whoever reads it finds whole at any time: a worker that looks while it is written would refuse the half."""

    def write_text(self, data: str, *arguments: Any, **named: Any) -> int:
        new = Path(f"{self}.new")
        written = new.write_text(data, *arguments, **named)
        new.rename(self)
        return written


class Deployment:
    """A deployment on a broker that runs already.

    Letters of `<app>.<name>.DLT` are retried to `<app>.<name>.retry` and parked in `<app>.parked`.

    Args:
      folder: for data directories, logs and the policy file.
      dead_letters: partitions of each dead-letter topic, by name.
      defaults: the `defaults` section of the policy file, as YAML in one line.
      topic_keys: more keys of every topic's section, as YAML in one line.
      retry_config: of the retry topics; broker time by default, since that says when a retry was made.
      copies: of each partition of the teams' topics.
      environ: more settings.
      alone: whether nobody else uses the broker, so that topics have the names that they are given, without `<app>.`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        dead_letters: Mapping[str, int],
        *,
        shards: int = 4,
        retry_partitions: int = 4,
        defaults: str = "{backoff: {kind: constant, delay: 5s}, jitter: full}",
        topic_keys: str = "",
        retry_config: Mapping[str, str] = APPEND_TIME,
        copies: int = 1,
        environ: Mapping[str, str] | None = None,
        alone: bool = False,
    ) -> None:
        self.bootstrap_servers, self.folder = bootstrap_servers, folder
        self.app_id = "retry" if alone else f"t{uuid.uuid4().hex[:8]}"
        self.names = topics.build_topic_names(self.app_id)
        self.admin = admin(bootstrap_servers)
        self.shards, self.retry_partitions, self._copies = shards, retry_partitions, copies
        prefix = "" if alone else f"{self.app_id}."
        self.dead_letters = {f"{prefix}{name}.DLT": count for name, count in dead_letters.items()}
        self.parked = f"{prefix}parked" if prefix else "letters.parked"
        self.workers: dict[str, WorkerProcess] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.policy_file: Path = _Whole(folder / "policies.yaml")
        self.policy_file.write_text(self._policies(defaults, topic_keys))
        self.environ = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "RETRY_BOOTSTRAP_SERVERS": bootstrap_servers,
            "RETRY_APP_ID": self.app_id,
            "RETRY_POLICIES": str(self.policy_file),
            "RETRY_SHARDS": str(shards),
            "RETRY_HTTP_ADDR": "127.0.0.1:0",
            "RETRY_DATA_DIR": str(folder / "command"),
            **(environ or {}),
        }
        created = {topic: (count, {}) for topic, count in self.dead_letters.items()}
        created |= {self.retry_of(topic): (retry_partitions, dict(retry_config)) for topic in self.dead_letters}
        if created:
            self.create(created)

    def _policies(self, defaults: str, topic_keys: str) -> str:
        keys = f", {topic_keys}" if topic_keys else ""
        topics_of_team = "".join(
            f"      - {{dead_letters: {topic}, retry_to: {self.retry_of(topic)}, park_to: {self.parked}{keys}}}\n"
            for topic in self.dead_letters
        )
        return f"defaults: {defaults}\nteams:\n  testers:\n    topics:\n{topics_of_team}"

    @staticmethod
    def retry_of(dead_letters: str) -> str:
        """Name the topic in which letters of a dead-letter topic come back."""
        return dead_letters.removesuffix(".DLT") + ".retry"

    def retry_topics(self) -> list[str]:
        """List the topics in which letters come back."""
        return [self.retry_of(topic) for topic in self.dead_letters]

    def create(self, wanted: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        """Create topics: partitions and configuration by name."""
        new = [NewTopic(topic, count, self._copies, config=config) for topic, (count, config) in wanted.items()]
        create_all(self.admin, new)

    def prepare(self) -> Deployment:
        """Create the service's own topics, the way an operator does."""
        made = self.command("topics", "create")
        assert made.returncode == 0, made.stderr
        return self

    def command(self, *arguments: str, timeout_s: float = 300, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run `retry …` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "retry", *arguments],
            cwd=ROOT, env={**self.environ, **environ}, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    def worker(self, name: str = "a") -> WorkerProcess:
        """The worker of this name; a new one is not started yet."""
        if name not in self.workers:
            self.workers[name] = WorkerProcess(name, self.folder, self.environ)
        return self.workers[name]

    def wipe(self, worker: WorkerProcess) -> None:
        """Lose the data directory of a worker that does not run."""
        assert not worker.running()
        shutil.rmtree(worker.data_dir, ignore_errors=True)

    def logs(self) -> Iterable[tuple[str, str]]:
        """Yield what workers log and say of themselves, to find out what went wrong.

        Brokers are not asked: where one of them is down, asking for groups can abort the process (librdkafka issue 4605).
        """
        for worker in self.workers.values():
            state = "runs" if worker.running() else f"ended with {worker.exit_code()}"
            yield f"worker {worker.name}, pid {worker.pid}, {state}", worker.tail()
            yield f"health of {worker.name}", worker.get("/health/ready", _TELL_S)[1] if worker.running() else ""

    def close(self) -> None:
        """End every worker that is left."""
        for worker in self.workers.values():
            worker.kill()
