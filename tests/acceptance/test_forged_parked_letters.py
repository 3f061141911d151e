"""Records that others write to a parking topic, in the service's words: no action makes anything of them for another team.

Each is tried from the command line, by the API of the console, and by a worker that is asked without any preview.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from retry.delay_queue import action_records, returned_offsets
from retry.delay_queue.action_records import Action, Member
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.kafka import topics
from retry.kafka.local_broker import LocalBroker
from retry.operations.act.request import renew_action
from retry.operations.act.start import start
from retry.operations.control_requests import ShardNumbers
from retry.operations.explain.search import parse_location
from retry.settings import read_settings
from tests.acceptance.test_acted_letters import _actions, came, demand_refusal, results, run_act
from tests.support.asked_console import AskedConsole
from tests.support.checker import verify_deployment
from tests.support.letters import Letter
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail
from tests.support.two_teams import TwoTeams

pytestmark = pytest.mark.check

LATER = "{backoff: {kind: constant, delay: 1h}, jitter: none}"
PARKS = ", rules: [{headers: {give-up: now}, park: true}]"
GRANTED = {"ann": "a:operator reveal:a", "bob": "b:operator reveal:b", "adm": "*:admin reveal:*"}
QUIET_S = 1.0


class Forged:
    """Two teams, a letter of `b` that waits for an hour, and what somebody with the right to write there put into `a.parked`."""

    def __init__(self, deployment: TwoTeams) -> None:
        self.deployment = deployment
        self.worker: WorkerProcess = deployment.worker().start().await_ready()
        self.waits: Letter = deployment.send_letter("b")
        await_that("b's letter waits", lambda: self.worker.metric("retry_entries_waiting") == 1)
        parked = deployment.topic("a", "parked")
        self.copy = deployment.forge(parked, self.waits.source, b"bytes of a")
        self.reference = deployment.forge(parked, self.waits.source, None)

    def unmoved(self) -> None:
        """Nothing came to `b`, whose letter waits as before, and nothing else is wrong."""
        tail = Tail(self.deployment.bootstrap_servers, [self.deployment.topic(team, "retry") for team in "ab"])
        assert tail.quiet(QUIET_S) == []
        tail.close()
        assert self.worker.metric("retry_entries_waiting") == 1
        told = json.loads(self.deployment.command("explain", self.waits.source, "--json").stdout)
        assert told["state"] == "waiting", told
        assert verify_deployment(self.deployment)["findings"] == {}


@pytest.fixture
def two_teams(broker: LocalBroker, tmp_path: Path) -> Iterator[Callable[..., TwoTeams]]:
    made: list[TwoTeams] = []

    def make(**options: Any) -> TwoTeams:
        made.append(TwoTeams(broker.bootstrap_servers, tmp_path / f"teams-{len(made)}", shards=2, defaults=LATER, **options))
        made[-1].prepare()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def forged_letter(two_teams: Callable[..., TwoTeams]) -> Forged:
    return Forged(two_teams())


def list_letters(deployment: TwoTeams, *words: str) -> list[dict[str, Any]]:
    told = deployment.command("letters", *words, "--json")
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def write_unasked_action(deployment: TwoTeams, kind: str, *places: str) -> str:
    """Ask the workers themselves, as somebody would who looks at nothing first; the id of the action."""
    shards = ShardNumbers(read_settings(deployment.environ))
    now_ms, members, parking = shards.now_ms(), [], {}
    for text in places:
        at = parse_location(text)
        hash_ = returned_offsets.hash_topic_id(topics.describe(shards.admin, [at.topic])[at.topic].topic_id)
        members.append(Member(ParkedPlace(hash_, at.partition, at.offset).encode(), now_ms))
        parking[hash_.hex()] = at.topic
    asked = renew_action(Action(kind, "eve", 0, [], 0))
    start(shards, asked, [iter([]) for _ in range(shards.count)], now_ms, members, parking, len(members))
    return asked.id.hex()


def test_a_forged_record_is_shown_as_not_ours_and_can_be_discarded_and_nothing_else(forged_letter: Forged) -> None:
    deployment = forged_letter.deployment
    rows = list_letters(deployment, "state:parked")
    assert [(row["name"], row["team"], row["mark"]) for row in rows] == [
        (forged_letter.copy, "a", "not_ours"), (forged_letter.reference, "a", "not_ours"),
    ]  # fmt: skip
    assert {(row["letter"], row["policy"], row["id"], row["attempt"]) for row in rows} == {(None, None, None, None)}
    for kind in (["retry"], ["redirect", "--to", deployment.topic("b", "retry")], ["patch", "--set-header", "a=b"]):
        demand_refusal(
            deployment, "2 more are left alone: this service did not park them", "act", kind[0], "state:parked", *kind[1:]
        )
    demand_refusal(deployment, "did not park them", "act", "edit", "--letter", forged_letter.copy, "--header", "a=b")
    forged_letter.unmoved()

    assert run_act(deployment, "discard", "state:parked", "team:b", code=3)["letters"] == 0
    done = run_act(deployment, "discard", "state:parked", "team:a")
    assert (done["done"], done["refused"]) == (2, {})
    assert [row["result"] for row in results(deployment, done["action"])] == ["done", "done"]
    assert list_letters(deployment, "state:parked") == []
    # Nothing of it goes to where only the service writes, and is trusted.
    assert came(deployment, deployment.names.discarded) == []
    forged_letter.unmoved()
    forged_letter.worker.terminate()


def test_a_worker_that_is_asked_for_forged_records_makes_nothing_of_them(forged_letter: Forged) -> None:
    for kind in (action_records.RETRY, action_records.EDIT, action_records.REDIRECT):
        write_unasked_action(forged_letter.deployment, kind, forged_letter.copy, forged_letter.reference)
    ended = [json.loads(line) for line in _actions(forged_letter.deployment, 3, "done")]
    assert [(each["done"], each["refused"]) for each in ended] == [(0, {"not_ours": 2})] * 3
    forged_letter.unmoved()
    write_unasked_action(forged_letter.deployment, action_records.ERASE, forged_letter.copy)
    write_unasked_action(forged_letter.deployment, action_records.DISCARD, forged_letter.reference)
    _actions(forged_letter.deployment, 5, "done")
    assert list_letters(forged_letter.deployment, "state:parked") == []
    forged_letter.unmoved()
    forged_letter.worker.terminate()


def test_in_the_console_a_team_sees_forged_records_as_not_ours_and_no_other_team_sees_them(forged_letter: Forged) -> None:
    console = AskedConsole(forged_letter.deployment, GRANTED).start()
    await_that("both are shown", lambda: console.asked("ann", "GET", "/api/letters?q=state:parked")["count"] == 2)
    assert console.asked("bob", "GET", "/api/letters?q=state:parked")["count"] == 0
    rows = console.asked("ann", "GET", "/api/letters?q=state:parked")["letters"]
    assert {(row["team"], row["reason"], row["letter"]) for row in rows} == {("a", "not_ours", None)}
    for who in ("ann", "adm"):
        found = console.preview(who, {"kind": "retry", "filter": "state:parked"})
        (why,) = found["refused"]
        assert (found["letters"], why["letters"], "did not park" in why["told"]) == (0, 2, True), found
        assert console.ask(who, "POST", f"/api/actions/{found['id']}/start", {})[0] == 409
    forged_letter.unmoved()
    found = console.preview("ann", {"kind": "discard", "filter": "state:parked"})
    assert (found["letters"], found["groups"]["team"]) == (2, {"a": 2})
    console.asked("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": 2})
    await_that("they rest no more", lambda: console.asked("ann", "GET", "/api/letters?q=state:parked")["count"] == 0)
    forged_letter.unmoved()
    console.process.terminate()
    forged_letter.worker.terminate()


@pytest.mark.parametrize("where", ["of the team", "of the service"])
def test_a_reference_is_followed_only_where_the_service_parked_that_letter(
    two_teams: Callable[..., TwoTeams], where: str
) -> None:
    deployment = two_teams(topic_keys=PARKS)
    worker = deployment.worker().start().await_ready()
    letter = deployment.send_letter("a")
    await_that("it waits", lambda: worker.metric("retry_entries_waiting") == 1)
    topic = deployment.topic("a", "parked") if where == "of the team" else deployment.names.parked
    reference = deployment.forge(topic, letter.source, None)
    demand_refusal(deployment, "1 more are left alone: this service did not park them", "act", "retry", "state:parked", "--yes")
    (row,) = list_letters(deployment, "state:parked")
    assert (row["name"], row["mark"]) == (reference, "not_ours")
    write_unasked_action(deployment, action_records.RETRY, reference)
    (ended,) = [json.loads(line) for line in _actions(deployment, 1, "done")]
    assert (ended["done"], ended["refused"]) == (0, {"not_ours": 1})
    assert came(deployment, deployment.topic("a", "retry")) == []
    # Only the letter itself is sent, and once.
    assert run_act(deployment, "retry", "state:waiting")["done"] == 1
    Tail(deployment.bootstrap_servers, [deployment.topic("a", "retry")]).await_seen(1)
    write_unasked_action(deployment, action_records.DISCARD, reference)
    _actions(deployment, 3, "done")
    assert list_letters(deployment, "state:parked") == []
    assert len(came(deployment, deployment.topic("a", "retry"))) == 1
    assert verify_deployment(deployment)["findings"] == {}
    worker.terminate()


def test_two_teams_cannot_park_in_one_topic(two_teams: Callable[..., TwoTeams]) -> None:
    deployment = two_teams()
    text, shared = deployment.policy_file.read_text(), f"{deployment.app_id}.a.parked"
    deployment.policy_file.write_text(text.replace(f"{deployment.app_id}.b.parked", shared))
    told = deployment.command("policies", "check", str(deployment.policy_file))
    assert told.returncode == 1
    assert f"{shared} is where team a parks" in told.stderr, told.stderr
    deployment.policy_file.write_text(text.replace(shared, deployment.names.parked))
    worker = deployment.command("worker")
    assert (worker.returncode, f"{deployment.names.parked} is no target" in worker.stderr) == (1, True), worker.stderr
