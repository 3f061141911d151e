"""Letters that wait are acted on from the command line by a running worker, and end once each, whatever ends meanwhile."""

from __future__ import annotations

import csv
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from retry import clock
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action
from retry.operations.control_requests import ShardNumbers
from retry.settings import Settings
from tests.acceptance.test_crash_points import CRASHING
from tests.conftest import Deploy
from tests.support import policies
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET, Record, Tail, read

pytestmark = pytest.mark.check

WAITING = "{backoff: {kind: constant, delay: 1h}, jitter: none}"


def deploy_with_waiting(deploy: Deploy, letters: int, shards: int = 2, **options: Any) -> tuple[Deployment, WorkerProcess]:
    """A deployment in which so many letters wait for an hour."""
    deployment = deploy({"orders": 2}, shards=shards, defaults=WAITING, **options)
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(letters):
        sender.send(topic, b"%d" % n, b'{"n": %d, "card": "4711"}' % n, [("tenant", b"even" if n % 2 == 0 else b"odd")])
    sender.finish()
    worker = deployment.worker().start().await_ready()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == letters)
    return deployment, worker


def run_act(deployment: Deployment, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run `retry act … --yes` and return what it says at its end."""
    done = deployment.command("act", *arguments, "--yes", "--json", "--wait", "2m")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def came(deployment: Deployment, *topics: str) -> list[Record]:
    return read(deployment.bootstrap_servers, list(topics or deployment.retry_topics()), COMMITTED)


def numbers(records: list[Record]) -> list[int]:
    return sorted(json.loads(record.value or b"")["n"] for record in records)


def test_letters_are_shown_then_retried_at_once(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 40)
    shown = deployment.command("act", "retry", "header.tenant:even")
    assert shown.returncode == 0, shown.stderr
    assert "20 letters to retry" in shown.stdout
    assert "by team: testers 20" in shown.stdout
    assert came(deployment) == []
    done = run_act(deployment, "retry", "header.tenant:even", "--expect", "20", "--reason", "mended")
    assert (done["done"], done["gone"], done["refused"]) == (20, 0, {})
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(20)
    assert tail.quiet(1.0) == []
    tail.close()
    assert numbers(came(deployment)) == list(range(0, 40, 2))
    assert {record.header("retry-action") for record in came(deployment)} == {done["action"]}
    assert worker.metric("retry_entries_waiting") == 20
    worker.terminate()


def list_waiting(deployment: Deployment, *words: str) -> list[dict[str, Any]]:
    """Letters that wait, as `retry letters` has them."""
    told = deployment.command("letters", "state:waiting", *words, "--limit", "100", "--json")
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def dues(deployment: Deployment, *words: str) -> list[int]:
    return [int(row["name"].split("/")[0]) for row in list_waiting(deployment, *words)]


def results(deployment: Deployment, action: str) -> list[dict[str, str]]:
    """Read what became of each member, as the CSV has it."""
    told = deployment.command("actions", "members", action)
    assert told.returncode == 0, told.stderr
    return list(csv.DictReader(told.stdout.splitlines()))


def demand_refusal(deployment: Deployment, words: str, *arguments: str, code: int = 3) -> None:
    told = deployment.command(*arguments)
    assert (told.returncode, words in told.stderr + told.stdout) == (code, True), told.stderr + told.stdout


def test_letters_are_given_other_times(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 12)
    before = dues(deployment, "header.tenant:even")
    assert run_act(deployment, "retry", "header.tenant:even", "--postpone", "1d")["done"] == 6
    assert dues(deployment, "header.tenant:even") == [due + 86_400_000 for due in before]
    now_ms = clock.wall_ms()
    assert run_act(deployment, "retry", "state:waiting", "--spread", "10h")["done"] == 12
    # The first of them was due at once.
    await_that("it is sent", lambda: worker.metric("retry_entries_waiting") == 11)
    spread = sorted(dues(deployment))
    steps = {later - earlier for earlier, later in pairwise(spread)}
    assert steps == {3_000_000}
    assert abs(spread[0] - 3_000_000 - now_ms) < 120_000
    at_ms = now_ms + 7_200_000
    assert run_act(deployment, "retry", "state:waiting", "--at", str(at_ms))["done"] == 11
    assert set(dues(deployment)) == {at_ms}
    worker.terminate()


def test_a_letter_is_edited_and_others_are_patched(deploy: Deploy, tmp_path: Path) -> None:
    deployment, worker = deploy_with_waiting(deploy, 6)
    value = tmp_path / "value.json"
    value.write_text("no json")
    demand_refusal(deployment, "its value is JSON", "act", "edit", "key:3", "--value-file", str(value), "--yes")
    demand_refusal(
        deployment, "6 letters are like this, and an edit is of one", "act", "edit", "state:waiting", "--header", "a=b"
    )
    value.write_text('{"n": 3, "card": "4712"}')
    shown = deployment.command("act", "edit", "key:3", "--value-file", str(value), "--header", "mended=yes")
    assert '-  "card": "4711"' in shown.stdout
    assert '+  "card": "4712"' in shown.stdout
    (three,) = list_waiting(deployment, "key:3")
    edited = run_act(deployment, "edit", "--letter", three["name"], "--value-file", str(value), "--header", "mended=yes")
    assert edited["done"] == 1
    patched = run_act(
        deployment, "patch", "header.tenant:even", "--merge-patch", '{"card": null}', "--set-header", "mended=too",
        "--remove-header", "tenant",
    )  # fmt: skip
    assert patched["done"] == 3
    demand_refusal(deployment, "cannot be changed", "act", "patch", "key:1", "--set-header", "retry-attempt=9")
    assert run_act(deployment, "retry", "state:waiting")["done"] == 6
    Tail(deployment.bootstrap_servers, deployment.retry_topics()).await_seen(6)
    by_key = {record.key: record for record in came(deployment)}
    assert json.loads(by_key[b"3"].value or b"") == {"n": 3, "card": "4712"}
    assert json.loads(by_key[b"2"].value or b"") == {"n": 2}
    assert json.loads(by_key[b"1"].value or b"") == {"n": 1, "card": "4711"}
    assert [by_key[key].header("mended") for key in (b"1", b"2", b"3")] == ["", "too", "yes"]
    assert [by_key[key].header("tenant") for key in (b"1", b"2", b"3")] == ["odd", "", "odd"]
    superseded = came(deployment, deployment.names.discarded)
    assert sorted(record.key or b"" for record in superseded) == [b"0", b"2", b"3", b"4"]
    assert {record.header("retry-action-before") for record in superseded} == {"superseded"}
    told = json.loads(deployment.command("explain", by_key[b"3"].header("retry-source"), "--json").stdout)
    (former,) = told["former"]
    assert (told["state"], former["action"]) == ("retried", edited["action"])
    (audited,) = results(deployment, edited["action"])
    shown = json.loads(deployment.command("letters", "--show", former["name"]).stdout)
    assert (shown["digest"], shown["mark"]) == (audited["before"], "superseded")
    assert audited["after"] not in ("", audited["before"])
    kept = deployment.command("letters", "state:discarded", "key:3")
    assert kept.stdout.startswith("superseded "), kept.stderr
    assert f" {former['name']} " in kept.stdout and f"action {edited['action']})" in kept.stdout
    worker.terminate()


def test_an_action_on_a_letter_that_was_sent_or_moved_meanwhile_does_nothing(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 2)
    worker.terminate()
    for kind in (["patch", "key:*", "--set-header", "late=1"], ["discard", "key:*"], ["edit", "key:0", "--header", "late=2"]):
        late = deployment.command("act", *kind, "--yes", "--wait", "1ms")
        assert late.returncode == 1, late.stderr
    assert "not done yet in shards" in late.stderr
    worker.start().await_ready()
    edit, *done = [json.loads(line) for line in _actions(deployment, 3, "done")]
    assert (edit["kind"], edit["done"], edit["refused"]) == ("edit", 0, {"changed": 1})
    assert [(each["kind"], each["done"], each["gone"]) for each in done] == [("discard", 0, 2), ("patch", 2, 0)]
    assert [row["result"] for row in results(deployment, done[0]["action"])] == ["moved"] * 2
    assert run_act(deployment, "retry", "state:waiting")["done"] == 2
    Tail(deployment.bootstrap_servers, deployment.retry_topics()).await_seen(2)
    assert [row["result"] for row in results(deployment, done[0]["action"])] == ["gone"] * 2
    worker.terminate()


def _actions(deployment: Deployment, count: int, status: str) -> list[str]:
    """Lines of all actions, when so many have this status."""

    def lines() -> list[str]:
        return deployment.command("actions", "--json").stdout.splitlines()

    await_that(f"{count} are {status}", lambda: sum(json.loads(line)["status"] == status for line in lines()) == count)
    return lines()


def test_letters_are_redirected_where_their_policy_lets_them_parked_and_discarded(deploy: Deploy, tmp_path: Path) -> None:
    deployment, worker = deploy_with_waiting(deploy, 9)
    (topic,), slow = deployment.dead_letters, f"{deployment.app_id}.slow"
    deployment.create({slow: (2, {})})
    demand_refusal(deployment, "their policy does not let them go there", "act", "redirect", "key:1", "--to", slow, code=3)
    keys = f"allowed_targets: [{deployment.retry_of(topic)}, {slow}, {deployment.parked}]"
    def health(part: str) -> dict[str, str]:
        return json.loads(worker.get("/health/ready")[1])[part]

    later, used = tmp_path / "later.yaml", health("policies")["sha256"]
    later.write_text(policies.text({"testers": policies.team(policies.topic(deployment, topic, keys))}, WAITING))
    early = deployment.command("act", "redirect", "key:1 or key:2", "--to", slow, "--yes", "--file", str(later), "--wait", "1ms")
    assert early.returncode == 1, early.stderr
    await_that("it waits for that file", lambda: f"this worker's has {used}" in str(health("actions")))
    deployment.policy_file.write_text(later.read_text())
    worker.signal(signal.SIGHUP)
    assert [json.loads(line)["done"] for line in _actions(deployment, 1, "done")] == [2]
    assert health("actions") == {}
    Tail(deployment.bootstrap_servers, [slow]).await_seen(2)
    gone = came(deployment, slow)[0]
    told = json.loads(deployment.command("explain", gone.header("retry-source"), "--json").stdout)
    assert (told["state"], told["sent_to"].rpartition("/")[0].rpartition("/")[0]) == ("retried", slow), told
    assert run_act(deployment, "park", "key:3")["done"] == 1
    Tail(deployment.bootstrap_servers, [deployment.parked]).await_seen(1)
    (parked,) = came(deployment, deployment.parked)
    assert (parked.key, parked.header("retry-parked-reason")) == (b"3", "by_operator")
    again = deployment.command("act", "retry", "state:parked")
    assert (again.returncode, "1 letters to retry" in again.stdout) == (0, True), again.stderr

    due = {row["name"] for row in list_waiting(deployment)}
    discarded = run_act(deployment, "discard", "state:waiting")
    assert discarded["done"] == 6
    demand_refusal(deployment, "they are to be discarded already", "act", "retry", "key:5", code=3)
    shown = deployment.command("actions", "undo", discarded["action"][:6])
    assert (shown.returncode, "6 letters to undo" in shown.stdout) == (0, True), shown.stderr
    assert shown.stderr == "nothing was done; --yes does it\n"
    undone = deployment.command("actions", "undo", discarded["action"][:6], "--yes", "--json")
    assert json.loads(undone.stdout)["done"] == 6, undone.stderr
    after = {row["name"] for row in list_waiting(deployment)}
    assert after == due
    demand_refusal(deployment, "6 of 6 letters: already discarded, or acted on since", "actions", "undo", discarded["action"])
    parks = next(line for line in _actions(deployment, 4, "done") if json.loads(line)["kind"] == "park")
    demand_refusal(deployment, "a park cannot be undone", "actions", "undo", json.loads(parks)["action"])
    audit = deployment.command("audit", "--action", discarded["action"]).stdout
    assert "discard by " in audit
    assert came(deployment) == []
    worker.terminate()


@pytest.mark.slow
def test_an_action_is_held_resumed_and_cancelled(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 4)
    worker.terminate()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(deployment.command, "act", "retry", "state:waiting", "--yes", "--json", "--wait", "4m")
        action = json.loads(_actions(deployment, 1, "running")[0])["action"]
        assert deployment.command("actions", "hold", action, "--reason", "wait for the bank").returncode == 0
        held = asked.result()
    assert (held.returncode, json.loads(held.stdout)["held"]["reason"]) == (4, "wait for the bank"), held.stderr
    worker.start().await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    assert tail.quiet(2.0) == []
    told = json.loads(deployment.command("actions", "show", action).stdout)
    assert (told["status"], told["held"]["reason"], told["done"], told["new_failures"]) == ("held", "wait for the bank", 0, 0)
    # It comes too late to be a member.
    sender = Sender(deployment.bootstrap_servers)
    sender.send(next(iter(deployment.dead_letters)), b"late", b'{"n": 4}')
    sender.finish()
    await_that("it waits", lambda: worker.metric("retry_entries_waiting") == 5)
    assert json.loads(deployment.command("actions", "show", action).stdout)["new_failures"] == 1
    assert [row["result"] for row in results(deployment, action)] == ["not_yet"] * 4
    worker.terminate()
    other = json.loads(deployment.command("act", "discard", "key:1", "--yes", "--json", "--wait", "1ms").stdout)["action"]
    assert deployment.command("actions", "cancel", other).returncode == 0
    assert deployment.command("actions", "resume", action).returncode == 0
    worker.start().await_ready()
    tail.await_seen(4)
    tail.close()
    told = json.loads(next(line for line in _actions(deployment, 1, "done") if action in line))
    assert told["done"] == 4
    assert [row["result"] for row in results(deployment, other)] == ["cancelled"]
    audit = [json.loads(line) for line in deployment.command("audit", "--action", action, "--json").stdout.splitlines()]
    orders = [(each["kind"], each["reason"], each["teams"]) for each in audit if each["shard"] == -1]
    assert orders == [("hold", "wait for the bank", ["testers"]), ("resume", "", ["testers"])]
    assert "cancel by " in deployment.command("audit", "--action", other).stdout
    demand_refusal(deployment, "nothing of it is left to be done", "actions", "hold", other)
    worker.terminate()


def test_an_action_whose_letters_are_not_all_there_is_held_by_the_worker(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 2, shards=1)
    shards = ShardNumbers(Settings(bootstrap_servers=deployment.bootstrap_servers, app_id=deployment.app_id))
    action = action_records.make_action_id()
    # Two slices are named, and none was written.
    asked = Action("retry", "ann", clock.wall_ms(), [2], 2)
    shards.put_control_record(action_records.build_head_key(action), action_records.encode(asked))
    (held,) = _actions(deployment, 1, "held")
    assert json.loads(held)["held"]["reason"] == "incomplete"
    assert json.loads(held)["held"]["by"] == "worker"
    assert worker.metric("retry_entries_waiting") == 2
    worker.terminate()


@pytest.mark.parametrize("point", ["sweep-during-commit", "sweep-after-commit"])
@pytest.mark.slow
def test_two_operators_ask_for_the_same_and_a_worker_is_killed_in_the_midst(deploy: Deploy, point: str) -> None:
    letters = 3_000
    deployment, worker = deploy_with_waiting(deploy, letters)
    worker.terminate()
    demand_refusal(deployment, f"give --expect {letters}", "act", "retry", "state:waiting", "--yes")
    demand_refusal(
        deployment, "3,000 letters are like this, not 2,999", "act", "retry", "state:waiting", "--yes", "--expect", "2999"
    )
    for by in ("ann", "bob"):
        asked = deployment.command("act", "retry", "state:waiting", "--no-ramp", "--yes", "--expect", "3000", "--wait", "1ms",
                                   "--by", by)  # fmt: skip
        assert asked.returncode == 1, asked.stderr
    worker.start(*CRASHING, CRASH_AT=f"{point}:3")
    assert worker.wait(120) == -signal.SIGKILL
    worker.start().await_ready()
    done = [json.loads(line) for line in _actions(deployment, 2, "done")]
    assert sum(each["done"] for each in done) == sum(each["gone"] for each in done) == letters
    assert [each["refused"] for each in done] == [{}, {}]
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(letters)
    assert tail.quiet(1.0) == []
    tail.close()
    assert numbers(came(deployment)) == list(range(letters))
    told = {(row["letter"], row["result"]) for each in done for row in results(deployment, each["action"])}
    assert len(told) == 2 * letters
    worker.terminate()


def test_an_action_is_refused_where_a_worker_is_older_or_a_topic_is_missing(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=1)
    older = Consumer({
        "bootstrap.servers": deployment.bootstrap_servers, "group.id": deployment.names.table_group, "group.instance.id": "old",
        "partition.assignment.strategy": "cooperative-sticky", "logger": QUIET,
    })  # fmt: skip
    older.subscribe([deployment.names.changelog])
    await_that("it is a member", lambda: older.poll(0.1) is None and older.assignment() != [])
    demand_refusal(deployment, "1 of 1 workers are of an earlier version", "act", "retry", "state:waiting", "--yes")
    demand_refusal(deployment, "old. Upgrade all workers first", "act", "retry", "state:waiting")
    older.close()
    deployment.admin.delete_topics([deployment.names.audit])[deployment.names.audit].result(20.0)
    demand_refusal(deployment, "retry topics create", "act", "retry", "state:waiting", "--yes", code=1)
    demand_refusal(deployment, f"{deployment.names.audit} is missing", "topics", "check", code=1)
