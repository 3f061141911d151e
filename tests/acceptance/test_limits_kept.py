"""Rates, budgets and breakers, by the clock of the retry topics; and due times that a calendar moves."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka import Producer

from retry.clock import Deadline, wall_ms
from tests.acceptance.test_refusing_targets import read_blocked
from tests.conftest import Deploy
from tests.support import policies
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

LETTERS, RATE = 300, 50
BUDGET = 40
# The clock of the retry topics beside that of the worker.
CLOCK_MS = 20
HOUR_MS = 3_600_000


def test_teams_and_targets_keep_to_their_limits_and_hold_up_nobody(deploy: Deploy) -> None:
    deployment = deploy(dict.fromkeys(("limited", "free", "gentle", "thrifty", "aligned"), 1), shards=2)
    limited, free, gentle, thrifty, aligned = deployment.dead_letters
    one = {name: policies.topic(deployment, name) for name in deployment.dead_letters}
    # Half a day from now, so that it does not come while this runs.
    hour = (wall_ms() // HOUR_MS + 12) % 24
    teams = {
        "limited": policies.team(one[limited], keys=f"rate: {RATE}/s"),
        "free": policies.team(one[free], one[gentle]),
        "thrifty": policies.team(one[thrifty], keys=f"budget: {BUDGET}/1d"),
        "aligned": policies.team(one[aligned], keys=f"align: {{cron: '0 {hour} * * *'}}"),
    }
    targets = f"{{{deployment.retry_of(gentle)}: {{rate: {RATE}/s}}}}"
    deployment.policy_file.write_text(policies.text(teams, policies.DEFAULTS.replace("100ms", "3s"), targets))
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    for name in (limited, free, gentle):
        for n in range(LETTERS):
            sender.send(name, b"k%d" % n, b"v")
    for n in range(2 * BUDGET):
        sender.send(thrifty, b"k%d" % n, b"v")
    for n in range(10):
        sender.send(aligned, b"k%d" % n, b"v")
    sender.finish()
    tail.await_seen(3 * LETTERS + BUDGET)
    stamps: dict[str, list[int]] = {}
    for record in tail.records:
        stamps.setdefault(record.topic, []).append(record.timestamp_ms)
    assert {topic: len(of) for topic, of in stamps.items()} == {
        deployment.retry_of(limited): LETTERS, deployment.retry_of(free): LETTERS,
        deployment.retry_of(gentle): LETTERS, deployment.retry_of(thrifty): BUDGET,
    }  # fmt: skip
    for name in (limited, gentle):
        of = sorted(stamps[deployment.retry_of(name)])
        due_ms = min(int(r.header("retry-due-ms")) for r in tail.records if r.topic == deployment.retry_of(name))
        # The bucket begins full: one period's letters at once, then as the rate says. A slow machine only makes it later.
        early = [n for n, stamp in enumerate(of) if stamp < due_ms + (n + 1 - RATE) * 1_000 // RATE - CLOCK_MS]
        assert early == [], Counter((stamp - due_ms) // 1_000 for stamp in of)
        # And the limit is used: ten times as long is for a machine that sweeps seldom, when a full bucket gets no fuller.
        assert of[-1] - due_ms <= 10 * LETTERS * 1_000 // RATE
    assert max(stamps[deployment.retry_of(free)]) < max(stamps[deployment.retry_of(limited)])
    why = {f"thrifty {thrifty} {deployment.retry_of(thrifty)}": "the limit is used up for now"}
    await_that("health says what is held", lambda: read_blocked(worker) == why)
    await_that("so many wait", lambda: worker.metric("retry_entries_waiting") == BUDGET + 10)
    # What is aligned waits for that hour, and is sent with it as its due time.
    listed = deployment.command("letters", f"topic:{aligned}", "state:waiting", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in listed]
    assert len(rows) == 10
    assert {divmod(int(row["name"].split("/")[0]), HOUR_MS)[1] for row in rows} == {0}
    assert {int(row["name"].split("/")[0]) // HOUR_MS % 24 for row in rows} == {hour}
    tail.close()
    worker.terminate()


def test_a_breaker_opens_while_retries_come_back_and_closes_when_they_do_not(deploy: Deploy) -> None:
    failures, letters = 10, 60
    deployment = deploy({"orders": 1}, shards=1)
    (name,) = deployment.dead_letters
    target = deployment.retry_of(name)
    limits = f"{{{target}: {{rate: 20/s, breaker: {{failures: {failures}, within: 1m, open_for: 2s}}}}}}"
    one = {"t": policies.team(policies.topic(deployment, name))}
    deployment.policy_file.write_text(policies.text(one, policies.DEFAULTS.replace("attempts: 5", "attempts: 50"), limits))
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    consumer = Toy(deployment.bootstrap_servers, target, name)
    for n in range(letters):
        sender.send(name, b"k%d" % n, b"v")
    sender.finish()

    def why() -> str:
        consumer.consume()
        return read_blocked(worker).get(f"t {name} {target}", "")

    opened = f"its breaker is open: {failures} letters came back within 60000 ms"

    def is_open() -> bool:
        # What was sent before it opened may not have come yet.
        return why() == opened and consumer.got == worker.metric("retry_entries_sent_total")

    await_that("it opens", lambda: why() == opened)
    await_that("it is counted", lambda: (why(), worker.metric("retry_lanes_blocked"))[1] == 1)
    assert consumer.got >= failures
    went, deadline = 0, Deadline(180.0)
    # A probe that a busy machine takes two seconds to bring back has gone well: more go then, until it opens anew.
    while went != 1:
        assert not deadline.has_passed(), f"{went} letters went, not a probe"
        await_that("it is open", is_open)
        sent = consumer.got
        await_that("a probe goes", lambda sent=sent: (consumer.consume(), consumer.got > sent)[1])  # type: ignore[misc]
        await_that("it comes back", is_open)
        went = consumer.got - sent
    consumer.fails = False
    await_that("everything flows", lambda: why() == "" and len(consumer.done) == letters)
    # Between two polls a probe may be over; a change of why letters wait is logged.
    assert f"{opened}; a probe is under way" in worker.log()
    await_that("nothing waits", lambda: worker.metric("retry_entries_waiting") == 0)
    consumer.close()
    worker.terminate()


class Toy:
    """Consumes a retry topic; while it fails, every record is dead-lettered again."""

    def __init__(self, bootstrap_servers: str, topic: str, dead_letters: str) -> None:
        self.fails, self.got, self.done = True, 0, set[bytes | None]()
        self._dead_letters, self._tail = dead_letters, Tail(bootstrap_servers, [topic])
        self._producer = Producer({"bootstrap.servers": bootstrap_servers})

    def consume(self) -> None:
        """Read the records that have come."""
        for record in self._tail.read(0.02):
            self.got += 1
            if self.fails:
                self._fail(record)
            else:
                self.done.add(record.key)
        self._producer.flush(10)

    def _fail(self, record: Record) -> None:
        self._producer.produce(self._dead_letters, record.value, record.key, headers=record.headers)

    def close(self) -> None:
        self._tail.close()
