"""`retry try` on a real broker: what it counts is what a worker then does, and it changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from retry.clock import wall_ms
from retry.intake.attempts import format_retry_id
from tests.conftest import Deploy
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Headers, Sender
from tests.support.reading import COMMITTED, read

pytestmark = pytest.mark.check

SOON = "{backoff: {kind: constant, delay: 200ms}, jitter: none, max_attempts: 3, max_age: 1h}"
RULES = "rules: [{exception: '*.Bad', park: true}, {exception: '*.Slow', backoff: {kind: constant, delay: 400ms}}]"
AGAIN: Headers = [("retry-attempt", b"3"), ("retry-id", format_retry_id(7, "testers"))]
LETTERS: list[Headers] = [
    *[[("exception-class", b"com.acme.Bad")]] * 4, *[[("exception-class", b"com.acme.Slow")]] * 7, *[[]] * 5, *[AGAIN] * 2,
]  # fmt: skip


def send_letters(deployment: Deployment, age_ms: int = 0) -> int:
    sender = Sender(deployment.bootstrap_servers)
    for topic in deployment.dead_letters:
        for n, headers in enumerate(LETTERS):
            sender.send(topic, b"%d" % n, b"v", headers, timestamp_ms=wall_ms() - age_ms)
    return len(sender.finish())


def run_try(deployment: Deployment, *arguments: str) -> dict[str, Any]:
    ended = deployment.command("try", "--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_what_is_counted_is_what_a_worker_does(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3, "bills": 1}, defaults=SOON, topic_keys=RULES)
    count = send_letters(deployment)
    result = run_try(deployment)
    assert (result["letters"], result["retried"], result["parked"]) == (count, 24, 12)
    expected = Counter({(row["policy"], row["target"], row["reason"] or ""): row["letters"] for row in result["by_policy"]})
    assert {row["exception"]: (row["letters"], row["retried"], row["parked"]) for row in result["by_exception"]} == {
        "com.acme.Slow": (14, 14, {}), "com.acme.Bad": (8, 0, {"rule": 8}), None: (14, 10, {"max_attempts": 4}),
    }  # fmt: skip
    waits = {row["policy"][-2:]: row["wait_ms"] for row in result["by_policy"] if row["decision"] == "retry"}
    assert waits["#2"] == {"least": 400, "median": 400, "most": 400}
    shown = deployment.command("try").stdout
    assert shown.startswith(f"{count} letters of 2 topics: 24 retried, 12 parked\n") and "com.acme.Slow" in shown
    worker = deployment.worker().start().await_ready()
    await_that("all have left", lambda: worker.metric("retry_entries_sent_total") == count)
    worker.terminate()
    done = read(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked], COMMITTED)
    did = Counter((record.header("retry-policy"), record.topic, record.header("retry-parked-reason")) for record in done)
    assert did == expected


def test_letters_that_grew_old_are_retried_as_when_they_were_written_and_park_now(deployment: Deployment) -> None:
    deployment.policy_file.write_text(deployment.policy_file.read_text().replace("jitter: full", "jitter: none, max_age: 1h"))
    count = send_letters(deployment, age_ms=7_200_000)
    result = run_try(deployment)
    assert (result["letters"], result["retried"]) == (count, count)
    assert result["now"] == {"at_once": 0, "within_an_hour": 0, "later": 0, "parked": count}
    assert run_try(deployment, "--newest", "2")["letters"] <= 6


def test_topics_are_named_that_have_no_policy_or_are_not_there(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    refused = deployment.command("try", "--topic", "elsewhere")
    assert refused.returncode == 1 and "the policy file has nothing on elsewhere" in refused.stderr
    text = deployment.policy_file.read_text()
    deployment.policy_file.write_text(text + "      - {dead_letters: gone.DLT, retry_to: gone.retry}\n")
    ended = deployment.command("try", "--json")
    assert json.loads(ended.stdout)["letters"] == 0 and "no topic gone.DLT" in ended.stderr
    refused = deployment.command("try", "--topic", "gone.DLT", "--topic", topic)
    assert refused.returncode == 1 and "no topic gone.DLT" in refused.stderr and "Traceback" not in refused.stderr
