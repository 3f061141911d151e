"""Others write to every topic of the service's own: no part ends, stops or shows a fault, and what is good is done and shown.

Thousands of records that no version wrote go to each topic, beside good ones. Then every reader is asked: worker, API, scheduler
and console by their health and all their pages, and every command that reads these topics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from retry.kafka import topics
from tests.acceptance.test_acted_letters import run_act
from tests.conftest import Deploy, Schedulings
from tests.support.asked_console import AskedConsole
from tests.support.deployment import Deployment
from tests.support.foreign import ForeignRecords, write_foreign
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail, admin
from tests.support.scheduler import Scheduling
from tests.support.timers import Api

pytestmark = pytest.mark.slow

FOREIGN, SEED, SHARDS = 2_000, 11, 2
LATER = "{backoff: {kind: constant, delay: 1h}, jitter: none}"
PARKS = "rules: [{headers: {give-up: now}, park: true}], null_value: cancel"
GRANTED = {"adm": "*:admin reveal:*"}
# Topics of which somebody reads every record, whatever it is, and by which it is told in the worker, the API or the console.
TOLD_BY_WORKER = ("changelog", "lineage", "positions")
TOLD_BY_CONSOLE = ("changelog", "outcomes", "audit", "notes")


class Running(NamedTuple):
    """All that runs, and what was done before the first foreign record."""

    deployment: Deployment
    scheduling: Scheduling
    worker: WorkerProcess
    scheduler: WorkerProcess
    api: Api
    console: AskedConsole
    timers: list[str]
    action: str

    def send(self, first: int, count: int) -> None:
        """So many letters that wait, and as many that are parked."""
        (topic,), sender = self.deployment.dead_letters, Sender(self.deployment.bootstrap_servers)
        for n in range(first, first + count):
            sender.send(topic, b"waits %d" % n, b'{"n": %d}' % n)
            sender.send(topic, b"parked %d" % n, b'{"n": %d}' % n, [("give-up", b"now")])
        sender.finish()


@pytest.fixture
def running(deploy: Deploy, scheduling: Schedulings) -> Iterator[Running]:
    """Started, with good records in every topic; and then the foreign ones, with more good ones behind them."""
    deployment = deploy({"orders": 2}, shards=SHARDS, defaults=LATER, topic_keys=PARKS)
    scheduler_deployment = scheduling(2)
    worker, api = deployment.worker().start().await_ready(), Api(deployment).start()
    console = AskedConsole(deployment, GRANTED).start()
    scheduler = scheduler_deployment.instance()
    timers = [api.make("http://127.0.0.1:9/", after="1h", body=f"{n}") for n in range(3)]
    timers.append(api.make("http://127.0.0.1:9/", after="0s"))
    made = Running(deployment, scheduler_deployment, worker, scheduler, api, console, timers, "")
    made.send(0, 5)
    await_that("all are taken in", lambda: worker.metric("retry_entries_waiting") == 9)
    action = run_act(deployment, "retry", "state:waiting", "key:waits*", "--at", "2h", "--reason", "good")["action"]
    assert deployment.command("pause", "--topic", "nobodys", "--force", "--reason", "good").returncode == 0
    for app_id, dead_letters in ((deployment.app_id, next(iter(deployment.dead_letters))), (scheduler_deployment.id, "x.DLT")):
        own = topics.build_topic_names(app_id)
        records = ForeignRecords(SEED, own, dead_letters)
        described = admin(deployment.bootstrap_servers).list_topics(timeout=30).topics
        for topic in records.topics():
            write_foreign(deployment.bootstrap_servers, records, topic, FOREIGN, len(described[topic].partitions))
    made.send(5, 5)
    made.timers.append(api.make("http://127.0.0.1:9/", after="1h"))
    made = made._replace(action=action)
    yield made
    for process in (worker, api.process, console.process, scheduler):
        process.kill()


def health(process: WorkerProcess) -> dict[str, Any]:
    status, text = process.get("/health/ready", 30.0)
    told = json.loads(text or b"{}")
    return {**told, "status": status}


def test_nothing_ends_and_all_that_is_good_is_done_and_shown(running: Running) -> None:
    deployment, worker = running.deployment, running.worker
    own = deployment.names._asdict()
    await_that("all good letters are taken in, and wait", lambda: len(list_waiting(deployment)) == 10, 300)

    # The worker.
    told = health(worker)
    assert told["status"] == 200, told
    for name in TOLD_BY_WORKER:
        said = told["unreadable"][own[name]]
        assert re.fullmatch(rf"[\d,]+ passed over, the first: {own[name]}/\d+.*", said, re.DOTALL), said
        assert count_passed_over(worker, own[name]) > FOREIGN / 4
    assert set(told["shards"].values()) == {"ready"}
    pages(running)
    commands(running)
    # All of it was named once, and nothing was a fault.
    for process in (worker, running.api.process, running.console.process, running.scheduler):
        assert process.running()
        log = process.log()
        assert "Traceback" not in log, log[log.index("Traceback") :][:3_000]
    assert worker.log().count(f"are only counted: {own['lineage']}") == 1
    # A new start reads all of it again.
    worker.terminate()
    deployment.wipe(worker)
    worker.start().await_ready()
    assert run_act(deployment, "retry", "state:waiting", "key:waits*")["done"] == 10
    Tail(deployment.bootstrap_servers, deployment.retry_topics()).await_seen(10)


def count_passed_over(process: WorkerProcess, topic: str) -> float:
    """How many records of a topic a process says that it has passed over."""
    found = re.search(rf'retry_unreadable_records_total{{topic="{topic}"}} (\S+)', process.get("/metrics")[1])
    return float(found[1]) if found else 0.0


def list_waiting(deployment: Deployment) -> list[str]:
    told = deployment.command("letters", "state:waiting", "key:waits*", "--limit", "1000", "--json")
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


def pages(running: Running) -> None:
    """Every page and every answer of API, console and scheduler."""
    own, api, console = running.deployment.names, running.api, running.console
    listed = {each["id"] for each in api.ask("GET", "/timers?limit=100")[1]["timers"]}
    assert listed >= {running.timers[n] for n in (0, 1, 2, 4)}
    assert all(api.ask("GET", f"/timers/{timer}")[0] == 200 for timer in running.timers)
    told = health(api.process)
    assert told["status"] == 200 and own.calls in told["unreadable"], told
    # Of the changelog it reads entries with names alone.
    assert count_passed_over(api.process, own.calls) > FOREIGN / 4 and count_passed_over(api.process, own.changelog) > 0

    def is_current() -> bool:
        found = console.ask("adm", "GET", "/api/letters?q=key:waits*&limit=100")
        return found[0] == 200 and found[1]["count"] == 10

    await_that("the console shows what is there", is_current, 300)
    told = health(console.process)
    assert told["status"] == 200 and told["state"] == "live", told
    for name in TOLD_BY_CONSOLE:
        topic = own._asdict()[name]
        assert told["unreadable"][topic] > FOREIGN / 4, told["unreadable"]
        assert count_passed_over(console.process, topic) == told["unreadable"][topic]
    paths = [
        "/", "/failures", "/failures?resolved=1", "/letters", "/act", "/actions", "/audit", "/pauses", "/policies", "/schedules",
        "/tasks", "/timers", "/schedules?history=1", "/timers?history=1", "/tasks?history=1", "/api/now",
        "/api/groups", "/api/actions", "/api/audit", "/api/pauses", "/metrics", "/health/live", "/letters/complete?q=team:",
        *(f"{at}/actions/{running.action}" for at in ("", "/api")), f"/api/actions/{running.action}/members",
        f"/actions/{running.action}/members.csv",
    ]  # fmt: skip
    for state in ("waiting", "parked", "discarded"):
        rows = console.asked("adm", "GET", f"/api/letters?q=state:{state}&limit=100")["letters"]
        paths += [f"/letters/{row['name']}" for row in rows[:40]] + [f"/api/letters/{row['name']}?reveal=1" for row in rows[:40]]
    paths += [f"/failures/{quote(group['id'], safe='')}" for group in console.asked("adm", "GET", "/api/groups")["groups"]]
    answers = {path: console.ask("adm", "GET", path) for path in paths}
    assert {path: answer[0] for path, answer in answers.items() if answer[0] >= 400 and answer[0] != 404} == {}
    assert len(console.asked("adm", "GET", "/api/letters?q=state:parked+key:parked*&limit=100")["letters"]) == 10
    assert running.action in json.dumps(console.asked("adm", "GET", f"/api/audit?action={running.action}"))
    for kind in ("retry", "discard"):
        found = console.preview("adm", {"kind": kind, "filter": "state:parked key:parked*"})
        assert (found["state"], found["letters"]) == ("ready", 10), found
    for path in ("/schedules", "/live/schedules", "/history/schedules", "/info"):
        assert running.scheduling.ask(running.scheduler, path) is not None


def commands(running: Running) -> None:
    """Every command that reads own topics: none shows a traceback, and each says what it has passed over."""
    deployment = running.deployment
    own, (topic,), wrong = deployment.names, deployment.dead_letters, list[Any]()
    # Who finds something wrong, or nothing to be done, says so.
    codes = {"verify": (0, 1), "erase": (3,)}
    for expected, *arguments in (
        ("", "letters", "--limit", "500"), ("", "letters", "state:parked", "--limit", "5000", "--json"),
        ("", "letters", "state:discarded", "--json"), ("", "failures"), ("", "failures", "--json"), ("audit", "audit"),
        ("audit", "audit", "--json"), ("", "explain", f"{topic}/0/0"), ("", "explain", f"{topic}/0/0", "--json"), ("", "actions"),
        ("", "actions", "--json"), ("", "actions", "show", running.action), ("", "actions", "members", running.action),
        ("", "pauses"), ("", "pause", "--team", "testers"), ("", "resume", "--team", "testers"),
        ("", "inspect", "--topic", topic), ("changelog", "verify"), ("changelog", "verify", "--json"), ("", "topics", "check"),
        ("", "act", "retry", "state:waiting"), ("", "act", "discard", "state:parked key:parked*"),
        ("", "reschedule", "--team", "testers"), ("", "erase", "--key", "nobody"), ("", "keys", "list"), ("", "tasks", "list"),
        ("", "try"), ("", "discover"), ("", "policies", "check", str(deployment.policy_file)), ("", "acls"),
    ):  # fmt: skip
        told = deployment.command(*arguments)
        said = told.stdout + told.stderr
        passed_over = rf"[\d,]+ records of {getattr(own, expected)} cannot be read and are passed over, " if expected else ""
        is_told = re.search(passed_over, told.stderr) is not None
        if "Traceback" in said or "Error:" in said or told.returncode not in codes.get(arguments[0], (0,)) or not is_told:
            wrong.append((arguments, told.returncode, is_told, said[-3_000:]))
    assert wrong == []
    assert "good" in deployment.command("audit").stdout
    assert len(deployment.command("letters", "state:parked", "key:parked*", "--limit", "100").stdout.splitlines()) == 10
