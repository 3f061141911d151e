"""A deployment on the secured broker: each part is a user of its own, with a password that must be seen nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import TopicPartition

from retry.clock import Deadline, pause
from tests.support.asked_console import AskedConsole
from tests.support.committed_offsets import commit_offsets
from tests.support.deployment import Deployment
from tests.support.process import ROOT
from tests.support.sealed import NEW, OLD
from tests.support.secured import Right, SecuredBroker

CANARY = "c4n4ry"
# In what letters, schedules and timers hold.
PAYLOAD = b"p4yl04d"
PARTS = ("worker", "topics create", "commands", "analytics", "api", "scheduler", "console")
_LOOK_S = 0.1


class Protected:
    """Topics, policy file and users; nobody is granted anything yet.

    Attributes:
      output: what commands have printed, all together.
      argv: what every process that was looked at was started with.
      console: the one that was started.
      connects: how a user of a password connects, as settings: with SCRAM where it is not told otherwise.
    """

    console: AskedConsole

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        self.broker, self.folder, self.output, self.argv = broker, folder, "", set[str]()
        self.connects: Callable[[str, str], dict[str, str]] = broker.environ
        self.deployment = d = Deployment(broker.inner.bootstrap_servers, folder, {"orders": 2, "more.a": 1}, shards=2)
        self.app_id, (self.orders, self.more) = d.app_id, d.dead_letters
        self.group, self.definitions, self.runs = (f"{d.app_id}.{name}" for name in ("consumers", "definitions", "runs"))
        self.schedules, self.history, self.target = (f"{d.app_id}.{name}" for name in ("schedules", "history", "target"))
        d.create({name: (1, {"cleanup.policy": "compact"}) for name in (self.definitions, self.schedules)})
        d.create({name: (1, {}) for name in (self.runs, self.history, self.target)})
        d.policy_file.write_text(json.dumps(self._policies()))
        d.environ |= {
            "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", "RETRY_API_ADDR": "127.0.0.1:0", "RETRY_POSITIONS_EVERY_S": "1",
            "GROUP_ID": f"{d.app_id}-s", "SCHEDULES_TOPICS": self.schedules, "HISTORY_TOPIC": self.history,
            "SCHEDULER_ALLOWED_TARGETS": self.target, "SERVER_ADDR": "127.0.0.1:0", "METRICS_ADDR": "127.0.0.1:0",
            "RETRY_ENCRYPTION_KEYS": str(self._keys()),
        }  # fmt: skip
        self.users = {part: f"{d.app_id}-{part.split()[0]}" for part in PARTS}
        for part in PARTS:
            broker.add_user(self.users[part], f"{CANARY}-{part.split()[0]}")

    def _keys(self) -> Path:
        """A file of keys, as a secret is mounted."""
        file = self.folder / "keys"
        file.write_text(f"{NEW}\n{OLD}\n")
        file.chmod(0o400)
        return file

    def _policies(self) -> dict[str, object]:
        d = self.deployment
        topics = [
            {"dead_letters": self.orders, "retry_to": d.retry_of(self.orders), "park_to": d.parked},
            {"dead_letters": {"pattern": rf"{d.app_id}\.more\.[a-z]+\.DLT"}, "retry_to": d.retry_of(self.more)},
        ]
        return {
            "defaults": {"backoff": {"kind": "constant", "delay": "1s"}, "jitter": "none"},
            "teams": {"testers": {"group": self.group, "topics": topics}},
            "tasks": {"topics": [self.definitions], "allowed_targets": [self.runs], "park_to": d.parked, "shortest": "1ms"},
        }

    def environ(self, part: str) -> dict[str, str]:
        """How a part says who it is."""
        own = self.connects(self.users[part], f"{CANARY}-{part.split()[0]}")
        # The scheduler is a deployment of its own.
        apart = {"RETRY_APP_ID": "", "BOOTSTRAP_SERVERS": own["RETRY_BOOTSTRAP_SERVERS"]}
        return own | (apart if part == "scheduler" else {})

    def rights(self, part: str) -> list[Right]:
        """List the rights that `retry acls` lists for a part."""
        rows = [json.loads(row) for row in self.run(part, "acls", "--json", "--for", part).splitlines()]
        user = f"User:{self.users[part]}"
        return [Right(user, r["resource"], r["name"], r["operation"], r["pattern"] == "prefixed") for r in rows]

    def run(self, part: str, *arguments: str, code: int = 0, timeout_s: float = 300.0) -> str:
        """Run `retry …` to its end as a part of the service; what it printed."""
        environ = {**self.deployment.environ, **self.environ(part)}
        process = subprocess.Popen(
            [sys.executable, "-m", "retry", *arguments], cwd=ROOT, env=environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        deadline = Deadline(timeout_s)
        while not deadline.has_passed():
            self.look_at(process.pid)
            try:
                out, err = process.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{arguments} takes longer than {timeout_s:.0f} s: {out}{err}")
        self.output += out + err
        assert process.returncode == code, f"{arguments} ended with {process.returncode}: {out}{err}"
        return out if code == 0 else err

    def look_at(self, session: int) -> None:
        """Note with what the processes of a session were started."""
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and os.getsid(int(process.name)) == session:
                    self.argv.add((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has ended meanwhile

    def commit(self, topic: str, offset: int) -> None:
        """Commit an offset as the consumers of the policy file's group do."""
        commit_offsets(self.broker.inner.bootstrap_servers, self.group, [TopicPartition(topic, 0, offset)])

    def await_listed(self, what: str, *arguments: str, text: str, timeout_s: float = 180.0) -> None:
        """Ask with a command until it prints a text."""
        deadline = Deadline(timeout_s)
        while text not in (printed := self.run("commands", *arguments)):
            assert not deadline.has_passed(), f"{what}: {printed}"
            pause(0.2)
