"""`retry migrate` on a real broker: what waits elsewhere is moved once each, through kill -9, and can be given back."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from retry.clock import wall_ms
from retry.errors import MigrationStopped
from retry.kafka import consumer_groups
from retry.kafka.offset_ranges import Span
from retry.operations.cluster import Cluster
from retry.operations.migrate import move
from retry.operations.migrate.move import Move
from retry.operations.migrate.plan import Conversion, UnreadRecords, convert_cronsumer_headers
from retry.settings import Settings
from tests.conftest import Deploy
from tests.fixtures import make_letters
from tests.support.committed_offsets import commit_offsets
from tests.support.deployment import ROOT, Deployment, await_that
from tests.support.letters import Headers, Sender
from tests.support.quotas import limit_producer
from tests.support.reading import COMMITTED, QUIET, Record, Tail, read

pytestmark = pytest.mark.check

CAPTURED = Path(make_letters.__file__).parent / "captured" / "spring-kafka.jsonl"
CRONSUMER = CAPTURED.with_name("kafka-cronsumer.jsonl")
WAITING = "{backoff: {kind: constant, delay: 2h, max_delay: 3h}, jitter: none, max_attempts: 3}"
HOUR_MS = 3_600_000


def on_its_way(topic: str, due_ms: int) -> Headers:
    """Headers as Spring wrote them to a retry topic, due at another time."""
    letters = map(json.loads, CAPTURED.read_text().splitlines())
    coded = next(letter["headers"] for letter in letters if letter["topic"] == topic)
    headers = [(name, None if value is None else base64.b64decode(value)) for name, value in coded]
    last = max(n for n, (name, _) in enumerate(headers) if name == "retry_topic-backoff-timestamp")
    headers[last] = headers[last][0], due_ms.to_bytes(6, "big")
    return headers


class Written(NamedTuple):
    """One record that kafka-cronsumer, or the application for it, wrote to its topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def by_cronsumer() -> dict[str, Written]:
    """Return each record that was captured, by its name."""

    def raw(coded: str | None) -> bytes | None:
        return None if coded is None else base64.b64decode(coded)

    rows = map(json.loads, CRONSUMER.read_text().splitlines())
    return {
        row["name"]: Written(raw(row["key"]), raw(row["value"]), [(name, raw(value)) for name, value in row["headers"]])
        for row in rows
    }


def allow(deployment: Deployment, topics: list[str]) -> None:
    """Let operators send letters to these topics, too."""
    allowed = f"allowed_targets: [{', '.join([deployment.retry_topics()[0], deployment.parked, *topics])}], park_to"
    deployment.policy_file.write_text(deployment.policy_file.read_text().replace("park_to", allowed))


class Spring:
    """Two retry topics of one application on a deployment's broker, of which its groups have read some."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, app = deployment, deployment.app_id
        self.due_ms = wall_ms() + HOUR_MS
        self.topics = [f"{app}.orders-retry-{n}" for n in (200, 400)]
        self.groups = [f"{app}.shop-retry-{n}" for n in (200, 400)]
        deployment.create(dict.fromkeys(self.topics, (2, {})))

    def write(self, count: int, read_already: int) -> None:
        """Write so many to each topic; the groups have processed the first of each partition."""
        sender = Sender(self.deployment.bootstrap_servers)
        for topic, name in zip(self.topics, ("orders-retry-200", "orders-retry-400"), strict=True):
            headers = on_its_way(name, self.due_ms)
            for n in range(count):
                sender.send(topic, b"%d" % n, b"value %d" % n, headers, partition=n % 2)
        sender.finish()
        for topic, group in zip(self.topics, self.groups, strict=True):
            commit_offsets(self.deployment.bootstrap_servers, group, [TopicPartition(topic, n, read_already) for n in (0, 1)])

    def migrate(self, *more: str) -> subprocess.CompletedProcess[str]:
        (target,) = self.deployment.dead_letters
        return self.deployment.command(
            "migrate", "spring-retry-topics", "--from", f"{self.deployment.app_id}.orders-retry-*", "--to", target, *more
        )

    def told(self, *more: str) -> dict[str, Any]:
        ended = self.migrate("--json", *more)
        assert ended.returncode == 0, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


def letters(deployment: Deployment) -> list[Record]:
    return read(deployment.bootstrap_servers, deployment.dead_letters, COMMITTED)


def test_what_waits_in_springs_retry_topics_is_shown_moved_once_and_given_back(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, shards=1, defaults=WAITING)
    spring = Spring(deployment)
    (target,) = deployment.dead_letters
    allow(deployment, spring.topics)
    spring.write(20, read_already=4)

    dry = spring.told()
    assert {topic: row["records"] for topic, row in dry["before"].items()} == dict.fromkeys(spring.topics, 12)
    assert [row["group"] for row in dry["before"].values()] == spring.groups
    assert (dry["would"]["letters"], dry["would"]["retried"], dry["other_times"]) == (24, 24, 0)
    assert dry["would"]["now"]["within_an_hour"] == 24 and dry["would"]["families"] == {"spring-kafka": 24}
    shown = spring.migrate()
    assert f"{spring.topics[0]}: 12 wait for the group {spring.groups[0]}" in shown.stdout
    assert f"nothing was written; --yes moves them to {target}" in shown.stdout
    assert letters(deployment) == []

    done = spring.told("--yes")
    assert (done["moved"], done["left"], done["after"]) == (24, 0, dict.fromkeys(spring.topics, 0))
    again = spring.told("--yes")
    assert (again["moved"], again["would"]["letters"]) == (0, 0)
    came = letters(deployment)
    assert Counter(record.header("retry-migrated-from") for record in came) == Counter(
        f"{topic}/{partition}/{offset}" for topic in spring.topics for partition in (0, 1) for offset in range(4, 10)
    )
    assert Counter(record.header("retry-attempt") for record in came) == {"": 12, "1": 12}

    worker = deployment.worker().start().await_ready()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == 24)
    told = deployment.command("letters", "--limit", "100", "--json")
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert {int(row["name"].split("/")[0]) for row in rows} == {spring.due_ms}
    assert Counter(row["attempt"] for row in rows) == {1: 12, 2: 12}

    verified = deployment.command("verify", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["findings"]) == (0, {}), verified.stdout
    for topic in spring.topics:
        back = deployment.command(
            "act", "redirect", f"header.retry-migrated-from:{topic}/*", "--to", topic, "--yes", "--json", "--wait", "2m"
        )
        assert back.returncode == 0 and json.loads(back.stdout)["done"] == 12, back.stderr
    tail = Tail(deployment.bootstrap_servers, spring.topics)
    tail.await_seen(25)  # what has no such header counts as one
    tail.close()
    given_back = [record for record in tail.records if record.header("retry-migrated-from")]
    for topic, name in zip(spring.topics, ("orders-retry-200", "orders-retry-400"), strict=True):
        of_topic = [record for record in given_back if record.topic == topic]
        assert len(of_topic) == 12
        written = list(on_its_way(name, spring.due_ms))
        assert all(record.headers[: len(written)] == written for record in of_topic)
    # The groups of the application have them before them again, and nothing else.
    assert {topic: row["records"] for topic, row in spring.told()["before"].items()} == dict.fromkeys(spring.topics, 12)
    worker.terminate()


@pytest.mark.slow
def test_what_waits_for_cronsumer_is_moved_once_each_though_it_is_killed_meanwhile(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, defaults=WAITING)
    (target,), topic, group = deployment.dead_letters, f"{deployment.app_id}.exception", f"{deployment.app_id}.cron"
    deployment.create({topic: (4, {})})
    sender, count = Sender(deployment.bootstrap_servers), 30_000
    written = by_cronsumer()
    kinds = [written[name].headers for name in ("written by the application", "came to too early", "failed twice", "given up")]
    for n in range(count):
        sender.send(topic, b"%d" % n, b"v" * 200, kinds[n % 4], partition=n % 4)
    sender.finish()
    asked = ["migrate", "cronsumer", "--from", topic, "--to", target, "--group", group]
    dry = json.loads(deployment.command(*asked, "--json").stdout)
    assert (dry["would"]["letters"], dry["would"]["retried"], dry["would"]["parked"]) == (count, count * 3 // 4, count // 4)
    (parked,) = (row["parked"] for row in dry["would"]["by_exception"] if row["parked"])
    assert parked == {"max_attempts": count // 4}

    # All of it is some 10 MB, which would be moved before it is killed: under a quota that takes a minute.
    limit_producer(deployment.bootstrap_servers, deployment.app_id, 200_000)
    tail = Tail(deployment.bootstrap_servers, [target], header="retry-migrated-from")
    running = subprocess.Popen(
        [sys.executable, "-m", "retry", *asked, "--yes"], cwd=ROOT, env=deployment.environ, stdout=subprocess.PIPE, text=True
    )
    tail.await_more(1)
    running.send_signal(signal.SIGKILL)
    running.wait()
    limit_producer(deployment.bootstrap_servers, deployment.app_id, 1_000_000_000)
    ended = deployment.command(*asked, "--yes", "--json")
    assert ended.returncode == 0, ended.stderr
    done = json.loads(ended.stdout)
    assert 0 < done["moved"] < count and done["after"] == {topic: 0}
    came = letters(deployment)
    assert len(came) == count and {record.header("retry-migrated-from") for record in came} == set(sender.sent)
    assert Counter(record.header("retry-attempt") for record in came) == dict.fromkeys(("", "1", "2", "3"), count // 4)
    by_key = {record.key: record for record in came}
    assert by_key[b"2"].headers[: len(kinds[2])] == kinds[2] and by_key[b"2"].value == b"v" * 200
    tail.close()


@pytest.mark.slow
def test_what_cronsumer_wrote_is_given_back_as_it_was_and_all_counts_where_its_group_has_committed_nothing(
    deploy: Deploy,
) -> None:
    deployment = deploy({"orders": 3}, shards=1, defaults=WAITING)
    (target,), topic, group = deployment.dead_letters, f"{deployment.app_id}.exception", f"{deployment.app_id}.cron"
    deployment.create({topic: (1, {})})
    allow(deployment, [topic])
    sender, written = Sender(deployment.bootstrap_servers), list(by_cronsumer().values())
    for record in written:
        sender.send(topic, record.key, record.value, record.headers, partition=0)
    sender.finish()
    asked = ["migrate", "cronsumer", "--from", topic, "--to", target]
    unknown = deployment.command(*asked)
    assert f"no group has read {topic}" in unknown.stderr and "brokers have forgotten" in unknown.stderr
    all_of_it = deployment.command(*asked, "--group", group)
    assert f"{topic}: the group {group} has committed nothing there" in all_of_it.stdout
    named = json.loads(deployment.command(*asked, "--group", group, "--json").stdout)
    assert (named["unread"], named["before"][topic]["records"]) == ([topic], len(written))

    # It has processed the first of all, and stopped.
    commit_offsets(deployment.bootstrap_servers, group, [TopicPartition(topic, 0, 1)])
    dry = json.loads(deployment.command(*asked, "--json").stdout)
    assert (dry["unread"], dry["before"]) == ([], {topic: {"group": group, "records": len(written) - 1}})
    assert dry["would"]["families"] == {"kafka-cronsumer": len(written) - 1}
    assert json.loads(deployment.command(*asked, "--yes", "--json").stdout)["moved"] == len(written) - 1
    worker = deployment.worker().start().await_ready()
    # What was given up after three retries is parked.
    given_up = sum(dict(record.headers).get("x-retry-count") in (b"3", b"10") for record in written)
    waits = len(written) - 1 - given_up
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == waits)
    for state, count in ("waiting", waits), ("parked", given_up):
        back = deployment.command(
            "act", "redirect", f"state:{state}", f"header.retry-migrated-from:{topic}/*", "--to", topic, "--yes", "--json",
            "--wait", "2m",
        )  # fmt: skip
        assert back.returncode == 0 and json.loads(back.stdout)["done"] == count, back.stderr
    tail = Tail(deployment.bootstrap_servers, [topic], header="retry-migrated-from")
    tail.await_seen(len(written))  # what has no such header counts as one
    tail.close()
    given_back = {record.header("retry-migrated-from"): record for record in tail.records}
    for n, (key, value, headers) in enumerate(written[1:], 1):
        record = given_back[f"{topic}/0/{n}"]
        assert (record.key, record.value, record.headers[: len(headers)]) == (key, value, headers)
    worker.terminate()


@pytest.mark.slow
def test_what_is_asked_wrongly_is_refused_and_moves_nothing(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, defaults=WAITING)
    spring = Spring(deployment)
    (target,) = deployment.dead_letters
    spring.write(4, read_already=0)
    sender = Sender(deployment.bootstrap_servers)
    sender.send(spring.topics[0], b"stranger", b"v", [("a", b"1")], partition=1)
    (place,) = sender.finish()

    def demand_refusal(words: str, *arguments: str) -> None:
        ended = deployment.command("migrate", *arguments)
        assert ended.returncode == 1 and words in ended.stderr and "Traceback" not in ended.stderr, ended.stderr

    demand_refusal("the policy file has nothing on elsewhere", "cronsumer", "--from", spring.topics[0], "--to", "elsewhere")
    demand_refusal("no topic is called gone-*", "cronsumer", "--from", "gone-*", "--to", target)
    demand_refusal(f"{target} is attached by the policy file", "cronsumer", "--from", target, "--to", target)
    topics = ("spring-retry-topics", "--from", f"{deployment.app_id}.orders-retry-*", "--to", target)
    demand_refusal(f"{place}; --others move moves them as they are", *topics, "--yes")
    demand_refusal("so it is not clear what waits there", *topics, "--group", "nobody-*")
    # Somebody of the application still runs.
    live = Consumer({"bootstrap.servers": deployment.bootstrap_servers, "group.id": spring.groups[0], "logger": QUIET,
                     "enable.auto.commit": False})  # fmt: skip
    live.subscribe([spring.topics[0]])
    await_that("it is a member", lambda: live.poll(0.1) is not None)
    assert f"1 consumers are in the group {spring.groups[0]}: stop them" in spring.migrate("--others", "leave").stdout
    demand_refusal("would process what is moved, too; stop them", *topics, "--yes", "--others", "leave")
    live.close()
    assert letters(deployment) == []

    done = spring.told("--yes", "--others", "leave")
    assert (done["moved"], done["left"], done["others"], done["places"]) == (8, 1, {spring.topics[0]: 1}, [place])
    assert place not in {record.header("retry-migrated-from") for record in letters(deployment)}


class Disturbed(Move):
    """A move that a consumer of the application joins behind the first batch."""

    def __init__(self, *arguments: Any, guest: Consumer, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.guest, self.ended, self.joining = guest, threading.Event(), threading.Thread(target=self._join)

    def _transfer(self, batch: list[Any], *others: Any) -> None:
        super()._transfer(batch, *others)
        if self.moved == len(batch):
            self.joining.start()

    def _join(self) -> None:
        self.guest.subscribe(self._waiting.topics)
        while not self.ended.is_set():
            self.guest.poll(0.1)
        self.guest.close()


def test_a_consumer_that_joins_meanwhile_ends_the_move_and_every_record_is_before_its_group_or_moved(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, count = deploy({"orders": 1}, defaults=WAITING), 4_000
    (target,), topic, group = deployment.dead_letters, f"{deployment.app_id}.exception", f"{deployment.app_id}.cron"
    deployment.create({topic: (2, {})})
    sender = Sender(deployment.bootstrap_servers)
    for n in range(count):
        sender.send(topic, None, b"%d" % n, partition=n % 2)
    sender.finish()
    # So few at once that the group shares out anew before all is read.
    monkeypatch.setattr(move, "_BATCH", 2)
    cluster = Cluster(Settings(bootstrap_servers=deployment.bootstrap_servers, app_id=deployment.app_id))
    waits = UnreadRecords(group, [Span(topic, n, 0, count // 2) for n in (0, 1)])
    guest = Consumer({
        "bootstrap.servers": deployment.bootstrap_servers, "group.id": group, "enable.auto.commit": False, "logger": QUIET,
        "partition.assignment.strategy": "cooperative-sticky",
    })  # fmt: skip
    disturbed = Disturbed(cluster, waits, Conversion(convert_cronsumer_headers, target, others=False), leave=False, guest=guest)
    with pytest.raises(MigrationStopped, match="another consumer has joined the group"):
        disturbed.run()
    disturbed.ended.set()
    disturbed.joining.join()
    came = letters(deployment)
    assert 0 < len(came) == disturbed.moved < count
    committed = consumer_groups.read_positions(cluster.admin, group)
    assert {record.header("retry-migrated-from") for record in came} == {
        f"{topic}/{n}/{offset}" for (_, n), end in committed.items() for offset in range(end)
    }


@pytest.mark.slow
def test_behind_a_quota_that_is_slower_than_a_transaction_all_is_moved_in_smaller_ones(
    deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    deployment, count = deploy({"orders": 1}, defaults=WAITING), 1_500
    (target,), topic, group = deployment.dead_letters, f"{deployment.app_id}.exception", f"{deployment.app_id}.cron"
    deployment.create({topic: (1, {})})
    sender = Sender(deployment.bootstrap_servers)
    for n in range(count):
        sender.send(topic, b"%d" % n, os.urandom(3_000))
    sender.finish()
    limit_producer(deployment.bootstrap_servers, deployment.app_id, 200_000)
    cluster = Cluster(Settings(bootstrap_servers=deployment.bootstrap_servers, app_id=deployment.app_id))
    moved = Move(
        cluster,
        UnreadRecords(group, [Span(topic, 0, 0, count)]),
        Conversion(convert_cronsumer_headers, target, others=False),
        leave=False,
    )
    with caplog.at_level("INFO", "retry.operations.migrate"):
        moved.run()
    assert "records take longer than a transaction lives" in caplog.text
    assert (moved.moved, moved.left) == (count, 0)
    assert [record.key for record in letters(deployment)] == [b"%d" % n for n in range(count)]
    assert consumer_groups.read_positions(cluster.admin, group) == {(topic, 0): count}
