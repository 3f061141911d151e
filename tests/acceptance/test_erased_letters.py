"""All letters with one record key are erased from the command line, wherever they are, and others are left alone."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from retry.clock import iso, wall_ms
from retry.dead_letters import retry_headers as names
from tests.acceptance.test_acted_letters import WAITING, came, demand_refusal, list_waiting, run_act
from tests.acceptance.test_crash_points import CRASHING
from tests.acceptance.test_verify import wrong
from tests.conftest import Deploy
from tests.support import topics
from tests.support.checker import verify_deployment
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.check

PERSON, CARD = "person-17", "4711-0815"
DAY_MS = 86_400_000


def deploy_with_waiting(deploy: Deploy, count: int) -> tuple[Deployment, WorkerProcess]:
    """So many letters of the person wait, and as many of others."""
    deployment = deploy({"orders": 2}, shards=2, defaults=WAITING)
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(count):
        sender.send(topic, PERSON.encode(), b'{"n": %d, "card": "%s"}' % (n, CARD.encode()), [("who", b"Ann Person")])
        sender.send(topic, b"other-%d" % n, b'{"n": %d}' % n)
    sender.finish()
    worker = deployment.worker().start().await_ready()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == 2 * count)
    return deployment, worker


def run_erase(deployment: Deployment, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Run `retry erase` and return what it prints: what there is, and what was done."""
    done = deployment.command("erase", "--key", PERSON, "--json", *arguments)
    assert done.returncode == code, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def remains(told: dict[str, Any], topic: str) -> list[dict[str, Any]]:
    return [each for each in told["remains"] if each["where"].split("/")[0] == topic]


@pytest.mark.slow
def test_a_person_is_erased_where_letters_wait_are_parked_discarded_or_were_edited(deploy: Deploy, tmp_path: Path) -> None:
    deployment, worker = deploy_with_waiting(deploy, 5)
    keys = [row["name"] for row in list_waiting(deployment, f"key:{PERSON}")]
    assert run_act(deployment, "park", "--letter", keys[0], "--reason", f"of {PERSON}")["done"] == 1
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(1)
    # It lies there as it was, and waits as it is.
    value = tmp_path / "value"
    value.write_text('{"card": "other"}')
    assert run_act(deployment, "edit", "--letter", keys[1], "--value-file", str(value))["done"] == 1
    assert run_act(deployment, "discard", "--letter", keys[2])["done"] == 1
    own = deployment.names

    [shown] = run_erase(deployment)
    assert (shown["letters"], shown["wait"], shown["rest"]) == (6, 4, 2)
    assert list_waiting(deployment, f"key:{PERSON}") != []
    [parked], [former] = remains(shown, deployment.parked), remains(shown, own.discarded)
    assert ("kept for ever" in parked["what"], parked["until"]) == (True, None)
    [record] = came(deployment, own.discarded)
    assert former["until"] == iso(record.timestamp_ms + 30 * DAY_MS)
    [entries] = remains(shown, own.changelog)
    assert iso(wall_ms()) < entries["until"] < iso(wall_ms() + DAY_MS)
    [audited] = remains(shown, own.audit)
    assert "1 records whose reason names the key" in audited["what"]
    assert any("its filter, patch or reason names the key" in each["what"] for each in shown["remains"])

    demand_refusal(deployment, "have this key, not 5", "erase", "--key", PERSON, "--yes", "--expect", "5")
    demand_refusal(deployment, "the reason names the key", "erase", "--key", PERSON, "--yes", "--reason", f"{PERSON} wrote to us")
    _, done = run_erase(deployment, "--yes", "--expect", "6", "--reason", "a letter of 3 May")
    assert (done["done"], done["gone"], done["refused"]) == (6, 0, {})
    await_that("they are gone", lambda: worker.metric("retry_entries_waiting") == 5)
    assert list_waiting(deployment, f"key:{PERSON}") == []
    assert len(list_waiting(deployment, "key:other-*")) == 5
    left = [record for record in came(deployment, own.discarded) if record.header(names.ACTION_BEFORE) == "erased"]
    assert [(record.key, record.value) for record in left] == [(None, None)] * 5
    assert {name for record in left for name, _ in record.headers} <= names.OURS
    assert came(deployment) == []

    [head] = [json.loads(line) for line in deployment.command("actions", "--json").stdout.splitlines() if '"erase"' in line]
    assert (head["status"], PERSON in json.dumps(head)) == ("done", False)
    told = deployment.command("audit", "--action", done["action"], "--json").stdout
    assert (PERSON in told, CARD in told, told.count('"result":"done"')) == (False, False, 6)
    demand_refusal(deployment, "they were returned before", "act", "retry", "state:parked", f"key:{PERSON}")
    demand_refusal(deployment, "they were erased", "act", "retry", "state:discarded")
    demand_refusal(deployment, "an erase cannot be undone", "actions", "undo", done["action"])
    [again] = run_erase(deployment, "--yes", code=3)
    assert (again["letters"], again["erased"]) == (0, 2)
    assert wrong(verify_deployment(deployment)) == {}
    worker.terminate()


def test_a_worker_that_ends_in_the_midst_erases_each_once(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 50)
    worker.terminate()
    late = deployment.command("erase", "--key", PERSON, "--yes", "--wait", "1ms")
    assert late.returncode == 1, late.stderr
    worker.start(*CRASHING, CRASH_AT="sweep-during-commit:1")
    assert worker.wait(120) == -signal.SIGKILL
    worker.start().await_ready()
    await_that("they are gone", lambda: worker.metric("retry_entries_waiting") == 50)
    assert list_waiting(deployment, f"key:{PERSON}") == []
    assert len(came(deployment, deployment.names.discarded)) == 50
    assert wrong(verify_deployment(deployment)) == {}
    worker.terminate()


def test_a_key_is_read_from_a_file_and_of_one_topic_only_its_letters_are_meant(deploy: Deploy, tmp_path: Path) -> None:
    deployment, worker = deploy_with_waiting(deploy, 1)
    key = tmp_path / "key"
    key.write_bytes(PERSON.encode())
    demand_refusal(deployment, "0 letters to erase", "erase", "--key-file", str(key), "--topic", "another.DLT", "--yes")
    demand_refusal(deployment, "0 letters to erase", "erase", "--key", PERSON[:-1], "--yes")
    demand_refusal(deployment, "give one of --key and --key-file", "erase", "--yes", code=2)
    [topic] = deployment.dead_letters
    done = deployment.command("erase", "--key-file", str(key), "--topic", topic, "--yes")
    assert (done.returncode, "1 done" in done.stdout) == (0, True), done.stderr
    worker.terminate()


def test_what_rests_on_a_compacted_topic_gets_a_null(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 2)
    topics.configure(deployment.admin, deployment.parked, cleanup_policy="compact")
    assert run_act(deployment, "park", f"key:{PERSON}")["done"] == 2
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(2)
    where = {record.partition for record in came(deployment, deployment.parked)}
    _, done = run_erase(deployment, "--yes")
    assert done["done"] == 2
    nulls = [record for record in came(deployment, deployment.parked) if record.value is None]
    assert [(record.key, record.headers) for record in nulls] == [(PERSON.encode(), [])] * len(where)
    assert {record.partition for record in nulls} == where
    assert wrong(verify_deployment(deployment)) == {}
    worker.terminate()
