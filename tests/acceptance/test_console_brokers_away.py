"""The console while no broker answers: it shows what it knew last, says how old that is, and goes on when brokers are back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from retry.kafka.local_broker import LocalBroker
from tests.acceptance.test_console_shown import FAILED, LETTERS, two_teams
from tests.conftest import Deploy
from tests.support.console_process import ConsoleProcess
from tests.support.letters import Sender
from tests.support.process import await_that

pytestmark = pytest.mark.slow


def test_while_brokers_are_away_the_last_state_is_shown_as_old(deploy: Deploy, tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", heap_mb=384) as own:
        deployment = deploy({"slow": 1, "given-up": 1}, on=own, shards=1)
        slow, _ = two_teams(deployment)
        deployment.worker().start().await_ready()
        sender = Sender(own.bootstrap_servers)
        for n in range(LETTERS):
            sender.send(slow, b"key-%d" % n, b'{"card": "secret"}', FAILED)
        sender.finish()
        console = ConsoleProcess(deployment).start()
        with closing(console.person()) as person:
            await_that("all are shown", lambda: f"{LETTERS} wait" in person.get("/").text)
            name = person.get("/letters").text.partition('data-name="')[2].partition('"')[0]
            assert "Reveal" in person.get(f"/letters/{name}").text
            own.kill()
            await_that("it says that it is old", lambda: ">Old<" in person.get("/letters").text)
            listed = person.get("/letters").text
            assert listed.count("<tr id=") == LETTERS
            assert "since when the brokers do not answer" in listed
            letter = person.get(f"/letters/{name}")
            assert (letter.status_code, "its record cannot be read now" in letter.text) == (200, True)
            refused = person.post(f"/letters/{name}/reveal")
            assert (refused.status_code, "secret" in refused.text) == (503, False)
            own.start()
            await_that("it is live again", lambda: "As of <time" in person.get("/letters").text)
            await_that("payloads can be read again", lambda: "secret" in person.post(f"/letters/{name}/reveal").text)
