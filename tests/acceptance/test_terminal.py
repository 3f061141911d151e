"""What records say reaches a terminal as its escapes, through every command that prints it; JSON says it exactly."""

from __future__ import annotations

import json
import subprocess

import orjson
import pytest
from confluent_kafka import Producer

from tests.conftest import Deploy
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Sender
from tests.support.outcome_records import tell_of
from tests.support.reading import COMMITTED, read

pytestmark = pytest.mark.slow

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\u202eevil\u2066\x9b31m\x7f\u200b"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\r\n\u202eevil\u2066\x9b31m\x7f\u200b"
FORGED = {
    "v": 1, "id": HOSTILE, "source": "some.DLT/0/1", "team": HOSTILE, "topic": "some.DLT", "policy": HOSTILE, "attempt": 1,
    "exception": HOSTILE, "first_failed_ms": 1_700_000_000_000, "failed_ms": 1_700_000_000_000, "taken_ms": 1_700_000_000_000,
    "decision": "park", "reason": HOSTILE, "due_ms": None, "target": "some.parked", "cause": HOSTILE,
    "fingerprint": "0123456789abcdef", "group": HOSTILE, "action": None, "action_kind": None,
}  # fmt: skip


def test_no_command_prints_what_a_record_would_have_the_terminal_do(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, defaults="{backoff: {kind: constant, delay: 1h}, jitter: none}")
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    says = {"exception-fqcn": HOSTILE, "exception-message": HOSTILE, "original-consumer-group": HOSTILE}
    headers = [(f"kafka_dlt-{name}", text.encode()) for name, text in says.items()]
    sender.send(topic, HOSTILE.encode(), HOSTILE.encode(), [*headers, (HOSTILE, b"1"), ("retry-policy", HOSTILE.encode())])
    sender.finish()
    worker = deployment.worker().start()
    outcomes = [deployment.names.outcomes]
    await_that("it is taken in", lambda: read(deployment.bootstrap_servers, outcomes, COMMITTED))
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers})
    producer.produce(deployment.names.outcomes, orjson.dumps(tell_of(FORGED)), b"forged")
    assert producer.flush(20) == 0
    done(deployment, "pause", "--team", "testers", "--reason", HOSTILE)
    where = f"{topic}/0/0"
    assert SHOWN in done(deployment, "pauses")
    assert SHOWN in done(deployment, "explain", where)
    assert SHOWN in done(deployment, "analytics", "report", "--text")
    # It names letters by where they were written, and an outcome is passed over where that is no name of a topic.
    assert "some.DLT/0/1" in done(deployment, "verify", code=1)
    done(deployment, "letters")
    assert SHOWN in done(deployment, "failures")
    done(deployment, "reschedule", "--dry-run")
    done(deployment, "reschedule", "--topic", HOSTILE, code=1)
    assert json.loads(done(deployment, "pauses", "--json"))["reason"] == HOSTILE
    assert json.loads(done(deployment, "explain", "--json", where))["exception"] == HOSTILE
    assert json.loads(done(deployment, "inspect", "--topic", topic))["message"] == HOSTILE
    findings = json.loads(done(deployment, "verify", "--json", code=1))["findings"]
    assert any("some.DLT/0/1" in says for some in findings.values() for says in some)
    worker.terminate()
    assert worker.log().replace("\n", "").isprintable()


def done(deployment: Deployment, *arguments: str, code: int = 0) -> str:
    """Run a command to its end and return what it prints, all of which can be printed."""
    said: subprocess.CompletedProcess[str] = deployment.command(*arguments, timeout_s=600)
    assert said.returncode == code, said.stderr
    for text in (said.stdout, said.stderr):
        assert text.replace("\n", "").isprintable(), (arguments, text)
    return said.stdout or said.stderr
