"""The whole service on a broker that allows nothing that was not granted, with no more rights than `retry acls` lists."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from confluent_kafka import Producer

from retry.delay_queue.entry_keys import NAMED, PLAIN
from retry.kafka import topics
from retry.scheduling import client
from tests.support.asked_console import COMMAND, AskedConsole
from tests.support.console_process import Person
from tests.support.hosts import Host
from tests.support.process import WORKER, WorkerProcess, await_that
from tests.support.protected import CANARY, PARTS, PAYLOAD, Protected
from tests.support.reading import COMMITTED, QUIET, read
from tests.support.scheduler import Scheduling
from tests.support.secured import SecuredBroker
from tests.support.sizes import only_in_faults
from tests.support.timers import API, Api

_SPARK_S = 600.0
pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def used_parts(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    """A deployment of which every part has been used once; its worker, API, scheduler and console still run."""
    protected = Protected(secured, tmp_path_factory.mktemp("protected"))
    for part in PARTS:
        secured.grant(protected.rights(part))
    try:
        _use(protected)
        yield protected
    finally:
        protected.deployment.close()


def _use(protected: Protected) -> None:
    d = protected.deployment
    protected.run("topics create", "topics", "create")
    assert "ok" in protected.run("commands", "topics", "check")
    # Those of the scheduler by who may make topics, so that it needs no right to.
    made = d.command("topics", "create", RETRY_APP_ID=d.environ["GROUP_ID"], RETRY_POLICIES="")
    assert made.returncode == 0, made.stderr
    worker = d.worker("a").start(**protected.environ("worker")).await_ready()
    api = Api(d, "api", **protected.environ("api")).start()
    scheduler = d.worker("scheduler").start("-m", "retry", "scheduler", **protected.environ("scheduler")).await_ready()
    _letters_and_tasks(protected)
    _timers(api)
    _schedules(protected, scheduler)
    _commands(protected)
    protected.console = console = AskedConsole(d, {"ann": "*:admin reveal:*"}, **protected.environ("console")).start()
    _console(protected, console)
    for process in (worker, api.process, scheduler, console.process):
        protected.look_at(process.pid)
        for page in ("/metrics", "/health/ready", "/health/live", "/health", "/"):
            protected.output += process.get(page)[1]


def _letters_and_tasks(protected: Protected) -> None:
    d = protected.deployment
    producer = Producer({"bootstrap.servers": d.bootstrap_servers, "logger": QUIET})
    for n in range(10):
        producer.produce(protected.orders, PAYLOAD + b" order %d" % n, PAYLOAD + b" %d" % n, n % 2, headers=[("who", PAYLOAD)])
    producer.produce(protected.more, PAYLOAD, b"more")
    assert producer.flush(30.0) == 0
    protected.run("commands", "tasks", "samples", "--output-topic", protected.runs, "--send", protected.definitions)
    servers = d.bootstrap_servers
    await_that("letters come back", lambda: len(read(servers, d.retry_topics(), COMMITTED)) == 11)
    await_that("tasks run", lambda: read(servers, [protected.runs], COMMITTED))
    protected.commit(d.retry_of(protected.orders), 1)
    await_that("what the group has committed is sampled", lambda: _positions(protected))


def _positions(protected: Protected) -> list[bytes]:
    found = read(protected.deployment.bootstrap_servers, [protected.deployment.names.outcomes], COMMITTED)
    values = [record.value or b"" for record in found]
    return [value for value in values if protected.group.encode() in value and b'"kind"' in value]


def _timers(api: Api) -> None:
    with Host() as host:
        told = PAYLOAD.decode()
        timer = api.make(f"{host.url}?{told}", after="2s", body=told, headers={"X-Secret": told})
        await_that("the timer is called", lambda: host.calls)
        assert host.calls[0].body == PAYLOAD
        await_that("the API tells of it", lambda: api.state(timer).get("state") not in ("waiting", None))


def _schedules(protected: Protected, scheduler: WorkerProcess) -> None:
    servers = protected.deployment.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "logger": QUIET})
    record = client.schedule(topic=protected.target, key=b"k", value=PAYLOAD, at=time.time() + 1, schedule_id="one",
                             schedules_topic=protected.schedules)  # fmt: skip
    producer.produce(**record)
    assert producer.flush(30.0) == 0
    await_that("the schedule is sent", lambda: read(servers, [protected.target], COMMITTED))
    await_that("its history is told", lambda: Scheduling.ask(scheduler, "/history/schedules"))


def _commands(protected: Protected) -> None:
    d = protected.deployment
    letter = f"{protected.orders}/0/0"
    protected.run("commands", "policies", "check", str(d.policy_file))
    assert len(protected.run("commands", "inspect", "--topic", protected.orders).splitlines()) == 10
    assert json.loads(protected.run("commands", "try", "--json"))["letters"] == 11
    assert letter in protected.run("commands", "explain", letter)
    protected.run("commands", "pause", "--topic", protected.orders, "--reason", "a test")
    assert "a test" in protected.run("commands", "pauses")
    protected.run("commands", "resume", "--topic", protected.orders)
    # The last that is due still waits when it is asked for.
    *_, entry = map(json.loads, protected.run("commands", "letters", "state:waiting", "--limit", "1000", "--json").splitlines())
    assert entry["target"] in protected.run("commands", "letters", "--show", entry["name"])
    *_, task = map(json.loads, protected.run("commands", "tasks", "list", "--json").splitlines())
    assert task["target"] in protected.run("commands", "tasks", "show", task["task"])
    protected.run("commands", "reschedule", "--team", "testers", "--dry-run")
    protected.run("commands", "reschedule", "--team", "testers", "--yes", "--wait", "60s")
    protected.run("commands", "verify", "--data-dir", str(d.worker("a").data_dir), timeout_s=180.0)


def _console(protected: Protected, console: AskedConsole) -> None:
    asked = partial(console.asked, "ann")
    asked("POST", "/api/pauses", {"scope": "team", "name": "testers", "reason": "a test"})
    await_that("the pause is shown", lambda: asked("GET", "/api/pauses")["pauses"])
    producer = Producer({"bootstrap.servers": protected.deployment.bootstrap_servers, "logger": QUIET})
    producer.produce(protected.orders, PAYLOAD + b" to be discarded", b"last")
    assert producer.flush(30.0) == 0
    mine = f"state:waiting topic:{protected.orders}"
    await_that("the letter waits", lambda: asked("GET", f"/api/letters?{urlencode({'q': mine})}")["count"] == 1)
    (row,) = asked("GET", f"/api/letters?{urlencode({'q': mine})}")["letters"]
    shown = json.dumps(asked("GET", f"/api/letters/{quote(row['name'])}?reveal=1"))
    assert base64.b64encode(PAYLOAD + b" to be discarded").decode() in shown
    found = console.preview("ann", {"kind": "discard", "filter": mine, "reason": "a test"})
    assert (found["state"], found["letters"]) == ("ready", 1)
    asked("POST", f"/api/actions/{found['id']}/start", {"expect": 1})
    await_that("it is discarded", lambda: asked("GET", f"/api/actions/{found['id']}").get("status") == "done")
    asked("DELETE", f"/api/pauses?{urlencode({'scope': 'team', 'name': 'testers'})}")
    await_that("the pause is over", lambda: not asked("GET", "/api/pauses")["pauses"])
    with closing(Person(f"http://127.0.0.1:{console.process.port()}")) as person:
        person.get("/sign-in")
        person.post("/sign-in", token="ann")
        person.get("/letters", q="state:discarded")
        assert person.post("/filters", name="discarded ones", text="state:discarded").status_code == HTTPStatus.SEE_OTHER
        await_that("the filter is kept", lambda: "discarded ones" in person.get("/letters").text)
        for page in ("/", "/failures", "/actions", "/pauses", "/policies", "/schedules", "/tasks", "/timers", "/audit"):
            assert person.get(page).status_code == HTTPStatus.OK, page


def _pause(console: AskedConsole) -> None:
    """Write a pause as a console does, and read it again."""
    asked = partial(console.asked, "ann")
    asked("POST", "/api/pauses", {"scope": "team", "name": "testers", "reason": "a test"})
    await_that("the pause is shown", lambda: asked("GET", "/api/pauses")["pauses"])
    asked("DELETE", f"/api/pauses?{urlencode({'scope': 'team', 'name': 'testers'})}")
    await_that("the pause is over", lambda: not asked("GET", "/api/pauses")["pauses"])


def _spark(protected: Protected) -> None:
    # What Spark writes down of a job for whoever asks later: plans, properties, the environment.
    conf, events, data = (protected.folder / name for name in ("spark-conf", "spark-events", "events"))
    conf.mkdir()
    events.mkdir()
    told = f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {events.as_uri()}\n"
    (conf / "spark-defaults.conf").write_text(told)
    protected.deployment.environ["SPARK_CONF_DIR"] = str(conf)
    counted = json.loads(protected.run("analytics", "analytics", "ingest", str(data), timeout_s=_SPARK_S).splitlines()[-1])
    # Of the letter that was discarded two outcomes are told: how it came, and what became of it.
    assert (counted["letters"], counted["retries"], counted["aside"]) == (13, 11, 0)
    assert counted["positions"] >= 1
    assert "testers" in protected.run("analytics", "analytics", "report", "--text", timeout_s=_SPARK_S)
    policies, of_data = str(protected.deployment.policy_file), ("--data", str(data), "--json")
    report = json.loads(protected.run("analytics", "analytics", "report", "--json", timeout_s=_SPARK_S))
    assert report["totals"]["letters"] == 12
    assert json.loads(protected.run("analytics", "analytics", "advise", *of_data, "--file", policies, timeout_s=_SPARK_S))
    what_if = ("what-if", policies, *of_data, "--file", policies)
    assert json.loads(protected.run("analytics", "analytics", *what_if, timeout_s=_SPARK_S))["now"]["letters"] == 12


def test_every_part_works_with_the_rights_that_acls_lists_and_says_of_none_that_it_is_missing(used_parts: Protected) -> None:
    for process in used_parts.deployment.workers.values():
        assert process.running()
        assert "uthorization" not in process.log() and "no right to" not in process.log(), process.tail()
    assert "no right to" not in used_parts.output


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""  # a table that is in use makes room


def list_files(protected: Protected, *parts: str) -> dict[str, list[Path]]:
    """The files of which a part of the path is one of these; fails where there are none, or the password is in any file."""
    files = [file for file in protected.folder.rglob("*") if file.is_file()]
    assert not [file for file in files if CANARY.encode() in _content(file)]
    kinds = {part: [file for file in files if part in file.as_posix()] for part in parts}
    assert all(kinds.values()), f"nothing was written of {[part for part, of in kinds.items() if not of]}"
    return kinds


def test_the_password_is_in_no_output_log_metric_health_page_argv_or_file(used_parts: Protected) -> None:
    assert "retry_" in used_parts.output and "ready" in used_parts.output and CANARY not in used_parts.output
    assert len(used_parts.argv) >= 10 and not [argv for argv in used_parts.argv if CANARY in argv]
    list_files(used_parts, ".log", "/tables/")


def test_no_payload_is_in_the_changelog_or_in_a_table_on_the_disks_of_brokers_and_workers(used_parts: Protected) -> None:
    servers, scheduling = used_parts.deployment.bootstrap_servers, used_parts.deployment.environ["GROUP_ID"]
    for changelog in (used_parts.deployment.names.changelog, topics.build_topic_names(scheduling).changelog):
        records = read(servers, [changelog], COMMITTED)
        entries = [record.value for record in records if record.value and (record.key or b"")[0] in (PLAIN, NAMED)]
        assert any(value[1:2] == b"\x02" for value in entries)
        assert not [record for record in records if PAYLOAD in (record.key or b"") + (record.value or b"")]
    logs = [file for file in (used_parts.broker.inner.data_dir / "kafka").rglob("*.log") if file.stat().st_size]
    written = [file for file in logs if "-changelog-" in file.parent.name]
    assert written
    tables = [file for file in used_parts.folder.rglob("*") if "/tables/" in file.as_posix() and file.is_file()]
    assert tables
    assert not [file for file in (*written, *tables) if PAYLOAD in _content(file)]
    # Where it is not encrypted it is found, so this looks in the right way.
    assert any(PAYLOAD in _content(file) for file in logs if ".retry-" in file.parent.name)
    listed = [json.loads(line) for line in used_parts.run("commands", "keys", "list", "--json").splitlines()]
    named = [(of["key_id"], of["seals"], of["in_file"]) for of in listed if of["key_id"]]
    assert named == [("new", True, True), ("old", False, True)]


@pytest.mark.slow
def test_spark_ingests_and_reports_with_two_rights_and_the_password_is_in_no_plan_argv_or_file(used_parts: Protected) -> None:
    _spark(used_parts)
    assert any("org.apache.spark.deploy.SparkSubmit" in argv for argv in used_parts.argv)
    assert CANARY not in used_parts.output and not [argv for argv in used_parts.argv if CANARY in argv]
    plans = "".join(
        file.read_text() for file in list_files(used_parts, "/spark-events/", ".parquet", "/_checkpoints/")["/spark-events/"]
    )
    assert "SparkListenerSQLExecutionStart" in plans and "SparkListenerEnvironmentUpdate" in plans


@pytest.mark.parametrize("way", ["certificates", *only_in_faults("tokens", "another password")])
def test_started_anew_with_other_credentials_all_goes_on_with_the_same_rights(used_parts: Protected, way: str) -> None:
    d, broker = used_parts.deployment, used_parts.broker
    worker, api, console = (d.workers[name] for name in ("a", "api", "console"))
    came_back = len(read(d.bootstrap_servers, d.retry_topics(), COMMITTED))
    if way == "another password":
        # From here on nobody comes in with the one before, and who is in already stays so.
        used_parts.connects = lambda user, password: broker.environ(user, f"{password} anew")
        for part, user in used_parts.users.items():
            broker.add_user(user, f"{CANARY}-{part.split()[0]} anew")
    else:
        used_parts.connects = {"certificates": broker.mutual_environ, "tokens": broker.token_environ}[way]
    for process, program in ((worker, WORKER), (api, API), (console, COMMAND)):
        process.terminate()
        process.start(*program, **used_parts.environ({"a": "worker"}.get(process.name, process.name)))
    producer = Producer({"bootstrap.servers": d.bootstrap_servers, "logger": QUIET})
    producer.produce(used_parts.orders, PAYLOAD + way.encode(), PAYLOAD)
    assert producer.flush(30.0) == 0
    for process in (worker, api, console):
        process.await_ready()
    await_that("a letter comes back", lambda: len(read(d.bootstrap_servers, d.retry_topics(), COMMITTED)) == came_back + 1)
    with Host() as host:
        Api(d, "api").make(host.url, after="1s")
        await_that("a timer is called", lambda: host.calls)
    _pause(used_parts.console)
    assert f"{used_parts.orders}/0/0" in used_parts.run("commands", "explain", f"{used_parts.orders}/0/0")
    if way == "tokens":
        issued, name = broker.provider.issued, used_parts.users["worker"]
        before = issued[name]
        assert before
        await_that("tokens are renewed while it runs", lambda: issued[name] >= 2 * before)
        producer.produce(used_parts.orders, PAYLOAD + b"renewed", PAYLOAD)
        assert producer.flush(30.0) == 0
        await_that("another one comes back", lambda: len(read(d.bootstrap_servers, d.retry_topics(), COMMITTED)) == came_back + 2)
        worker.await_ready()
    for process in (worker, api, console):
        assert not [told for told in (CANARY, PAYLOAD.decode(), "eyJ", "Traceback") if told in process.log()], process.tail()
