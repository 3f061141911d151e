"""`retry letters` and `retry failures` on a real broker: letters that wait and letters that are parked, by filter and by page."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.conftest import Deploy
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Headers, Sender

pytestmark = pytest.mark.slow

WAITING, PARKED = 12, 9
DEFAULTS = "{backoff: {kind: constant, delay: 1h}, jitter: none}"
RULES = "rules: [{exception: '*.Bad', park: true}]"


def failure_headers(exception: str, n: int) -> Headers:
    return [
        ("kafka_dlt-exception-fqcn", b"com.acme.Wrapper"),
        ("kafka_dlt-exception-cause-fqcn", b"com.acme." + exception.encode()),
        ("kafka_dlt-exception-message", b"order %d of 'Ann' is late" % n),
        ("tenant", b"even" if n % 2 == 0 else b"odd"),
    ]


def run_letters(deployment: Deployment, *words: str) -> tuple[list[dict[str, Any]], str]:
    told = deployment.command("letters", "--json", *words)
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()], told.stderr


def keys(deployment: Deployment, *words: str) -> list[str]:
    return [row["name"] for row in run_letters(deployment, *words)[0]]


def test_letters_are_listed_wherever_they_are(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults=DEFAULTS, topic_keys=RULES)
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(WAITING + PARKED):
        exception = "Slow" if n < WAITING else "Bad"
        sender.send(topic, b"%d" % n, b'{"order": {"id": %d}}' % n, failure_headers(exception, n))
    sources = set(sender.finish())
    worker = deployment.worker().start().await_ready()
    await_that("those that park have left", lambda: worker.metric("retry_entries_sent_total") == PARKED)
    await_that("the others wait", lambda: worker.metric("retry_entries_waiting") == WAITING)
    worker.terminate()

    rows, said = run_letters(deployment)
    assert [row["state"] for row in rows] == ["waiting"] * WAITING + ["parked"] * PARKED
    assert {row["letter"] for row in rows} == sources
    assert (len(rows), said) == (len(sources), "")
    assert [row["due"] for row in rows[:WAITING]] == sorted(row["due"] for row in rows[:WAITING])
    assert {(row["team"], row["reason"]) for row in rows[WAITING:]} == {("testers", "rule")}
    every = [row["name"] for row in rows]

    _pages(deployment, every)
    _filters(deployment, every)
    _one_in_full(deployment, rows)
    _cut(deployment)
    _failures(deployment, topic)
    _removed_by_retention(deployment, rows[-PARKED:])


def _pages(deployment: Deployment, every: list[str]) -> None:
    """Each page goes on where the one before ended, from what waits to what is parked."""
    seen: list[str] = []
    after: list[str] = []
    for _ in range(len(every)):
        told = deployment.command("letters", "--limit", "5", *after)
        seen += [next(word for word in line.split() if "/" in word) for line in told.stdout.splitlines()]
        if (more := re.search(r"--after (\S+)", told.stderr)) is None:
            break
        after = ["--after", more[1]]
    assert seen == every


def _filters(deployment: Deployment, every: list[str]) -> None:
    waiting, parked = every[:WAITING], every[WAITING:]
    for text in ("state:waiting", "cause:*.Slow", "-cause:com.acme.Bad", "due:<2h"):
        assert keys(deployment, text) == waiting, text
    for text in ("-state:waiting", "header.retry-parked-reason:*", "exception:com.acme.Bad"):
        assert keys(deployment, text) == parked, text
    assert keys(deployment, "due:<10m") == []
    assert len(keys(deployment, "header.tenant:odd", "state:parked")) == PARKED // 2
    assert len(keys(deployment, "value.$.order.id=3 or value.$.order.id=20")) == 2
    assert len(keys(deployment, 'message:"ORDER 7 of"')) == 1
    refused = deployment.command("letters", "team:testers", "slow")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("filter, column 14: ")


def _one_in_full(deployment: Deployment, rows: list[dict[str, Any]]) -> None:
    for row in (rows[0], rows[-1]):
        whole = json.loads(deployment.command("letters", "--show", row["name"]).stdout)
        assert {name: whole[name] for name in row if name != "cursor"} == {name: row[name] for name in row if name != "cursor"}
        assert whole["value_base64"] and whole["message"].endswith("is late")
    gone = deployment.command("letters", "--show", f"{deployment.parked}/0/999999")
    assert (gone.returncode, gone.stdout) == (1, "")


def _cut(deployment: Deployment) -> None:
    """Look at only the newest of each partition of the parking topic, and that is told."""
    rows, said = run_letters(deployment, "state:parked", "--newest", "2")
    places = Counter(row["name"].rpartition("/")[0] for row in rows)
    assert max(places.values()) == 2 and len(rows) < PARKED
    assert "only the newest 2 records are looked at" in said


def _failures(deployment: Deployment, topic: str) -> None:
    told = deployment.command("failures", "--json")
    groups = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(each["cause"], each["waiting"], each["parked"]) for each in groups] == [
        ("com.acme.Slow", WAITING, 0),
        ("com.acme.Bad", 0, PARKED),
    ]
    assert {(each["message"], *each["topics"], *each["teams"]) for each in groups} == {("order # of # is late", topic, "testers")}
    assert all(each["first_seen"] <= each["last_seen"] for each in groups)
    (only,) = deployment.command("failures", "--json", f"fingerprint:{groups[1]['fingerprint']}").stdout.splitlines()
    assert json.loads(only) == groups[1]


def _removed_by_retention(deployment: Deployment, parked: list[dict[str, Any]]) -> None:
    """Remove records as retention does: what is gone is told, and another letter that is left is not shown in its place."""
    places = [row["name"].rpartition("/")[0] for row in parked]
    kept = next(row for n, row in enumerate(parked) if n and places[n] == places[n - 1])
    topic, partition, offset = kept["name"].split("/")
    for done in deployment.admin.delete_records([TopicPartition(topic, int(partition), int(offset))]).values():
        done.result(30)
    gone = deployment.command("letters", "--show", f"{topic}/{partition}/{int(offset) - 1}")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "is not there" in gone.stderr
    assert json.loads(deployment.command("letters", "--show", kept["name"]).stdout)["letter"] == kept["letter"]
