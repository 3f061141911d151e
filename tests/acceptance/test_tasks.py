"""Recurring tasks through the real command and a real broker: what the list of the seed asks for, by its numbers."""

from __future__ import annotations

import json

import pytest

from retry.clock import monotonic_s
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.definition import UNITS_MS
from tests.conftest import Deploy
from tests.support.process import await_that
from tests.support.reading import COMMITTED, Record, read
from tests.support.registry import RegistryServer, confluent
from tests.support.sizes import only_in_faults
from tests.support.tasks import Task, Tasks, at_least, milliseconds, numbers, seconds

pytestmark = pytest.mark.check

LATE_MS = 2_000


@pytest.mark.essential
def test_0_1_0_7_0_14_tasks_are_added_updated_and_deleted_by_records(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2))
    worker = tasks.deployment.worker().start().await_ready()
    changing, staying = ("acme", "changing"), ("bcme", "changing")  # 0-9: one name, two customers
    began_ms = tasks.define(changing, milliseconds(300), data="old")
    tasks.define(staying, milliseconds(500), output=1)
    await_that("both run", at_least(tasks, 4, changing, staying))

    again_ms = tasks.define(changing, milliseconds(400), output=1, data="new")
    await_that("the new one runs", lambda: len([r for r in tasks.runs()[changing] if b'"new"' in (r.record.value or b"")]) >= 4)
    tasks.end(changing)
    await_that("it waits no more", lambda: len(tasks.waiting()) == 1)
    had = len(tasks.runs()[staying])
    await_that("the other one goes on", at_least(tasks, had + 3, staying))

    ours = tasks.runs()[changing]
    old, new = ([r for r in ours if r.record.topic == topic] for topic in tasks.outputs)
    assert all(b'"old"' in (r.record.value or b"") for r in old) and all(b'"new"' in (r.record.value or b"") for r in new)
    assert numbers(old) == [*range(1, len(old) + 1)] and numbers(new) == [*range(1, len(new) + 1)]
    assert all(r.due_ms == began_ms + 300 * r.number for r in old) and all(r.due_ms == again_ms + 400 * r.number for r in new)
    # Nothing of what was replaced comes after what replaced it.
    assert max(r.made_ms for r in old) <= min(r.made_ms for r in new)
    others = tasks.runs()[staying]
    assert numbers(others) == [*range(1, len(others) + 1)] and {r.record.topic for r in others} == {tasks.outputs[1]}
    worker.terminate()


def test_0_10_a_task_is_listed_and_shown_by_its_name(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2))
    deployment = tasks.deployment
    worker = deployment.worker().start().await_ready()
    tasks.define(("acme", "often"), milliseconds(500))
    tasks.define(("acme", "a/slash"), seconds(3_600), output=1, data="its own")
    tasks.define(("bcme", "once"), None)
    # Once a year, so that no test runs just then.
    tasks.define(("bcme", "yearly"), None, cron="0 3 1 1 *", timeZone="Europe/Berlin")
    await_that("it runs", at_least(tasks, 3, ("acme", "often")))
    worker.terminate()

    listed = [json.loads(line) for line in deployment.command("tasks", "list", "--json").stdout.splitlines()]
    assert {row["task"] for row in listed} == {"acme/often", "acme/a/slash", "bcme/yearly"}
    assert [row["next_run"] for row in listed] == sorted(row["next_run"] for row in listed)
    assert len(deployment.command("tasks", "list", "--customer", "bcme").stdout.splitlines()) == 1

    often = json.loads(deployment.command("tasks", "show", "acme/often").stdout)
    runs = tasks.runs()["acme", "often"]
    assert often["run"] == len(runs) + 1
    assert [run["run"] for run in often["last_runs"]] == numbers(runs)[::-1][:5]
    assert often["definition"]["frequency"] == milliseconds(500)
    where = deployment.command("letters", "--show", often["name"])
    assert json.loads(where.stdout)["due"] == often["next_run"]
    yearly = json.loads(deployment.command("tasks", "show", "bcme/yearly", "--json").stdout)
    assert (yearly["cron"], yearly["zone"], yearly["last_runs"]) == ("0 3 1 1 *", "Europe/Berlin", [])
    assert yearly["shard"] in range(2)
    for name in ("bcme/once", "acme/never", "acme"):
        refused = deployment.command("tasks", "show", name)
        assert refused.returncode == 1
        assert f"no task {name} waits" in refused.stderr


def test_a_task_is_paused_resumed_and_backfilled_by_its_name(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2))
    deployment = tasks.deployment
    worker = deployment.worker().start().await_ready()
    name, task = "acme/often", ("acme", "often")
    began_ms = tasks.define(task, milliseconds(500), data="its own")
    await_that("it runs", at_least(tasks, 2, task))
    assert deployment.command("tasks", "resume", name).returncode == 3

    assert deployment.command("tasks", "pause", name).returncode == 0
    listed = lambda: json.loads(deployment.command("tasks", "list", "--json").stdout)  # noqa: E731
    await_that("it is paused", lambda: listed()["next_run"] is None)
    made = len(tasks.runs()[task])
    assert deployment.command("tasks", "list").stdout.startswith("paused ")
    again = deployment.command("tasks", "pause", name)
    assert again.returncode == 3 and "paused already" in again.stderr
    shown = json.loads(deployment.command("tasks", "show", name).stdout)
    assert shown["definition"]["data"] == {"is": "its own"} and shown["every_ms"] == 500
    # Another task shows that time goes on, and that workers do.
    other = ("acme", "other")
    tasks.define(other, milliseconds(500), output=1)
    await_that("the other one runs", at_least(tasks, 3, other))
    assert len(tasks.runs()[task]) == made

    asked = ("tasks", "backfill", name, "--from", str(began_ms + 500), "--to", str(began_ms + 1_500))
    counted = deployment.command(*asked)
    assert "3 runs of acme/often" in counted.stdout and len(tasks.sent(0)) == made
    assert deployment.command(*asked, "--yes").returncode == 0
    backfilled = tasks.sent(0)[made:]
    assert [int(record.header("task-due-ms")) for record in backfilled] == [began_ms + n * 500 for n in (1, 2, 3)]
    assert all(record.header("task-backfill") == "true" and b"its own" in (record.value or b"") for record in backfilled)
    late = deployment.command("tasks", "backfill", name, "--from", "1h", "--to", "2100-01-01")
    assert late.returncode == 2 and "later than now" in late.stderr

    assert deployment.command("tasks", "resume", name).returncode == 0
    await_that("it goes on", lambda: len(tasks.sent(0)) >= made + 3 + 2)
    runs = [record for record in tasks.sent(0) if record.header("task-run")]
    assert all(int(r.header("task-due-ms")) == began_ms + 500 * int(r.header("task-run")) for r in runs)
    # Numbers go on where the rhythm does, and leave out those of the pause.
    between = [int(r.header("task-run")) for r in runs[made - 1 : made + 1]]
    assert between[1] > between[0] + 1

    # What no worker has taken in yet counts, too.
    worker.terminate()
    orders = ("pause", "resume", "resume", "pause", "pause")
    assert [deployment.command("tasks", order, name).returncode for order in orders] == [0, 0, 3, 0, 3]
    tasks.end(task)
    deleted = deployment.command("tasks", "resume", name)
    assert deleted.returncode == 3 and "was deleted by" in deleted.stderr


def test_0_5_0_6_all_six_units(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2))
    worker = tasks.deployment.worker().start().await_ready()
    # Those that are long do not come in this test, however long it takes.
    times = dict.fromkeys(UNITS_MS, 1) | {"MILLISECONDS": 500, "MINUTES": 30}
    defined_ms = {unit: tasks.define(("acme", unit), {"frequencyTimeUnit": unit, "time": times[unit]}) for unit in UNITS_MS}
    short, long = ["MILLISECONDS", "SECONDS"], ["MINUTES", "HOURS", "DAYS", "WEEKS"]
    await_that("the short ones run", at_least(tasks, 5, *(("acme", unit) for unit in short)))
    await_that("all wait", lambda: len(tasks.waiting()) == len(UNITS_MS))
    waiting, runs = tasks.waiting(), tasks.runs()
    for unit in long:
        due_ms, entry = waiting[unit]
        period_ms = times[unit] * UNITS_MS[unit]
        assert due_ms == defined_ms[unit] + period_ms
        assert entry.plan is not None and (entry.plan.run, entry.plan.every_ms) == (1, period_ms)
        assert ("acme", unit) not in runs
    for unit in short:
        period_ms = times[unit] * UNITS_MS[unit]
        made = runs["acme", unit]
        assert numbers(made) == [*range(1, len(made) + 1)]
        assert all(r.due_ms == defined_ms[unit] + r.number * period_ms for r in made)
        assert all(r.made_ms >= r.due_ms for r in made)
    worker.terminate()


@pytest.mark.slow
def test_0_5_minutes_run_live(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=1))
    worker = tasks.deployment.worker().start().await_ready()
    began_ms = tasks.define(("acme", "minute"), {"frequencyTimeUnit": "MINUTES", "time": 1})
    tasks.define(("acme", "cron"), None, cron="* * * * *", timeZone="Asia/Kolkata")
    await_that("both ran twice", at_least(tasks, 2, ("acme", "minute"), ("acme", "cron")), 300.0)
    runs = tasks.runs()
    assert [r.due_ms - began_ms for r in runs["acme", "minute"]][:2] == [60_000, 120_000]
    assert all(r.due_ms % 60_000 == 0 for r in runs["acme", "cron"])
    worker.terminate()


@pytest.mark.slow
def test_0_5_the_nth_run_of_a_one_second_task_is_at_start_plus_n_seconds(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=1))
    worker = tasks.deployment.worker().start().await_ready()
    ours = [("acme", f"task-{n}") for n in range(5)]
    began_ms = {task: tasks.define(task, seconds(1)) for task in ours}
    await_that("15 runs of each", at_least(tasks, 15, *ours))

    def keeps_up(task: Task) -> bool:
        return any(r.number > 15 and r.made_ms - r.due_ms < 5_000 for r in tasks.runs()[task])

    # None is later than the last because of those before it: that would grow from run to run.
    await_that("runs are made in time", lambda: all(map(keeps_up, ours)))
    for task in ours:
        made = tasks.runs()[task]
        assert [(r.number, r.due_ms) for r in made] == [(n, began_ms[task] + 1_000 * n) for n in range(1, len(made) + 1)]
        # By the clock that decides, no run is early.
        assert all(r.made_ms >= r.due_ms for r in made)
    worker.terminate()


@pytest.mark.parametrize("form", ["avro", *only_in_faults("json", "confluent")])
def test_0_8_0_11_runs_have_the_bytes_that_came_in(deploy: Deploy, form: str) -> None:
    registry = RegistryServer()
    units, config, frequency, definition = map(formats.schema_text, formats.DEFINITION_SCHEMA)
    registry.add(1, units, "units")
    registry.add(2, config, "config")
    registry.add(3, frequency, "frequency", references=(("TaskFrequencyTimeUnits", "units", 1),))
    registry.add(7, definition, references=(("TaskConfiguration", "config", 1), ("TaskFrequency", "frequency", 1)))
    registry.add(8, formats.schema_text(formats.KEY_SCHEMA[0]))
    tasks = Tasks(deploy({"one": 1}, shards=2, environ={"RETRY_REGISTRY_URL": registry.url}), format=form)
    worker = tasks.deployment.worker().start().await_ready()

    key = {"customerId": "acme", "taskName": form}
    config_of = {"outputTopic": tasks.outputs[0], "configurations": None}
    value = {**key, "frequency": milliseconds(500), "config": config_of, "data": {"a": "b"}}
    payloads = json.dumps(key).encode(), json.dumps(value).encode()
    if form != "json":
        schemas = formats.package_schema(formats.KEY_SCHEMA), formats.package_schema(formats.DEFINITION_SCHEMA)
        payloads = formats.encode_avro(key, schemas[0]), formats.encode_avro(value, schemas[1])
    if form == "confluent":
        payloads = confluent(8, payloads[0]), confluent(7, payloads[1])
    unknown = confluent(99, b"?")
    bad = [(payloads[0], b"\x01\x02"), (b"", None), (payloads[0], payloads[1] + b"?"), (unknown, None), (payloads[0], unknown)]
    for n, (bad_key, bad_value) in enumerate(bad):
        tasks.send(bad_key, bad_value, n % 3)
    tasks.send(*payloads)

    def read_runs() -> list[tuple[bytes | None, bytes | None]]:
        return [(r.key, r.value) for r in _records(tasks)]

    await_that("three runs", lambda: len(read_runs()) >= 3)
    await_that("the others are parked", lambda: len(tasks.parked()) >= len(bad))
    assert set(read_runs()) == {payloads}
    parked = tasks.parked()
    assert sorted((r.key or b"-", r.value or b"-") for r in parked) == sorted((k or b"-", v or b"-") for k, v in bad)
    assert {r.header("retry-parked-reason") for r in parked} <= {"bad_task", "no_schema"}
    assert all(r.header("retry-parked-fault") and r.header("task-source").startswith(tasks.topic) for r in parked)
    assert worker.running()
    worker.terminate()
    registry.close()
    found = tasks.deployment.command("verify", "--json", timeout_s=120)
    assert found.returncode == 0, found.stdout + found.stderr


def _records(tasks: Tasks) -> list[Record]:
    return read(tasks.deployment.bootstrap_servers, tasks.outputs, COMMITTED)


@pytest.mark.slow
@pytest.mark.fault("the worker that makes runs of tasks killed, three times")
def test_0_2_0_3_0_4_another_worker_goes_on_and_no_run_is_lost_or_doubled(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=4), late="5m")
    workers = [tasks.deployment.worker(name).start() for name in "ab"]
    for worker in workers:
        worker.await_ready()
    ours = [(f"customer-{n % 4}", f"task-{n}") for n in range(40)]
    began_ms = {task: tasks.define(task, milliseconds(700)) for task in ours}
    await_that("all run", at_least(tasks, 3, *ours))
    for round_ in range(3):
        killed = workers[round_ % 2]
        killed.kill()
        had = {task: len(made) for task, made in tasks.runs().items()}
        if round_ == 1:
            tasks.deployment.wipe(killed)
        await_that("the other one makes all runs", at_least(tasks, max(had.values()) + 3, *ours))
        killed.start().await_ready()
    for task in ours:
        made = tasks.runs()[task]
        assert [(r.number, r.due_ms) for r in made] == [(n, began_ms[task] + 700 * n) for n in range(1, len(made) + 1)], task
    for worker in workers:
        worker.terminate()
    assert len(tasks.waiting()) == len(ours)
    found = tasks.deployment.command("verify", "--json", timeout_s=120)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
def test_0_14_misfire_policies_after_downtime(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2), late=f"{LATE_MS}ms", misfire="once", catch_up=6)
    worker = tasks.deployment.worker().start().await_ready()
    once, skip, all_ = ("acme", "once"), ("acme", "skip"), ("acme", "all")
    tasks.define(once, seconds(1))
    tasks.define(skip, seconds(1), misfire="skip")
    tasks.define(all_, seconds(1), misfire="all")
    tasks.define(("acme", "now"), None)
    await_that("all run", at_least(tasks, 2, once, skip, all_))
    worker.kill()
    before, began_s = tasks.runs(), monotonic_s()
    await_that("the service is down for a while", lambda: monotonic_s() - began_s > 10)
    # On a slow machine a run may have been missed before, and the one that waits is not the next by number.
    waits = {name: entry.plan.run for name, (_, entry) in tasks.waiting().items() if entry.plan is not None}
    worker.start()
    for task, count in ((once, 3), (skip, 2), (all_, 8)):
        await_that("it runs again", at_least(tasks, len(before[task]) + count, task))

    found = tasks.runs()
    after = {task: made[len(before[task]) :] for task, made in found.items()}
    for task in (once, skip, all_):
        assert before[task] == found[task][: len(before[task])]
        assert numbers(found[task]) == sorted(set(numbers(found[task])))
    # Once: the run that waited, then what is still to come.
    last = before[once][-1].number
    assert after[once][0].number == waits["once"] > last and after[once][0].made_ms - after[once][0].due_ms > LATE_MS
    assert after[once][1].due_ms > after[once][0].made_ms and after[once][1].number > last + 5
    # Skip: only what is still to come.
    assert after[skip][0].number > before[skip][-1].number + 5
    assert all(r.made_ms - r.due_ms <= LATE_MS for r in after[skip])
    # All, as many as are made up for: the one that waited, then the last five before now, and all from there on.
    made_ms = after[all_][0].made_ms
    missed = [r for r in after[all_] if r.due_ms <= made_ms]
    assert len(missed) == 6 and missed[0].number == waits["all"] > before[all_][-1].number
    rest = numbers(after[all_])[1:]
    assert rest == [*range(rest[0], rest[0] + len(rest))] and rest[0] > missed[0].number + 1
    assert numbers(found["acme", "now"]) == [0]
    worker.terminate()


def test_0_14_a_task_that_is_paused_waits_and_goes_on(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2), late="1s")
    worker, task = tasks.deployment.worker().start().await_ready(), ("acme", "paused")
    tasks.define(task, milliseconds(500))
    await_that("it runs", at_least(tasks, 2, task))
    done = tasks.deployment.command("pause", "--team", "tasks", "--reason", "a test")
    assert done.returncode == 0, done.stderr
    await_that("it is held", lambda: '"paused"' in worker.get("/health/ready")[1])
    held = tasks.waiting()["paused"][1].plan
    tasks.define(("acme", "later"), milliseconds(500))
    await_that("what comes in waits, too", lambda: len(tasks.waiting()) == 2)
    had, began_s = len(tasks.runs()[task]), monotonic_s()
    await_that("some runs were missed", lambda: monotonic_s() - began_s > 4)
    assert len(tasks.runs()[task]) == had and ("acme", "later") not in tasks.runs()
    assert tasks.deployment.command("resume", "--team", "tasks").returncode == 0
    await_that("both run", at_least(tasks, had + 3, task))
    await_that("both run", at_least(tasks, 2, ("acme", "later")))
    made = tasks.runs()[task]
    # The one that waited, then what is still to come; which one waits, a slow machine may have had a say in before.
    assert held is not None and made[had].number == held.run > made[had - 1].number and made[had + 1].due_ms > made[had].made_ms
    worker.terminate()


def test_0_13_samples_are_sent_and_taken_in(deploy: Deploy) -> None:
    tasks = Tasks(deploy({"one": 1}, shards=2))
    worker = tasks.deployment.worker().start().await_ready()
    outputs = [word for output in tasks.outputs for word in ("--output-topic", output)]
    shown = tasks.deployment.command("tasks", "samples", *outputs)
    assert shown.returncode == 0 and len([json.loads(line)["config"] for line in shown.stdout.splitlines()]) == 8
    for form in ("avro", "json"):
        sent = tasks.deployment.command("tasks", "samples", *outputs, "--count", "16", "--format", form, "--send", tasks.topic)
        assert sent.returncode == 0, sent.stderr
    await_that("they are taken in", lambda: worker.metric("retry_letters_consumed_total") == 32)
    assert tasks.parked() == []
    await_that("those that are done once are done", lambda: len(_records(tasks)) >= 4)
    worker.terminate()
