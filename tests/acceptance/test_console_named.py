"""Schedules of several schedulers, tasks and timers on the console's pages: found, and cancelled by the way they came in."""

from __future__ import annotations

import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Deploy, Schedulings
from tests.support.console_process import CONSOLE, ConsoleProcess, Person
from tests.support.process import WorkerProcess, await_that
from tests.support.scheduler import Scheduling
from tests.support.tasks import Tasks
from tests.support.timers import Api

pytestmark = pytest.mark.check

HOUR_S = 3_600
REST = re.compile(r"rest on 127\.0\.0\.1:(\d+)(?=\s)")


def console_of(scheduling: Scheduling, folder: Path, others: str) -> WorkerProcess:
    """A console over what one scheduler has."""
    environ = {
        **scheduling.environ, "RETRY_BOOTSTRAP_SERVERS": scheduling.bootstrap_servers, "RETRY_APP_ID": scheduling.id,
        "RETRY_CONSOLE_ADDR": "127.0.0.1:0", "RETRY_CONSOLE_SCHEDULERS": others,
    }  # fmt: skip
    made = WorkerProcess("console", folder, environ)
    scheduling.instances.append(made)
    return made.start(*CONSOLE).await_ready()


def cancel_only_entry(person: Person, page: str, kind: str, **query: str) -> None:
    """Cancel what is listed alone on a page."""
    (name,) = re.findall(r'<input type="hidden" name="name" value="([^"]+)">', person.get(page, **query).text)
    done = person.post("/entries/cancel", kind=kind, name=name)
    assert done.status_code == 303, done.text


def test_1_23_schedules_of_several_schedulers_are_searched_and_cancelled_where_they_came_in(
    scheduling: Schedulings, tmp_path: Path
) -> None:
    ours, theirs = scheduling(), scheduling()
    own, other = ours.instance("own"), theirs.instance("other")
    at = int(time.time()) + HOUR_S
    for each, ids in ((ours, ("vid1", "vid2")), (theirs, ("eu1",))):
        for id_ in ids:
            each.schedule(id_, at)
        each.schedule(f"sent-{ids[0]}", time.time())
        each.flush()
    ours.await_sent(1)
    theirs.await_sent(1)
    away = "http://127.0.0.1:9"
    console = console_of(ours, tmp_path, f"eu=http://127.0.0.1:{REST.findall(other.log())[-1]},away={away}")
    with closing(Person(f"http://127.0.0.1:{console.port()}")) as person:
        await_that("all are shown", lambda: "3 found" in person.get("/schedules").text)
        page = person.get("/schedules").text
        assert all(f">{id_}<" in page for id_ in ("vid1", "vid2", "eu1"))
        assert ("<td>eu</td>" in page, "away: it did not answer" in page) == (True, True)
        found = person.get("/schedules", **{"schedule-id": "vid", "sort-by": "id desc", "epoch-from": str(at)}).text
        assert ("2 found" in found, found.index(">vid2<") < found.index(">vid1<")) == (True, True)
        history = person.get("/schedules/history").text
        assert (">sent-vid1<" in history, ">sent-eu1<" in history) == (True, True)

        cancel_only_entry(person, "/schedules", "schedule", **{"schedule-id": "vid1"})
        await_that("it waits no more", lambda: [each["id"] for each in ours.ask(own, "/live/schedules")] == ["vid2"])
        await_that("the console knows", lambda: ">vid1<" not in person.get("/schedules").text)
    records = [record for record in ours.read(ours.schedules) if record.key == b"vid1"]
    assert [record.value for record in records] == [b"vid1", None]
    assert len({record.partition for record in records}) == 1
    assert [each["id"] for each in theirs.ask(other, "/live/schedules")] == ["eu1"]


def test_1_23_tasks_and_timers_are_cancelled_and_their_history_is_shown(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2))
    worker = tasks.deployment.worker().start().await_ready()
    api = Api(tasks.deployment).start()
    tasks.define(("acme", "bill"), {"frequencyTimeUnit": "HOURS", "time": 1})
    timer = api.make("https://example.com/hook", after="1h")
    tasks.define(("acme", "once"), None)
    called = api.make("https://127.0.0.1:9/hook", after="0s")
    console = ConsoleProcess(tasks.deployment).start()
    with closing(console.person()) as person:
        await_that("the task is shown", lambda: "1 found" in person.get("/tasks").text)
        await_that("the timer is shown", lambda: timer in person.get("/timers").text)
        assert "bill" in person.get("/tasks").text
        cancel_only_entry(person, "/tasks", "task")
        cancel_only_entry(person, "/timers", "timer", **{"schedule-id": timer})
        await_that("the call is shown", lambda: f">{called}<" in person.get("/timers/history").text)
        assert "called again: attempt 1 took" in person.get("/timers/history", **{"schedule-id": called}).text
        assert "0 found" in person.get("/timers/history", **{"epoch-from": "2999-01-01T00:00"}).text
        await_that("it waits for its next call", lambda: called in person.get("/timers").text)
        cancel_only_entry(person, "/timers", "timer", **{"schedule-id": called})
        await_that("no task waits", lambda: not tasks.waiting())
        for page in ("/tasks", "/timers"):
            await_that("the console knows", lambda page=page: "0 found" in person.get(page).text)
        assert api.ask("GET", f"/timers/{timer}")[0] == 404
        await_that("the run is shown", lambda: f", in {tasks.outputs[0]}/0/0" in person.get("/tasks/history").text)
        audit = tasks.deployment.command("audit").stdout
        assert audit.count("cancel by local") == 3
    worker.terminate()
