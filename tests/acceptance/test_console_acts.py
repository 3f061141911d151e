"""Letters are acted on from the console by running workers: once, by who may, and whether the console lives on or not."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.acceptance.test_acted_letters import came, deploy_with_waiting, numbers, results
from tests.acceptance.test_ramped_letters import Failing, show_action
from tests.acceptance.test_returned_letters import back, parking
from tests.bench.machine import family
from tests.conftest import Deploy
from tests.support.asked_console import AskedConsole
from tests.support.checker import verify_deployment
from tests.support.process import await_that
from tests.support.reading import Tail
from tests.unit.kafka.test_child_process import alive

pytestmark = pytest.mark.check

GRANTED = {"ann": "testers:operator reveal:testers", "vic": "testers:viewer", "eve": "others:operator", "adm": "*:admin reveal:*"}


def live(console: AskedConsole, who: str, action: str) -> dict[str, Any]:
    """An action as the console has it, once it has come to its end."""

    def has_ended() -> bool:
        return bool(console.asked(who, "GET", f"/api/actions/{action}").get("status") == "done")

    await_that("the action is done", has_ended)
    return console.asked(who, "GET", f"/api/actions/{action}")  # type: ignore[no-any-return]


def test_parked_letters_are_retried_once_however_often_and_wherever_it_is_started(deploy: Deploy) -> None:
    deployment, worker, _ = parking(deploy, 30)
    console, other = (AskedConsole(deployment, GRANTED, name).start() for name in ("console", "other"))
    seen = console.asked("ann", "GET", "/api/letters?q=state:parked&limit=10")
    assert (len(seen["letters"]), seen["count"], {row["state"] for row in seen["letters"]}) == (10, 30, {"parked"})

    # Of another team: nothing is there to be acted on, seen or started.
    nothing = console.preview("eve", {"kind": "retry", "filter": "state:parked"})
    assert (nothing["letters"], nothing["refused"], nothing["groups"]["team"]) == (0, [], {})
    assert console.ask("eve", "POST", f"/api/actions/{nothing['id']}/start", {})[0] == 409
    assert console.ask("vic", "POST", "/api/actions", {"kind": "retry", "filter": "state:parked"})[0] == 403
    found = console.preview("ann", {"kind": "retry", "filter": "state:parked", "reason": "mended"})
    assert (found["state"], found["letters"], found["groups"]["team"]) == ("ready", 30, {"testers": 30})
    for who in ("eve", "adm"):
        assert console.ask(who, "POST", f"/api/actions/{found['id']}/start", {"expect": 30})[0] == 404
        assert console.ask(who, "GET", f"/api/actions/{found['id']}")[0] == 404
    assert console.ask("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": 29})[0] == 409
    assert came(deployment) == []

    for at in (console, console, other):
        status, told = at.ask("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": 30})
        assert (status, told["state"]) == (200, "started"), told
    done = live(console, "ann", found["id"])
    assert (done["done"], done["gone"], done["refused"], done["by"], done["teams"]) == (30, 0, {}, "ann", ["testers"])
    assert numbers(back(deployment, 30)) == list(range(30))
    assert {row["result"] for row in results(deployment, found["id"])} == {"done"}
    assert console.ask("eve", "GET", f"/api/actions/{found['id']}")[0] == 404
    assert console.asked("eve", "GET", "/api/actions")["actions"] == []
    assert live(other, "vic", found["id"])["members"] == 30
    status, lines = console.ask("vic", "GET", f"/api/actions/{found['id']}/members")
    told = [json.loads(line) for line in lines.splitlines()]
    assert (status, len({each["letter"] for each in told}), {each["result"] for each in told}) == (200, 30, {"done"})
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()


@pytest.mark.slow
def test_the_ramp_goes_on_when_the_console_is_killed_and_the_next_one_shows_the_same(deploy: Deploy) -> None:
    letters, group = 300, f"billing-{uuid.uuid4().hex[:8]}"
    deployment, worker = deploy_with_waiting(deploy, letters, topic_keys=f"group: {group}")
    consumer = Failing(deployment, group, keeps_headers=True)
    consumer.mended.set()
    console = AskedConsole(deployment, GRANTED).start()
    asked = {"kind": "retry", "filter": "state:waiting", "ramp": True, "settle": "1s"}
    found = console.preview("ann", asked)
    assert found["steps"] == [1, 2, 5, 20, 50, 200, 22]
    console.asked("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": letters})

    def climbs() -> bool:
        steps = (console.asked("ann", "GET", f"/api/actions/{found['id']}").get("ramp") or {}).get("steps", [])
        return any(step["status"] == "passed" for step in steps)

    await_that("a step has passed", climbs)
    processes = family(console.process.pid)
    assert len(processes) > 1
    console.process.kill()
    await_that("nothing of it is left", lambda: not any(map(alive, processes)))
    assert show_action(deployment, found["id"])["status"] == "running"
    await_that("it ends", lambda: show_action(deployment, found["id"])["status"] == "done")
    assert numbers(came(deployment)) == list(range(letters))
    console.start()
    again, told = live(console, "ann", found["id"]), show_action(deployment, found["id"])
    # The command alone says what fails meanwhile, while it runs.
    assert told.pop("new_failures") is None
    assert {name: again[name] for name in told} == told
    assert [step["status"] for step in again["ramp"]["steps"]] == ["passed"] * 7
    # A preview that a killed console had is known by what was started.
    assert console.ask("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": letters})[0] == 200
    assert numbers(came(deployment)) == list(range(letters))
    consumer.close()
    worker.terminate()


def test_orders_an_undo_a_pause_and_a_payload_are_done_by_who_may_and_are_in_the_audit(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 20)
    console = AskedConsole(deployment, GRANTED).start()
    asked = {"kind": "discard", "filter": "state:waiting attempt:1", "reason": "old"}
    found = console.preview("ann", asked)
    console.asked("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": 20})
    assert live(console, "ann", found["id"])["can"] == ["undo"]
    assert console.ask("eve", "POST", f"/api/actions/{found['id']}/undo", {})[0] == 404
    assert console.ask("vic", "POST", f"/api/actions/{found['id']}/undo", {})[0] == 403
    back_again = console.preview("ann", {"reason": "a mistake"}, f"/api/actions/{found['id']}/undo")
    assert (back_again["kind"], back_again["letters"]) == ("undo", 20)
    console.asked("ann", "POST", f"/api/actions/{back_again['id']}/start", {})
    assert live(console, "ann", back_again["id"])["done"] == 20

    assert console.ask("eve", "POST", "/api/pauses", {"scope": "team", "name": "testers"})[0] == 404
    assert console.ask("ann", "POST", "/api/pauses", {"scope": "all"})[0] == 403
    console.asked("ann", "POST", "/api/pauses", {"scope": "team", "name": "testers", "reason": "bank away", "until": "1h"})
    await_that("it is shown", lambda: console.asked("vic", "GET", "/api/pauses")["pauses"])
    (paused,) = console.asked("vic", "GET", "/api/pauses")["pauses"]
    assert (paused["scope"], paused["name"], paused["by"], paused["reason"]) == ("team", "testers", "ann", "bank away")
    assert console.asked("eve", "GET", "/api/pauses")["pauses"] == []
    assert "team testers" in deployment.command("pauses").stdout
    console.asked("ann", "DELETE", "/api/pauses?scope=team&name=testers")
    await_that("it is over", lambda: not console.asked("vic", "GET", "/api/pauses")["pauses"])

    name = console.asked("vic", "GET", "/api/letters?limit=1")["letters"][0]["name"]
    assert console.ask("vic", "GET", f"/api/letters/{name}?reveal=1")[0] == 403
    assert console.ask("eve", "GET", f"/api/letters/{name}")[0] == 404
    assert "value_base64" not in console.asked("vic", "GET", f"/api/letters/{name}")
    assert console.asked("ann", "GET", f"/api/letters/{name}?reveal=1")["value_base64"]
    audit = [json.loads(line) for line in deployment.command("audit", "--json").stdout.splitlines()]
    people = [(each["kind"], each["by"], each["reason"]) for each in audit if each["shard"] == -1]
    assert people == [("pause", "ann", "team testers: bank away"), ("resume", "ann", "team testers"), ("reveal", "ann", "")]
    assert "reveal by ann" in deployment.command("audit").stdout
    await_that("the console tells it", lambda: len(console.asked("vic", "GET", "/api/audit")["audit"]) >= 5)
    assert {row["kind"] for row in console.asked("vic", "GET", "/api/audit")["audit"]} == {
        "discard", "undo", "pause", "resume", "reveal",
    }  # fmt: skip
    assert console.asked("eve", "GET", "/api/audit")["audit"] == []
    worker.terminate()


def test_an_action_is_held_goes_on_and_is_cancelled_from_the_console(deploy: Deploy) -> None:
    letters = 60
    deployment, worker = deploy_with_waiting(deploy, letters)
    console = AskedConsole(deployment, GRANTED).start()
    asked = {"kind": "retry", "filter": "state:waiting", "ramp": True, "silence": "3s", "settle": "1s"}
    found = console.preview("ann", asked)
    assert found["silent"] == deployment.retry_topics()
    console.asked("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": letters})
    order = f"/api/actions/{found['id']}"
    console.asked("ann", "POST", f"{order}/hold", {"reason": "wait a moment"})
    await_that("it is held", lambda: console.asked("vic", "GET", order).get("status") == "held")
    held = console.asked("vic", "GET", order)
    assert (held["held"]["by"], held["held"]["reason"], held["can"]) == ("ann", "wait a moment", ["resume", "cancel"])
    assert console.ask("ann", "POST", f"{order}/undo", {})[0] == 409
    console.asked("ann", "POST", f"{order}/resume", {})
    await_that("it goes on", lambda: console.asked("vic", "GET", order)["status"] == "running")
    console.asked("ann", "POST", f"{order}/cancel", {"reason": "enough"})
    await_that("it is cancelled", lambda: console.asked("vic", "GET", order)["status"] == "cancelled")
    sent = console.asked("vic", "GET", order)["done"]
    assert sent < letters
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(sent)
    assert tail.quiet(1.0) == []
    tail.close()
    assert console.ask("ann", "POST", f"{order}/hold", {})[0] == 409
    worker.terminate()
