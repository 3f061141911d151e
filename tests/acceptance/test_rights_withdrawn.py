"""Each right that `retry acls` lists, taken away by itself: whoever lacks it says which one it is, and what grants it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from retry import clock
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action
from retry.kafka import topics
from retry.kafka.authorization import Right as Needed
from retry.operations.control_requests import ShardNumbers
from retry.policies.policy_file import load
from retry.process import acls
from retry.settings import Settings
from tests.support.letters import Sender
from tests.support.process import WORKER, WorkerProcess, await_that
from tests.support.protected import Protected
from tests.support.reading import COMMITTED, read
from tests.support.secured import Right, SecuredBroker
from tests.support.timers import API

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

_SAID_S = 240.0
# What a command is asked to do that needs the right; the letter is one that lies there.
_PROBES: dict[tuple[str, str], tuple[str, ...]] = {
    ("changelog", "read"): ("letters",),
    ("changelog", "write"): ("pause", "--all"),
    ("control writers", "write"): ("pause", "--all"),
    ("changelog", "describe-configs"): ("topics", "check"),
    ("lineage", "describe"): ("topics", "check"),
    ("positions", "write"): ("topics", "reread", "{orders}", "--yes"),
    ("calls", "describe"): ("topics", "check"),
    ("parked timers", "describe"): ("topics", "check"),
    ("notes", "describe"): ("topics", "check"),
    ("lineage", "describe-configs"): ("erase", "--key", "k"),
    ("audit", "read"): ("audit",),
    ("audit", "write"): ("actions", "hold", "{action}"),
    ("audit", "describe-configs"): ("erase", "--key", "k"),
    ("discarded", "read"): ("topics", "check"),
    ("task definitions", "read"): ("tasks", "pause", "acme/hourly"),
    ("task outputs", "write"): ("tasks", "backfill", "acme/hourly", "--from", "1d", "--yes"),
    ("task definitions", "write"): ("tasks", "samples", "--output-topic", "{runs}", "--send", "{definitions}"),
}  # fmt: skip
_VERIFY = ("verify",)


@pytest.fixture(scope="module")
def protection(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    """A deployment with every right that is listed, and records in the topics that commands read."""
    made = Protected(secured, tmp_path_factory.mktemp("withdrawn"))
    for part in ("worker", "topics create", "commands", "api"):
        secured.grant(made.rights(part))
    made.run("topics create", "topics", "create")
    try:
        _take_in_letter(made, secured)
        yield made
    finally:
        made.deployment.close()


def _take_in_letter(protected: Protected, secured: SecuredBroker) -> None:
    """Have a worker take in a letter and a task: a right to read a topic is not missed while the topic is empty."""
    servers = secured.inner.bootstrap_servers
    sender = Sender(servers)
    sender.send(protected.orders, None, b"something to do")
    hourly = {"frequency": {"unit": "HOURS", "time": 1}, "config": {"outputTopic": protected.runs}}
    sender.send(protected.definitions, b'{"customerId": "acme", "taskName": "hourly"}', json.dumps(hourly).encode())
    sender.finish()
    worker = protected.deployment.worker("worker with").start(*WORKER, **protected.environ("worker"))
    positions = topics.build_topic_names(protected.app_id).positions
    await_that("it is noted how far letters are taken in", lambda: read(servers, [positions], COMMITTED), _SAID_S)
    listed = lambda: protected.run("commands", "tasks", "list")  # noqa: E731
    await_that("the task waits", lambda: "acme/hourly" in listed(), _SAID_S)
    worker.kill()


def _lines(protected: Protected, part: str) -> list[acls.AclLine]:
    lines = list(acls.list_rights([part], acls.resolve_names(protected.app_id, load(protected.deployment.policy_file))))
    whole = [line.right for line in lines if line.right.prefixed]
    return [line for line in lines if not any(_is_part(line.right, right) for right in whole)]


def _is_part(right: Needed, whole: Needed) -> bool:
    """Whether a right is still there, for all names that begin so, when it is taken away."""
    same = right != whole and (right.resource, right.operation) == (whole.resource, whole.operation)
    return same and right.name.startswith(whole.name)


def _as_right(protected: Protected, part: str, right: Needed) -> Right:
    return Right(f"User:{protected.users[part]}", *right)


def has_named_right(process: WorkerProcess, right: Needed) -> bool:
    """Whether it was said by name, or the process ended without."""
    # Asked first: it may say it, and end, between the two.
    running = process.running()
    log = process.log()
    said = f"{right.operation} {right.resource} {right.name}" in log and "kafka-acls.sh" in log
    assert said or running, process.tail()
    return said


@pytest.mark.parametrize(("part", "program"), [("worker", WORKER), ("api", API)])
def test_a_process_says_which_right_it_lacks(
    protection: Protected, secured: SecuredBroker, part: str, program: tuple[str, ...]
) -> None:
    sender = Sender(secured.inner.bootstrap_servers)
    for _, of, right, *_ in _lines(protection, part):
        # Nobody can tell a topic of a pattern that he may not see from one that is not there.
        if of == "dead letters" and right.prefixed:
            continue
        secured.withdraw([_as_right(protection, part, right)])
        sender.send(protection.orders, None, b"something to do")
        sender.finish()
        process = protection.deployment.worker(f"{part} without").start(*program, **protection.environ(part))
        await_that(f"{part} says that it lacks {right}", lambda p=process, r=right: has_named_right(p, r), _SAID_S)
        assert "Traceback" not in process.log(), process.tail()
        process.kill()
        secured.grant([_as_right(protection, part, right)])
    process = protection.deployment.worker(f"{part} without").start(*program, **protection.environ(part)).await_ready(_SAID_S)
    assert process.get("/health/ready")[0] == http.client.OK and "no right to" not in process.log()
    process.kill()


def test_a_command_says_which_right_it_lacks(protection: Protected, secured: SecuredBroker) -> None:
    # Its letters were never written, so no worker does anything for it.
    shards = ShardNumbers(Settings(bootstrap_servers=secured.inner.bootstrap_servers, app_id=protection.app_id))
    action = action_records.make_action_id()
    asked = Action("retry", "ann", clock.wall_ms(), [1, 0], 1)
    shards.put_control_record(action_records.build_head_key(action), action_records.encode(asked))
    fill = {"runs": protection.runs, "definitions": protection.definitions, "action": action.hex(), "orders": protection.orders}
    # What is empty need not be read, and no right to that is missed.
    for order in ("hold", "resume"):
        protection.run("commands", "actions", order, fill["action"])
    for order in ("pause", "resume"):
        protection.run("commands", order, "--all")
    for _, of, right, *_ in _lines(protection, "commands"):
        # Of these, a part of an answer is missing, and nothing else.
        partly = of in ("dead letters", "table group", "intake writers", "sweep writers")
        if partly or (of == "targets" and right.operation == "read"):
            continue
        secured.withdraw([_as_right(protection, "commands", right)])
        probe = _PROBES.get((of, right.operation), _VERIFY)
        said = protection.run("commands", *(argument.format(**fill) for argument in probe), code=2 if probe == _VERIFY else 1)
        assert right.name in said and "kafka-acls.sh" in said, f"{right}: {said}"
        assert "Traceback" not in said
        secured.grant([_as_right(protection, "commands", right)])
    # No worker runs by now, so what is due waits, and verify would say that it is stuck.
    protection.run("commands", "letters")
