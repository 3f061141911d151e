"""A webhook is told of what is new since the console looks, once, signed, with a link to its page, and only where it may go."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retry.console.acting import webhooks
from retry.console.acting.webhooks import Happenings, Notifier
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Order
from retry.errors import LookupsBusy, RebuildInProgress
from retry.http_client.client import Answer, HttpRequest, WebhookClient
from retry.settings import Settings
from tests.support.acting_console import ActingConsole
from tests.support.console import NOW_MS, group

HEAD = action_records.head_key(bytes.fromhex("00000000000000aa"))
URL = "https://retry.example.com"


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.kinds = [group("aa")]
    made.console.settings = Settings(console_url=URL, console_webhook="https://hooks.example.com/in")
    yield made
    made.close()


def hold(console: ActingConsole, at_ms: int) -> None:
    action = Action("retry", "ann", NOW_MS, [1], 3, teams=["shop"])
    order = Order("worker", at_ms, "too few recover")
    console.replica.control_records[0] = {HEAD: action_records.encode(action), HEAD + b"/held": action_records.encode(order)}


def told(happenings: Happenings) -> list[dict[str, Any]]:
    return [json.loads(event.body) for event in happenings.list_new_events()]


def test_what_was_there_before_is_not_told_and_what_is_new_is_told_once(console: ActingConsole) -> None:
    hold(console, NOW_MS)
    happenings = Happenings(console.console, URL)
    assert told(happenings) == []
    console.replica.kinds = [group("aa"), group("b/b", ("shop",), message="order # failed")]
    (new,) = told(happenings)
    assert (new["type"], new["data"]["group"], new["data"]["teams"]) == ("group.new", "b/b", ["shop"])
    assert new["data"]["link"] == f"{URL}/failures/b%2Fb"
    hold(console, NOW_MS + 5)
    (held,) = told(happenings)
    assert (held["type"], held["data"]["reason"]) == ("action.held", "too few recover")
    assert held["data"]["link"] == f"{URL}/actions/00000000000000aa"
    # A group that is gone and comes again is no new one.
    console.replica.kinds = []
    assert told(happenings) == []
    console.replica.kinds = [group("aa")]
    assert told(happenings) == []


def test_a_resolved_group_that_fails_again_is_told_each_time_it_was_resolved(console: ActingConsole) -> None:
    console.replica.failed_again = {"aa": 5}
    happenings = Happenings(console.console, URL)
    assert told(happenings) == [], "before this console looked"
    console.replica.failed_again = {}
    assert told(happenings) == []
    console.replica.failed_again = {"aa": 9, "gone": 9}
    (event,) = happenings.list_new_events()
    body = json.loads(event.body)
    assert (event.id, body["type"], body["data"]["group"]) == ("group.reopened-aa-9", "group.reopened", "aa")
    assert body["data"]["link"] == f"{URL}/failures/aa"
    assert told(happenings) == []


def test_of_very_many_new_kinds_at_once_some_are_told(console: ActingConsole, caplog: pytest.LogCaptureFixture) -> None:
    happenings = Happenings(console.console, URL)
    assert told(happenings) == []
    console.replica.kinds = [group(f"{n:016x}") for n in range(150)]
    assert len(told(happenings)) == 100
    assert "50 kinds of failures are not told" in caplog.text
    assert told(happenings) == []


def test_a_look_that_fails_is_logged_and_had_again(console: ActingConsole, caplog: pytest.LogCaptureFixture) -> None:
    notifier, receiver = Notifier(console.console), Receiver()
    look_and_call(notifier, receiver)
    console.replica.trouble = KeyError("a mistake")
    look_and_call(notifier, receiver)
    console.replica.trouble, console.replica.kinds = None, [group("bb")]
    look_and_call(notifier, receiver)
    assert [request.id for request in receiver.requests] == ["group.new-bb"]
    assert "what is new cannot be told" in caplog.text


class Receiver:
    """Stands in for the client; answers what it is told to."""

    def __init__(self, *answers: str | None) -> None:
        self.requests: list[HttpRequest] = []
        self._answers = list(answers)

    async def call(self, request: HttpRequest) -> Answer:
        self.requests.append(request)
        error = self._answers.pop(0) if self._answers else None
        if error == "busy":
            raise LookupsBusy
        return Answer(200, error)


def look_and_call(notifier: Notifier, receiver: Any, times: int = 1) -> None:
    for _ in range(times):
        notifier._collect_events()
        asyncio.run(notifier._call_all(receiver))


def test_a_call_that_failed_is_made_again_under_the_same_id_and_not_for_ever(
    console: ActingConsole, caplog: pytest.LogCaptureFixture
) -> None:
    notifier, receiver = Notifier(console.console), Receiver("500", "busy", None)
    look_and_call(notifier, receiver)
    console.replica.kinds = [group("aa"), group("bb")]
    look_and_call(notifier, receiver, 5)
    assert [request.id for request in receiver.requests] == ["group.new-bb"] * 3
    assert {request.url for request in receiver.requests} == {"https://hooks.example.com/in"}
    console.replica.kinds = [*console.replica.kinds, group("cc")]
    failing = Receiver(*["connect"] * 9)
    look_and_call(notifier, failing, 8)
    assert len(failing.requests) == 5
    assert "group.new-cc was not told to hooks.example.com" in caplog.text
    assert "/in" not in caplog.text


def test_while_the_replica_is_built_nothing_is_new(console: ActingConsole) -> None:
    console.replica.trouble = RebuildInProgress(0.5)
    notifier, receiver = Notifier(console.console), Receiver()
    look_and_call(notifier, receiver)
    console.replica.trouble = None
    look_and_call(notifier, receiver)
    assert receiver.requests == []


def test_calls_are_signed_and_go_nowhere_but_where_those_of_timers_may(console: ActingConsole, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("whsec_" + base64.b64encode(b"k" * 32).decode() + "\n")
    settings = msgspec.structs.replace(console.console.settings, webhook_secrets=secrets, console_webhook="http://127.0.0.1:9/in")
    assert webhooks._secrets(settings)() == [b"k" * 32]
    assert list(webhooks._secrets(Settings())()) == []
    console.console.settings = settings
    notifier = Notifier(console.console)
    (event,) = [webhooks.Event("group.new-aa", "group.new", b"{}")]

    async def call() -> str | None:
        client = WebhookClient(webhooks.SsrfGuard(webhooks.parse_allowlist("")), lambda: ())
        try:
            return await notifier._call(client, event)
        finally:
            await client.close()

    assert asyncio.run(call()) == "not_allowed"
