"""Letters that are parked are returned from the command line by a running worker: once each, and verify finds nothing wrong."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.acceptance.test_acted_letters import _actions, came, demand_refusal, numbers, results, run_act
from tests.acceptance.test_crash_points import CRASHING
from tests.conftest import Deploy
from tests.support.checker import verify_deployment
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

# Every letter that has headers of two retries is parked.
TWICE = "{backoff: {kind: constant, delay: 1s}, jitter: none, max_attempts: 2}"
MADE = [("retry-attempt", b"2")]
LARGE = 600_000
# What fits once it is compressed would not be too large.
PAD = random.Random(1).randbytes(LARGE // 2).hex().encode()


def parking(deploy: Deploy, letters: int, shards: int = 2, **options: Any) -> tuple[Deployment, WorkerProcess, Sender]:
    """A deployment in which so many letters are parked."""
    deployment = deploy({"orders": 2}, shards=shards, defaults=TWICE, **options)
    sender = Sender(deployment.bootstrap_servers)
    send(deployment, sender, range(letters))
    worker = deployment.worker().start().await_ready()
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(letters)
    return deployment, worker, sender


def send(deployment: Deployment, sender: Sender, some: range) -> None:
    (topic,) = deployment.dead_letters
    for n in some:
        value = b'{"n": %d, "pad": "x"}' % n
        sender.send(topic, b"%d" % n, value, [("tenant", b"even" if n % 2 == 0 else b"odd"), *MADE])
    sender.finish()


def explain_letter(deployment: Deployment, letter: str) -> dict[str, Any]:
    told = deployment.command("explain", letter, "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def back(deployment: Deployment, count: int) -> list[Record]:
    """Wait until so many letters came back, and return them; no more come."""
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(count)
    assert tail.quiet(1.0) == []
    tail.close()
    return came(deployment)


def test_parked_letters_are_returned_once_and_those_that_fail_again_can_be_returned_again(deploy: Deploy) -> None:
    deployment, worker, sender = parking(deploy, 40)
    demand_refusal(deployment, "0 letters to retry", "act", "retry", "header.tenant:even", "--yes")
    shown = deployment.command("act", "retry", "state:parked", "header.tenant:even")
    assert "20 letters to retry" in shown.stdout, shown.stderr
    assert came(deployment) == []
    done = run_act(deployment, "retry", "state:parked", "header.tenant:even", "--expect", "20", "--reason", "mended")
    assert (done["done"], done["gone"], done["refused"]) == (20, 0, {})
    records = back(deployment, 20)
    assert numbers(records) == list(range(0, 40, 2))
    assert {record.header("retry-attempt") for record in records} == {"3"}
    assert {record.header("retry-parked-reason") for record in records} == {""}
    assert verify_deployment(deployment)["findings"] == {}
    demand_refusal(deployment, "they were returned before", "act", "retry", "state:parked", "header.tenant:even", "--yes")
    members = results(deployment, done["action"])
    assert {row["result"] for row in members} == {"done"}
    assert {row["letter"] for row in members} == {record.header("retry-source") for record in records}
    told = explain_letter(deployment, members[0]["letter"])
    assert (told["state"], done["action"] in json.dumps(told)) == ("retried", True), told

    # It fails again, with the headers that it came with.
    first = records[0]
    sender.send(next(iter(deployment.dead_letters)), first.key, first.value, first.headers)
    sender.finish()
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(41)
    assert run_act(deployment, "retry", "state:parked", f"key:{(first.key or b'').decode()}")["done"] == 1
    again = back(deployment, 21)
    assert sorted(record.header("retry-attempt") for record in again)[-1] == "4"
    assert len({record.header("retry-id") for record in again}) == 20
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()


@pytest.mark.slow
def test_two_operators_return_the_same_letters_and_a_worker_is_killed_in_the_midst(deploy: Deploy) -> None:
    letters = 400
    # A transaction has few letters, so that there are some to be killed in.
    deployment, worker, _ = parking(deploy, letters, environ={"RETRY_BATCH_BYTES": "16384"})
    worker.terminate()
    for by in ("ann", "bob"):
        asked = deployment.command("act", "retry", "state:parked", "--yes", "--wait", "1ms", "--by", by)
        assert asked.returncode == 1, asked.stderr
    for point in ("sweep-during-commit:2", "sweep-after-commit:3"):
        worker.start(*CRASHING, CRASH_AT=point)
        assert worker.wait(120) == -signal.SIGKILL
    worker.start().await_ready()
    done = [json.loads(line) for line in _actions(deployment, 2, "done")]
    assert sum(each["done"] for each in done) == letters
    assert sum(each["refused"].get("returned", 0) for each in done) == letters
    assert numbers(back(deployment, letters)) == list(range(letters))
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()


@pytest.mark.slow
def test_a_letter_that_was_parked_by_reference_comes_back_whole_or_not_at_all(deploy: Deploy) -> None:
    small = {"max.message.bytes": "200000", "message.timestamp.type": "LogAppendTime"}
    deployment, worker, sender = parking(deploy, 1, shards=1, retry_config=small)
    (topic,), (target,) = deployment.dead_letters, deployment.retry_topics()
    for n in (10, 11):
        sender.send(topic, b"large", b'{"n": %d, "pad": "%s"}' % (n, PAD), partition=n % 2)
    sender.finish()
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(3)
    references = {r.header("retry-source") for r in came(deployment, deployment.parked) if r.value is None}
    assert {source.split("/")[1] for source in references} == {"0", "1"}
    demand_refusal(deployment, "2 too_large", "act", "retry", "state:parked", "key:large", "--yes")
    worker.terminate()
    # The target takes them now, and one of the two is gone from where it failed.
    resource = ConfigResource(ResourceType.TOPIC, target, incremental_configs=[
        ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
    ])  # fmt: skip
    for done in [*deployment.admin.incremental_alter_configs([resource]).values(),
                 *deployment.admin.delete_records([TopicPartition(topic, 0, -1)]).values()]:  # fmt: skip
        done.result(30.0)
    worker.start().await_ready()
    ended = run_act(deployment, "retry", "state:parked", "key:large")
    assert (ended["done"], ended["refused"]) == (1, {"source_gone": 1})
    (record,) = back(deployment, 1)
    assert json.loads(record.value or b"")["n"] == 11
    assert len(record.value or b"") > LARGE
    await_that("nothing waits", lambda: worker.metric("retry_entries_waiting") == 0)
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()


@pytest.mark.slow
def test_a_parked_letter_is_patched_on_its_way_and_another_is_discarded_and_returned(deploy: Deploy) -> None:
    deployment, worker, _ = parking(deploy, 2, shards=1)
    patch = ("patch", "state:parked", "key:1", "--merge-patch", '{"pad": null}', "--set-header", "mended=yes")
    shown = deployment.command("act", *patch)
    assert '-  "pad": "x"' in shown.stdout and "+mended: yes" in shown.stdout, shown.stderr + shown.stdout
    patched = run_act(deployment, *patch)
    assert patched["done"] == 1
    (record,) = back(deployment, 1)
    assert (json.loads(record.value or b""), record.header("mended")) == ({"n": 1}, "yes")
    demand_refusal(deployment, "cannot be parked there", "act", "park", "state:parked", "key:0", "--yes")
    discarded = run_act(deployment, "discard", "state:parked", "key:0")
    Tail(deployment.bootstrap_servers, [deployment.names.discarded]).await_seen(1)
    (letter,) = (row["letter"] for row in results(deployment, discarded["action"]))
    assert explain_letter(deployment, letter)["state"] == "discarded"
    late = deployment.command("actions", "undo", discarded["action"])
    assert (late.returncode, "1 of 1 letters: already discarded" in late.stderr) == (3, True), late.stderr
    assert verify_deployment(deployment)["findings"] == {}
    # The command that it offers.
    assert run_act(deployment, *late.stderr.partition(": retry act ")[2].split())["done"] == 1
    assert numbers(back(deployment, 2)) == [0, 1]
    assert explain_letter(deployment, letter)["state"] == "retried"
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()


@pytest.mark.slow
def test_parked_and_discarded_letters_are_edited_on_their_way_and_kept_as_they_were(deploy: Deploy, tmp_path: Path) -> None:
    deployment, worker, _ = parking(deploy, 3, shards=1)
    assert run_act(deployment, "discard", "state:parked", "key:1")["done"] == 1
    Tail(deployment.bootstrap_servers, [deployment.names.discarded]).await_seen(1)
    value = tmp_path / "value.json"
    value.write_text("no json")
    edit = ("--value-file", str(value), "--header", "mended=yes")
    demand_refusal(deployment, "its value is JSON", "act", "edit", "state:parked", "key:0", *edit)
    demand_refusal(deployment, "2 letters are like this", "act", "edit", "state:parked", *edit)
    for key, state in ((0, "parked"), (1, "discarded")):
        value.write_bytes(b'{"n": %d, "pad": "y"}' % key)
        shown = deployment.command("act", "edit", f"state:{state}", f"key:{key}", *edit)
        assert '-  "pad": "x"' in shown.stdout and '+  "pad": "y"' in shown.stdout, shown.stderr + shown.stdout
        assert run_act(deployment, "edit", f"state:{state}", f"key:{key}", *edit)["done"] == 1
    records = back(deployment, 2)
    assert {record.key: json.loads(record.value or b"")["pad"] for record in records} == {b"0": "y", b"1": "y"}
    assert {(record.header("mended"), record.header("tenant")) for record in records} == {("yes", "even"), ("yes", "odd")}
    former = [r for r in came(deployment, deployment.names.discarded) if r.header("retry-action-before") == "superseded"]
    assert sorted((r.key, json.loads(r.value or b"")["pad"]) for r in former) == [(b"0", "x"), (b"1", "x")]

    # Another operator returns it in between.
    worker.terminate()
    for kind in (["retry"], ["edit", "--header", "late=1"]):
        asked = deployment.command("act", kind[0], "state:parked", "key:2", *kind[1:], "--yes", "--wait", "1ms")
        assert asked.returncode == 1, asked.stderr
    worker.start().await_ready()
    late, before = (json.loads(line) for line in _actions(deployment, 5, "done")[:2])
    assert (late["kind"], late["done"], late["refused"], before["done"]) == ("edit", 0, {"changed": 1}, 1)
    assert numbers(back(deployment, 3)) == [0, 1, 2]
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()
