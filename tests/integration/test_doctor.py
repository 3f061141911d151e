"""`retry doctor` on a real broker: a sound deployment, one with faults of every kind, and brokers that are not there."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Deploy
from tests.support import topics
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Sender

pytestmark = pytest.mark.check

HOUR = {"retention.ms": "3600000"}
LATER = "{backoff: {kind: constant, delay: 1h}, jitter: none}"


def run_doctor(deployment: Deployment, code: int, *words: str, **environ: str) -> list[tuple[str, str, str]]:
    done = deployment.command("doctor", "--json", *words, **environ)
    assert done.returncode == code, done.stdout + done.stderr
    return [tuple(json.loads(line).values()) for line in done.stdout.splitlines()]  # type: ignore[misc]


def test_a_sound_deployment_has_notes_alone(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, topic_keys="group: shop", defaults=LATER)
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    # The clock is compared with that of a record, and a worker that is ready may not have written one yet.
    sender.send(next(iter(deployment.dead_letters)), b"key", b"value")
    sender.finish()
    await_that("a record is written", lambda: worker.metric("retry_entries_waiting") == 1)
    found = run_doctor(deployment, 0, "--for", "worker", "--for", "commands")
    worker.terminate()
    assert {about for state, about, _ in found if state == "ok"} >= {
        "versions", "policy file", "topics", "teams' topics", "rights", "clock", "groups", "retention",
    }  # fmt: skip
    notes = [text for state, about, text in found if state == "note" and about != "Java"]
    assert any("there are 1, so topics are made with so many copies" in text for text in notes)
    assert f"shop has no member that reads retries in {deployment.retry_topics()[0]}" in notes
    assert ("ok", "groups", f"{deployment.names.table_group} has 1 members") in found
    shown = deployment.command("doctor").stdout
    assert "note   brokers: there are 1" in shown


def test_each_fault_is_told_with_what_mends_it(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2, "bills": 1}, retry_config=HOUR)
    bills, names = next(topic for topic in deployment.dead_letters if "bills" in topic), deployment.names
    topics.delete(deployment.admin, deployment.retry_of(bills))
    topics.delete(deployment.admin, bills)
    topics.delete(deployment.admin, names.lineage)
    wrong = {(about, text) for state, about, text in run_doctor(deployment, 1) if state == "wrong"}
    orders = next(topic for topic in deployment.retry_topics() if "orders" in topic)
    assert ("topics", f"{names.lineage} is missing. To mend it: retry topics create") in wrong
    assert any(about == "retry topics" and text.startswith(f"{deployment.retry_of(bills)}: ") for about, text in wrong)
    assert any(about == "retention" and text.startswith(f"{orders} keeps records for 1h from their own") for about, text in wrong)
    assert len(wrong) == 3
    notes = {text for state, _, text in run_doctor(deployment, 1) if state == "note"}
    assert f"{bills} is not there, or not for this user: correct its name, or make it" in notes
    assert f"{names.table_group} has no member that reads the changelog: no worker runs" in notes
    # It has changed nothing: what is missing still is.
    assert names.lineage not in topics.describe(deployment.admin, [names.lineage])


def test_without_brokers_and_without_a_policy_file_it_says_what_it_can(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1})
    done = deployment.command("doctor", RETRY_POLICIES="", RETRY_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert (done.returncode, "no broker answered at 127.0.0.1:1" in done.stderr) == (2, True), done.stderr
    assert "wrong  policy file: RETRY_POLICIES is not set" in done.stdout
