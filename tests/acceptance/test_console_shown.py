"""The console by its real command over a real broker: what waits and what failed is shown, told apart by team, and kept fresh."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.bench.machine import family
from tests.conftest import Deploy
from tests.support.console_process import ConsoleProcess
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.unit.kafka.test_child_process import alive

pytestmark = pytest.mark.check

LETTERS = 30
FAILED = [
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"com.acme.GatewayTimeout"),
    ("kafka_dlt-exception-message", b"order 4711 timed out"),
    ("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-original-partition", (0).to_bytes(4, "big")), ("kafka_dlt-original-offset", (7).to_bytes(8, "big")),
    ("x-tenant", b"acme-secret"),
]  # fmt: skip


def two_teams(deployment: Deployment, delay: str = "1h") -> tuple[str, str]:
    """A policy file in which payments waits for so long, and others' letters are parked at once; the topics."""
    slow, given_up = deployment.dead_letters
    deployment.policy_file.write_text(
        f"defaults: {{backoff: {{kind: constant, delay: {delay}}}, jitter: none}}\nteams:\n"
        f"  payments: {{topics: [{{dead_letters: {slow}, retry_to: {deployment.retry_of(slow)}}}]}}\n"
        f"  others: {{topics: [{{dead_letters: {given_up}, retry_to: {deployment.retry_of(given_up)}, "
        f"park_to: {deployment.parked}, max_attempts: 0}}]}}\n"
    )
    return slow, given_up


def test_what_waits_and_is_parked_is_shown_explained_and_revealed(deploy: Deploy) -> None:
    deployment = deploy({"slow": 2, "given-up": 1}, shards=2)
    slow, given_up = two_teams(deployment)
    worker = deployment.worker().start().await_ready()
    console = ConsoleProcess(deployment).start()
    with closing(console.person()) as person:
        assert "Nothing waits." in person.get("/").text
        sender = Sender(deployment.bootstrap_servers)
        for n in range(LETTERS):
            sender.send(slow, b"key-%d" % n, b'{"order": 4711, "card": "secret-%d"}' % n, FAILED)
            sender.send(given_up, b"key-%d" % n, b"no json", FAILED)
        sender.finish()
        await_that("all are shown", lambda: f"{LETTERS} wait, {LETTERS} are parked" in person.get("/").text)
        assert worker.metric("retry_entries_waiting") == LETTERS

        failures = person.get("/failures").text
        assert "com.acme.GatewayTimeout" in failures
        assert failures.count(f">{LETTERS}</a>") == 2
        listed = person.get("/letters", q="team:payments").text
        assert listed.count("<tr id=") == LETTERS
        assert f"<strong>{LETTERS}</strong>" in listed
        assert person.get("/letters", q="team:payments attempt:9..").text.count("<mark><code>attempt:9..</code></mark>") == 1

        name = listed.partition('data-name="')[2].partition('"')[0]
        shown = person.get(f"/letters/{name}").text
        assert "It waits at" in shown
        assert "was written by spring" in shown.lower()
        assert "$.card" in shown
        assert "text of" in shown
        assert "secret-" not in shown
        revealed = person.post(f"/letters/{name}/reveal").text
        assert "secret-" in revealed
        assert "acme-secret" in revealed
        parked = person.get("/letters", q="state:parked").text.partition('data-name="')[2].partition('"')[0]
        assert "It rests in" in person.get(f"/letters/{parked}").text
        await_that("the audit has it", lambda: "reveal" in deployment.command("audit").stdout)
        processes = family(console.process.pid)
        assert console.process.terminate() < 10
        assert not any(map(alive, processes))
        assert "Traceback" not in console.process.log()


def test_what_is_held_is_told_with_its_reason_and_a_silent_worker_too_and_a_new_console_tells_the_same(deploy: Deploy) -> None:
    deployment = deploy({"slow": 1, "given-up": 1}, shards=1)
    slow, _ = two_teams(deployment, "100ms")
    assert deployment.command("pause", "--team", "payments", "--reason", "bank is down", "--by", "ann").returncode == 0
    worker = deployment.worker().start().await_ready()
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(slow, b"key-%d" % n, b"{}", FAILED)
    sender.finish()
    console = ConsoleProcess(deployment).start()
    with closing(console.person()) as person:
        held = lambda: person.get("/").text  # noqa: E731
        await_that("the pause is told of", lambda: f"{LETTERS} wait, 1 failure is new and payments is paused." in held())
        await_that("and why letters are overdue", lambda: "paused by team payments: bank is down (ann)" in held())
        worker.kill()
        await_that("that no worker runs is seen", lambda: "No worker runs, and nothing is sent until one starts." in held())
        heard = heard_of_last(held())
        console.process.kill()
    again = ConsoleProcess(deployment).start()
    with closing(again.person()) as person:
        assert f"{LETTERS} wait, 1 failure is new and payments is paused." in person.get("/").text
        await_that("that no worker runs is seen again", lambda: "No worker runs" in person.get("/").text)
        assert heard_of_last(person.get("/").text) == heard, "since when is not forgotten"
        name = person.get("/letters").text.partition('data-name="')[2].partition('"')[0]
        assert "It may not go now: paused by team payments: bank is down (ann)." in person.get(f"/letters/{name}").text


def heard_of_last(html: str) -> str:
    """When a worker was heard of last, as a page says."""
    return html.partition("Heard of last: ")[2].partition('datetime="')[2].partition('"')[0]
