"""What an operator pauses stays, through kill -9 and a lost directory, and comes back once when it is resumed."""

from __future__ import annotations

import json

import pytest

from retry.clock import iso, wall_ms
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail
from tests.support.sizes import only_in_faults

pytestmark = pytest.mark.check

LETTERS = 100
QUIET_S = 1.5
# The command, the letters and two looks come before that is over.
HELD_MS = 40_000


def two_teams(deployment: Deployment) -> tuple[str, str]:
    """A policy file in which each dead-letter topic has a team of its own; the topics."""
    held, free = deployment.dead_letters
    deployment.policy_file.write_text(
        "defaults: {backoff: {kind: constant, delay: 100ms}, jitter: none}\nteams:\n"
        + "".join(
            f"  {team}: {{topics: [{{dead_letters: {topic}, retry_to: {deployment.retry_of(topic)}}}]}}\n"
            for team, topic in (("payments", held), ("others", free))
        )
    )
    return held, free


def held_by(worker: WorkerProcess) -> dict[str, str]:
    """Read what the worker holds back, and why."""
    status, told = worker.get("/health/ready")
    return json.loads(told)["blocked"] if status else {"everything": "no answer"}


def run(deployment: Deployment, *arguments: str) -> str:
    """A command that is to succeed; what it prints."""
    done = deployment.command(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("scope", ["team", *only_in_faults("topic", "target", "all")])
def test_a_pause_outlives_the_worker_and_its_directory(deploy: Deploy, scope: str) -> None:
    deployment = deploy({"held": 2, "free": 2}, shards=2)
    held, free = two_teams(deployment)
    name = {"team": "payments", "topic": held, "target": deployment.retry_of(held)}.get(scope)
    option = [f"--{scope}", *([name] if name else [])]
    said = run(deployment, "pause", *option, "--reason", "bank is down", "--by", "ann")
    assert "paused" in said
    assert "in 2 shards" in said

    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(held, b"key-%d" % n, b"held %d" % n)
        sender.send(free, b"key-%d" % n, b"free %d" % n)
    sent = sender.finish()
    goes = 0 if scope == "all" else LETTERS
    waits = 2 * LETTERS - goes
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(goes)
    await_that("the rest waits", lambda: worker.metric("retry_entries_waiting") == waits)
    why = f"paused by {scope} {name or ''}".rstrip() + ": bank is down (ann)"
    await_that("health says why", lambda: why in held_by(worker).values())
    assert tail.quiet(QUIET_S) == []

    worker.kill()
    deployment.wipe(worker)
    worker.start().await_ready()
    await_that("it is still held", lambda: why in held_by(worker).values())
    assert tail.quiet(QUIET_S) == []
    assert {record.topic for record in tail.records} <= {deployment.retry_of(free)}
    [listed] = [json.loads(line) for line in run(deployment, "pauses", "--json").splitlines()]
    assert (listed["scope"], listed["name"], listed["reason"], listed["by"]) == (scope, name, "bank is down", "ann")

    assert "resumed" in run(deployment, "resume", *option)
    tail.await_seen(2 * LETTERS)
    assert tail.quiet(0.5) == []
    await_that("nothing is held", lambda: held_by(worker) == {})
    assert run(deployment, "pauses") == ""
    tail.close()
    worker.terminate()
    assert check(deployment, sent).wrong() == {}


@pytest.mark.slow
def test_a_pause_with_an_end_needs_nobody_to_resume_it(deployment: Deployment) -> None:
    [topic] = deployment.dead_letters
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    ends_ms = wall_ms() + HELD_MS
    said = run(deployment, "pause", "--all", "--until", str(ends_ms))
    assert f"until {iso(ends_ms)}" in said
    for n in range(LETTERS):
        sender.send(topic, b"key-%d" % n, b"%d" % n)
    sent = sender.finish()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == LETTERS)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    early = tail.quiet(QUIET_S)
    assert wall_ms() >= ends_ms or early == []
    [listed] = [json.loads(line) for line in run(deployment, "pauses", "--json").splitlines()]
    assert listed["until"] == iso(ends_ms)
    assert "@" in listed["by"]
    tail.await_seen(LETTERS)
    # Worker, broker and test have one clock.
    assert wall_ms() >= ends_ms
    tail.close()
    await_that("nothing is held", lambda: held_by(worker) == {})
    assert run(deployment, "pauses") == ""
    worker.terminate()
    # Its record is there until somebody asks for another, or for none.
    assert "resumed everything" in run(deployment, "resume", "--all")
    assert check(deployment, sent).wrong() == {}


def test_an_end_that_is_over_pauses_nothing(deployment: Deployment) -> None:
    refused = deployment.command("pause", "--all", "--until", str(wall_ms() - 1_000))
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "over by the brokers' time" in refused.stderr
    assert run(deployment, "pauses") == ""


def test_a_name_that_the_policy_file_does_not_know_is_refused(deployment: Deployment) -> None:
    refused = deployment.command("pause", "--team", "tester")
    assert refused.returncode == 1
    assert "knows no team tester; did you mean testers?" in refused.stderr
    assert run(deployment, "pauses") == ""
    assert "paused team tester" in run(deployment, "pause", "--team", "tester", "--force")
    assert "team tester" in run(deployment, "pauses")
    assert "resumed team gone" in run(deployment, "resume", "--team", "gone", "--force")
    assert "resumed team tester" in deployment.command("resume", "--team", "tester", RETRY_POLICIES="").stdout
    assert run(deployment, "pauses") == ""


@pytest.mark.parametrize("options", [[], ["--all", "--team", "testers"], ["--team", "a", "--topic", "b"]])
def test_one_scope_must_be_given(deployment: Deployment, options: list[str]) -> None:
    refused = deployment.command("pause", *options)
    assert refused.returncode == 2
    assert "give one of" in refused.stderr
