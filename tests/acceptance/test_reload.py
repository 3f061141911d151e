"""A policy file that changes while the service runs: used when it is whole, refused when it is not, whatever waits meanwhile."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from retry import clock
from retry.policies.registry import Registry
from retry.process.policy_reload import PolicyFile
from retry.settings import Settings
from tests.conftest import Deploy
from tests.support import policies
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.check

SLOW = "{backoff: {kind: constant, delay: 1h}, jitter: none}"


def health(worker: WorkerProcess) -> dict[str, Any]:
    """Read what `/health/ready` answers, which is 200 whatever becomes of the policy file."""
    status, body = worker.get("/health/ready")
    assert status == 200, body
    return json.loads(body)


def hang_up(worker: WorkerProcess) -> None:
    """Have it look at once."""
    worker.signal(signal.SIGHUP)


def by_itself(worker: WorkerProcess) -> None:
    """Leave the worker alone, since it looks by itself."""


def change(deployment: Deployment, worker: WorkerProcess, text: str) -> None:
    """Write a policy file, ask for it, and wait until it is used."""
    before = health(worker)["policies"]["sha256"]
    deployment.policy_file.write_text(text)
    hang_up(worker)
    await_that("another file is used", lambda: health(worker)["policies"]["sha256"] != before)


@pytest.mark.fault("policy changed while entries wait")
@pytest.mark.parametrize("ask", [by_itself, hang_up])
def test_a_changed_file_is_used_and_its_topics_are_read(deploy: Deploy, ask: Callable[[WorkerProcess], None]) -> None:
    deployment = deploy({"kept": 1, "removed": 1, "added": 1}, shards=1)
    kept, removed, added = deployment.dead_letters
    one = {name: policies.topic(deployment, name) for name in deployment.dead_letters}
    deployment.policy_file.write_text(policies.text({"t": policies.team(one[kept], one[removed])}, SLOW))
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    for name in deployment.dead_letters:
        sender.send(name, b"k", b"before")
    before = list(sender.finish().values())
    await_that("letters of both wait", lambda: worker.metric("retry_entries_waiting") == 2)

    deployment.policy_file.write_text(policies.text({"t": policies.team(one[kept], one[added])}))
    ask(worker)
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.names.parked])
    tail.await_seen(1)
    assert tail.records[0].topic == deployment.retry_of(added)
    for name in deployment.dead_letters:
        sender.send(name, b"k", b"after")
    sender.finish()
    tail.await_seen(3)
    # What waits keeps its due time, and what is not read stays unread.
    assert tail.quiet(1.0) == []
    came = Counter(record.topic for record in tail.records)
    assert came == {deployment.retry_of(added): 2, deployment.retry_of(kept): 1}
    tail.close()
    lines = deployment.command("letters", "state:waiting", "--json").stdout.splitlines()
    due_ms = sorted(letter.timestamp_ms + 3_600_000 for letter in before if letter.topic in (kept, removed))
    assert sorted(int(json.loads(line)["name"].split("/")[0]) for line in lines) == due_ms, lines
    worker.terminate()


def test_a_broken_file_is_refused_until_it_is_mended(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=1)
    (name,) = deployment.dead_letters
    whole = policies.text({"t": policies.team(policies.topic(deployment, name))})
    deployment.policy_file.write_text(whole)
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    sha256 = health(worker)["policies"]["sha256"]
    assert worker.metric("retry_policy_file_valid") == 1
    broken = {
        whole.replace("max_attempts: 5", "max_attempts: many"): ":1: defaults.max_attempts: ",
        whole + "  x: {topics: [{dead_letters: y}]}\n": ":5: teams.x.topics[0]: retry_to is missing",
        whole[:-20]: f"{deployment.policy_file}:",
        policies.text({"t": policies.team(policies.topic(deployment, deployment.names.parked))}): "the service's own topics",
    }
    refused = None

    def refused_anew() -> bool:
        return health(worker)["policies"]["error"] not in (None, refused)

    for n, (text, why) in enumerate(broken.items(), 1):
        deployment.policy_file.write_text(text)
        hang_up(worker)
        # Of this text, and perhaps twice: by its own look, and because it was asked.
        await_that("it is refused", refused_anew)
        about = health(worker)["policies"]
        refused = about["error"]
        assert why in about["error"]
        assert about["sha256"] == sha256
        said = f"the policy file is not used, the old one stays: {refused}"
        await_that("its log says so", lambda said=said: said in worker.log())  # type: ignore[misc]
        assert worker.metric("retry_policy_file_valid") == 0
        sender.send(name, b"k", b"%d" % n)
        sender.finish()
        tail.await_seen(n)
    deployment.policy_file.unlink()
    hang_up(worker)
    await_that("a file that is gone is refused", refused_anew)
    assert str(deployment.policy_file) in health(worker)["policies"]["error"]
    deployment.policy_file.write_text(whole + "# mended\n")
    await_that("the mended one is used", lambda: health(worker)["policies"]["sha256"] != sha256)
    assert health(worker)["policies"]["error"] is None
    assert worker.metric("retry_policy_file_valid") == 1
    times = worker.log().count("the policy file is not used, the old one stays")
    assert worker.metric("retry_policy_file_refused_total") == times > len(broken)
    tail.close()
    worker.terminate()


def test_a_file_that_is_swapped_by_links_is_noticed(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=1)
    (name,) = deployment.dead_letters
    # As Kubernetes mounts a ConfigMap: file → ..data/file, ..data → a directory; only ..data is swapped.
    mounted = deployment.folder / "mounted"
    swap(mounted, "first", deployment.policy_file.read_text())
    deployment.policy_file.unlink()
    deployment.policy_file.symlink_to(mounted / "..data" / "policies.yaml")
    worker = deployment.worker().start().await_ready()
    before = health(worker)["policies"]["sha256"]
    swap(mounted, "second", policies.text({"t": policies.team(policies.topic(deployment, name))}))
    await_that("it is used", lambda: health(worker)["policies"]["sha256"] != before)
    worker.terminate()


def swap(mounted: Path, revision: str, text: str) -> None:
    """Put a revision of the file in the place of the last."""
    (mounted / revision).mkdir(parents=True)
    (mounted / revision / "policies.yaml").write_text(text)
    (mounted / "new").symlink_to(revision)
    (mounted / "new").rename(mounted / "..data")


@pytest.mark.fault("team removed while entries wait")
@pytest.mark.slow
def test_entries_of_a_team_that_is_gone_wait_until_it_is_back(deploy: Deploy) -> None:
    deployment = deploy({"gone": 1, "stays": 1}, shards=1)
    gone, stays = deployment.dead_letters
    one = {name: policies.team(policies.topic(deployment, name)) for name in deployment.dead_letters}
    soon = policies.DEFAULTS.replace("100ms", "1s")
    both = policies.text({"gone": one[gone], "stays": one[stays]}, soon)
    deployment.policy_file.write_text(both)
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    # Held until the team is gone, however long that takes.
    assert deployment.command("pause", "--all").returncode == 0
    for n in range(20):
        sender.send(gone, b"k%d" % n, b"v", delays_ms=(1_000, 1_000))
        sender.send(stays, b"k%d" % n, b"v", delays_ms=(1_000, 1_000))
    sent = sender.finish()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == 40)
    change(deployment, worker, policies.text({"stays": one[stays]}, soon))
    assert deployment.command("resume", "--all").returncode == 0
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(20)
    why = "team gone is not in the policy file"
    await_that("health says why", lambda: health(worker)["blocked"] == {f"gone {gone} {deployment.retry_of(gone)}": why})
    await_that("so many wait", lambda: worker.metric("retry_entries_waiting") == 20)
    listed = deployment.command("letters", "state:waiting", "--json").stdout.splitlines()
    assert Counter(json.loads(line)["team"] for line in listed) == {"gone": 20}
    change(deployment, worker, both)
    tail.await_seen(40)
    tail.close()
    await_that("nothing is held", lambda: health(worker)["blocked"] == {})
    worker.terminate()
    assert check(deployment, sent).wrong() == {}


def test_brokers_that_do_not_answer_are_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, now_s = tmp_path / "policies.yaml", [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    file.write_text("teams: {}\n")
    policy_file = PolicyFile(Settings(policies=file))
    file.write_text("teams: {} # changed\n")
    answers: list[Exception | None] = [TimeoutError("no answer"), KafkaException(KafkaError(KafkaError._TRANSPORT)), None]
    asked = []

    def use(registry: Registry) -> None:
        asked.append(registry.digest)
        if (error := answers.pop(0)) is not None:
            raise error

    for refusals in (1, 2, 2, 2):
        now_s[0] += 2.1
        policy_file.refresh_registry(use)
        assert policy_file.refusals == refusals
    assert asked == [policy_file.registry.digest] * 3
    assert policy_file.trouble is None


@pytest.mark.slow
def test_no_worker_starts_with_an_emptied_file_where_letters_were_taken_in(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=1, defaults=SLOW)
    text = deployment.policy_file.read_text()
    deployment.policy_file.write_text("teams: {}\n")
    worker = deployment.worker().start().await_ready()
    worker.terminate()
    deployment.policy_file.write_text(text)
    sender = Sender(deployment.bootstrap_servers)
    sender.send(next(iter(deployment.dead_letters)), b"k", b"v")
    sender.finish()
    worker.start().await_ready()
    await_that("it is taken in", lambda: worker.metric("retry_entries_waiting") == 1)
    worker.terminate()
    deployment.policy_file.write_text("")
    assert worker.start().wait(120.0) == 1
    assert "no team and no task" in worker.log() and "--allow-empty" in worker.log()
    deployment.policy_file.write_text(text)
    worker.start().await_ready()
    assert worker.metric("retry_entries_waiting") == 1
    worker.terminate()


def test_letters_of_a_topic_that_is_removed_while_they_are_read_are_not_parked(deploy: Deploy) -> None:
    deployment = deploy({"gone": 1, "stays": 1}, shards=1)
    gone, stays = deployment.dead_letters
    one = {name: policies.team(policies.topic(deployment, name)) for name in deployment.dead_letters}
    both = policies.text({"gone": one[gone], "stays": one[stays]}, SLOW)
    deployment.policy_file.write_text(both)
    sender, changed = Sender(deployment.bootstrap_servers), Event()

    def send_until_changed() -> None:
        while not changed.is_set():
            sender.paced(50, 0.1, lambda n: sender.send(gone, b"k%d" % n, b"v"))

    # Small batches, and letters that never end, so that the file changes while some of them are read on every machine.
    worker = deployment.worker().start(RETRY_BATCH_RECORDS="100")
    thread = Thread(target=send_until_changed, name="load")
    thread.start()
    try:
        await_that("letters are taken in", lambda: worker.metric("retry_letters_consumed_total") > 0)
        await_that("it is ready", lambda: worker.get("/health/ready")[0] == 200)
        change(deployment, worker, policies.text({"stays": one[stays]}, SLOW))
        # The file is used a moment before brokers have heard what is read from now on.
        read_from_now_on = f"reading {stays}\n"
        await_that("it gives the topic up", lambda: "intake gives up" in worker.log().partition(read_from_now_on)[2])
    finally:
        changed.set()
        thread.join()
    sender.send(gone, b"late", b"v")
    sender.send(stays, b"k", b"v")
    letters = len(sender.finish())
    await_that("the other topic is read", lambda: 'team="stays"' in worker.get("/metrics")[1])
    assert worker.metric("retry_letters_consumed_total") < letters, "a topic that is in no policy is read"
    assert read(deployment.bootstrap_servers, [deployment.names.parked], COMMITTED) == []
    change(deployment, worker, both)
    await_that("the rest is read", lambda: worker.metric("retry_letters_consumed_total") == letters)
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == letters)
    assert read(deployment.bootstrap_servers, [deployment.names.parked], COMMITTED) == []
    worker.terminate()


def test_of_thousands_of_topics_that_nobody_made_one_is_read_when_it_is_made(deploy: Deploy) -> None:
    deployment = deploy({"there": 1}, shards=1)
    there = next(iter(deployment.dead_letters))
    many = [f"{deployment.app_id}.g{n}.DLT" for n in range(1_500)]
    of_many = policies.team(*(policies.topic(deployment, name) for name in many))
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    change(deployment, worker, policies.text({"t": policies.team(policies.topic(deployment, there)), "many": of_many}))
    # One that a client was told of all the same, and one that it was not.
    made = [many[7], many[1_400]]
    deployment.create({name: (1, {}) for dead in made for name in (dead, deployment.retry_of(dead))})
    tail = Tail(deployment.bootstrap_servers, [deployment.retry_of(name) for name in (there, *made)])
    for name in (there, *made):
        sender.send(name, b"k", b"v")
    sender.finish()
    tail.await_seen(3)
    assert {record.topic for record in tail.records} == {deployment.retry_of(name) for name in (there, *made)}
    assert worker.log().count("Subscribed topic not available") <= 21
    tail.close()
    worker.terminate()
