"""`retry analytics ingest` as a real process, with topics and a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.process import ROOT
from tests.support.topics import create_all

_RUN_S = 900


class Ingesting:
    """One deployment's outcomes and retry topics, made by the test and not by a service, and the folder they are ingested to."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.app_id, self.folder, self.data = f"i{uuid.uuid4().hex[:8]}", folder, folder / "data"
        self.servers, self.outcomes = bootstrap_servers, f"{self.app_id}-outcomes"
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self.producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
        self.environ = {**os.environ, "RETRY_BOOTSTRAP_SERVERS": bootstrap_servers, "RETRY_APP_ID": self.app_id}

    def create(self, *topics: str, partitions: int = 4, config: Mapping[str, str] | None = None) -> None:
        """Create topics. Nothing is deleted from them: generated events are of a week that retention may take for long ago."""
        kept = {"retention.ms": "-1", **(config or {})}
        create_all(self.admin, [NewTopic(topic, partitions, 1, config=kept) for topic in topics])

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin to ingest, in a process group of its own."""
        with self.log().open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "retry", "analytics", "ingest", str(self.data), *arguments],
                cwd=ROOT, env=self.environ, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def run(self, *arguments: str) -> dict[str, int]:
        """Ingest to the end; how many records each set has."""
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=_RUN_S)
        assert process.returncode == 0, self.log().read_text()
        return dict(json.loads(out.splitlines()[-1]))

    def log(self) -> Path:
        """Return the file with what all of its processes said."""
        return self.folder / "ingest.log"

    def begun(self, stream: str) -> set[str]:
        """Batches of a stream that were written down, and are not done."""
        return self._numbers(stream, "offsets") - self._numbers(stream, "commits")

    def done(self, stream: str) -> set[str]:
        """Batches of a stream that are done."""
        return self._numbers(stream, "commits")

    def undo(self, stream: str) -> None:
        """Forget that the last batch of a stream is done."""
        folder, last = self.data / "_checkpoints" / stream / "commits", max(self.done(stream), key=int)
        (folder / last).unlink()
        (folder / f".{last}.crc").unlink(missing_ok=True)

    def _numbers(self, stream: str, kind: str) -> set[str]:
        folder = self.data / "_checkpoints" / stream / kind
        return {file.name for file in folder.iterdir() if file.name.isdigit()} if folder.is_dir() else set()


def kill(process: subprocess.Popen[str], *, java_too: bool) -> None:
    """SIGKILL, with or without its Java process, which ends by itself when nobody is there to lead it."""
    if java_too:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def files(folder: Path, pattern: str = "*") -> Iterable[Path]:
    """Every file below a folder."""
    return (file for file in folder.rglob(pattern) if file.is_file())
