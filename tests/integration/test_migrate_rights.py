"""`retry migrate` on a broker that allows nothing but what `retry acls` lists for it: it moves all that waits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from retry.clock import wall_ms
from tests.integration.test_migrate import HOUR_MS, WAITING, letters, on_its_way
from tests.support.committed_offsets import commit_offsets
from tests.support.deployment import Deployment
from tests.support.letters import Headers, Sender
from tests.support.reading import COMMITTED, read
from tests.support.secured import Right, SecuredBroker

pytestmark = pytest.mark.check

COUNT = 6


class Migrator:
    """A user who has the rights that are listed for one migration, and a deployment's topics."""

    def __init__(self, broker: SecuredBroker, folder: Path, name: str) -> None:
        self.broker, self.user = broker, f"{name}-migrator"
        broker.add_user(self.user, "a password of this test")
        self.deployment = Deployment(broker.inner.bootstrap_servers, folder, {"orders": 1}, shards=1, defaults=WAITING)
        (self.target,) = self.deployment.dead_letters

    def ask(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.deployment.command(
            *arguments, **{**self.broker.environ(self.user, "a password of this test"), **environ}
        )  # fmt: skip

    def rights(self, part: str, *options: str, **environ: str) -> list[Right]:
        listed = self.ask("acls", "--json", "--for", part, *options, **environ)
        assert listed.returncode == 0, listed.stderr
        rows = map(json.loads, listed.stdout.splitlines())
        user = f"User:{self.user}"
        return [Right(user, r["resource"], r["name"], r["operation"], r["pattern"] == "prefixed") for r in rows]

    def told(self, *arguments: str, **environ: str) -> dict[str, Any]:
        ended = self.ask("migrate", *arguments, "--json", **environ)
        assert ended.returncode == 0, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def send(self, topic: str, headers: Headers, keys: Iterable[int] = range(COUNT)) -> None:
        sender = Sender(self.deployment.bootstrap_servers)
        for n in keys:
            sender.send(topic, b"%d" % n, b"value %d" % n, headers, partition=0)
        sender.finish()


@pytest.mark.parametrize("command", ["spring-retry-topics", "cronsumer"])
def test_letters_are_moved_with_the_rights_that_are_listed_and_not_without_one_of_them(
    secured: SecuredBroker, tmp_path: Path, command: str
) -> None:
    m = Migrator(secured, tmp_path, command)
    app = m.deployment.app_id
    if command == "cronsumer":
        topic, group, headers = f"{app}.exception", f"{app}.cron", [("x-retry-count", b"1")]
        options = ("--from", topic, "--to", m.target, "--group", group)
    else:
        topic, group = f"{app}.orders-retry-200", f"{app}.shop-retry-200"
        headers = list(on_its_way("orders-retry-200", wall_ms() + HOUR_MS))
        options = ("--from", f"{app}.orders-retry-*", "--to", m.target, "--group", f"{app}.shop-retry-*")
    m.deployment.create({topic: (1, {})})
    m.send(topic, headers)
    commit_offsets(m.deployment.bootstrap_servers, group, [TopicPartition(topic, 0, 1)])
    rights = m.rights("migrate", *options)
    secured.grant(rights)
    assert m.told(command, *options)["before"][topic]["records"] == COUNT - 1
    for right in rights:
        secured.withdraw([right])
        refused = m.ask("migrate", command, *options, "--yes")
        assert refused.returncode == 1 and "Traceback" not in refused.stderr, (right, refused)
        assert letters(m.deployment) == []
        secured.grant([right])
    done = m.told(command, *options, "--yes")
    assert (done["moved"], done["after"]) == (COUNT - 1, {topic: 0})
    assert len(letters(m.deployment)) == COUNT - 1


@pytest.mark.slow
def test_schedules_are_moved_with_the_rights_that_are_listed_and_not_without_one_of_them(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    m = Migrator(secured, tmp_path, "schedules")
    app = m.deployment.app_id
    source, target = f"{app}.schedules", f"{app}.moved"
    m.deployment.create({name: (1, {"cleanup.policy": "compact"}) for name in (source, target)})
    due = b"%d" % (wall_ms() // 1_000 + 3_600)
    headers: Headers = [("scheduler-epoch", due), ("scheduler-target-topic", b"t"), ("scheduler-target-key", b"k")]
    m.send(source, headers)
    m.send(target, headers, [COUNT])
    environ: Mapping[str, str] = {
        "RETRY_APP_ID": "", "GROUP_ID": f"{app}-s",
        "BOOTSTRAP_SERVERS": secured.bootstrap_servers, "RETRY_BOOTSTRAP_SERVERS": secured.bootstrap_servers,
    }  # fmt: skip
    options = ("--from", source, "--to", target, "--group", f"{app}-go")
    rights = m.rights("migrate scheduler", *options, **environ)
    secured.grant(rights)
    assert m.told("scheduler", *options, **environ)["before"][source]["schedules"] == COUNT
    for right in rights:
        secured.withdraw([right])
        refused = m.ask("migrate", "scheduler", *options, "--yes", **environ)
        assert refused.returncode == 1 and "Traceback" not in refused.stderr, (right, refused)
        assert len(read(m.deployment.bootstrap_servers, [source, target], COMMITTED)) == COUNT + 1, right
        secured.grant([right])
    done = m.told("scheduler", *options, "--yes", **environ)
    assert (done["moved"], done["after"][source]["schedules"], done["after"][target]["schedules"]) == (COUNT, 0, COUNT + 1)
