"""Under `null_value: cancel` a null on a dead-letter topic parks what waits under its key, kill -9 of the worker or not."""

from __future__ import annotations

import json
import signal

import pytest

from retry.dead_letters import retry_headers as names
from tests.conftest import Deploy
from tests.support.letters import Letter, Sender
from tests.support.process import await_that
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

LETTERS, KEYS = 600, 6
# Batches so small and sweeps so far between that following the nulls takes many of them.
SLOW = {"RETRY_BATCH_RECORDS": "20", "RETRY_SWEEP_INTERVAL_MS": "250"}
# Nothing is swept before the nulls come, and each transaction cancels a batch at most: of 300 letters 100 by then.
CRASHING, IN_THE_MIDDLE = ("-m", "tests.acceptance.crashing_worker"), "sweep-before-commit:6"


def is_cancelled(letter: Letter, nulls: list[Letter]) -> bool:
    """Whether one of the nulls came after it under its key."""
    place = letter.partition, letter.key
    return any((null.partition, null.key) == place and null.offset > letter.offset for null in nulls)


def describe_parked(record: Record) -> tuple[str, bytes | None]:
    found = dict(record.headers)
    return (found[names.SOURCE] or b"").decode(), found.get(names.PARKED_REASON)


def test_3_8_a_null_on_a_dead_letter_topic_cancels_what_waits_under_its_key_through_kill_9(deploy: Deploy) -> None:
    deployment = deploy(
        {"orders": 2}, shards=2, environ=SLOW, topic_keys="null_value: cancel",
        defaults="{backoff: {kind: constant, delay: 1h}, jitter: none}",
    )  # fmt: skip
    topic, *_ = deployment.dead_letters
    worker, sender = deployment.worker(), Sender(deployment.bootstrap_servers)
    worker.start(*CRASHING, CRASH_AT=IN_THE_MIDDLE).await_ready()
    for n in range(LETTERS):
        sender.send(topic, b"key-%d" % (n % KEYS), b"letter %d" % n)
    letters = list(sender.finish().values())
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == LETTERS)

    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    sender = Sender(deployment.bootstrap_servers)
    for n in range(KEYS // 2):
        sender.send(topic, b"key-%d" % n, None)
    sender.send(topic, None, None, partition=0)
    sent_later = list(sender.finish().values())
    nulls = [each for each in sent_later if each.key is not None]
    keyless = next(each for each in sent_later if each.key is None)
    assert worker.wait(120.0) == -signal.SIGKILL
    sender = Sender(deployment.bootstrap_servers)
    for n in range(KEYS):
        sender.send(topic, b"key-%d" % n, b"later")
    later = list(sender.finish().values())
    worker.start()
    cancelled = {each.source for each in letters if is_cancelled(each, nulls)}
    assert len(cancelled) == LETTERS // 2
    tail.await_seen(len(cancelled) + len(nulls) + 1)
    waiting = LETTERS - len(cancelled) + len(later)
    await_that("the others wait", lambda: worker.metric("retry_entries_waiting") == waiting)

    explained = deployment.command("explain", min(cancelled), "--file", str(deployment.policy_file))
    assert "It was parked because of cancelled" in explained.stdout, explained.stdout + explained.stderr
    deployment.policy_file.write_text(deployment.policy_file.read_text().replace("1h", "1s"))
    moved = deployment.command("reschedule", "--yes", "--wait", "2m")
    assert moved.returncode == 0, moved.stderr
    tail.await_seen(len(cancelled) + len(nulls) + 1 + waiting)
    assert tail.quiet(1.0) == []
    tail.close()
    worker.terminate()

    parked = dict(describe_parked(record) for record in tail.records if record.topic == deployment.parked)
    reasons = {**dict.fromkeys(cancelled, b"cancelled"), **{each.source: b"null_value" for each in nulls}}
    assert parked == {**reasons, keyless.source: b"no_key"}
    sent = [describe_parked(record)[0] for record in tail.records if record.topic != deployment.parked]
    assert sorted(sent) == sorted(each.source for each in [*letters, *later] if each.source not in cancelled)
    verified = deployment.command("verify", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert not any(json.loads(verified.stdout).get("findings", {}).values())
