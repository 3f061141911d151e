"""Consoles tell targets of new failures, of actions on hold and of what failed again: once, of two consoles and after kill -9."""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from retry import clock
from retry.http_client.signatures import SharedKey, sign_body
from tests.acceptance.test_acted_letters import deploy_with_waiting
from tests.acceptance.test_console_acts import GRANTED
from tests.conftest import Deploy
from tests.support.asked_console import AskedConsole
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import await_that

pytestmark = pytest.mark.slow

SECRET = b"k" * 32
URL = "http://127.0.0.1:8082"
FAILED = [("kafka_dlt-exception-message", b"order 4711 timed out <!channel> @here")]


class Receiver:
    """Keeps what it is sent at each path; refuses the first call."""

    def __init__(self) -> None:
        calls = self.calls = list[tuple[str, dict[str, str], bytes]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                calls.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(503 if len(calls) == 1 else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def told(self, kind: str) -> list[dict[str, Any]]:
        """List what programs were told of a kind of event."""
        bodies = [json.loads(body) for path, _, body in list(self.calls) if path == "/bot"]
        return [each["data"] for each in bodies if each["type"] == kind]

    def chat(self) -> list[str]:
        """List what people were told, in order."""
        return [json.loads(body)["message"] for path, _, body in list(self.calls) if path.startswith("/chat")]

    def ids(self) -> list[str]:
        """List the ids of all calls to programs, in their order."""
        return [headers["webhook-id"] for path, headers, _ in list(self.calls) if path == "/bot"]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def environment(deployment: Deployment, receiver: Receiver) -> dict[str, str]:
    """The settings of consoles that tell this receiver, as a webhook and through Apprise."""
    folder = deployment.folder
    (folder / "secrets").write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    (folder / "bot-url").write_text(f"http://127.0.0.1:{receiver.port}/bot\n")
    (folder / "chat-url").write_text(f"json://127.0.0.1:{receiver.port}/chat/s3cret-token\n")
    (folder / "notifications.yaml").write_text(f"""
targets:
  bot: {{webhook: {folder}/bot-url}}
  chat: {{apprise: {folder}/chat-url}}
rules:
  - {{to: [bot, chat], teams: [testers]}}
""")
    return {
        "RETRY_CONSOLE_NOTIFICATIONS": str(folder / "notifications.yaml"), "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8",
        "RETRY_WEBHOOK_SECRETS": str(folder / "secrets"), "RETRY_CONSOLE_URL": URL,
    }  # fmt: skip


def count_written(deployment: Deployment, name: str) -> int:
    """Count what programs were told, as the replica of a console has it from Kafka."""
    replica = (deployment.folder / name / "console" / "replica.sqlite").as_uri()
    with closing(sqlite3.connect(f"{replica}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM notes WHERE key LIKE 'told/bot/%'").fetchone()[0])


def test_each_event_is_told_once_by_two_consoles_one_of_which_is_killed(deploy: Deploy) -> None:
    deployment, worker = deploy_with_waiting(deploy, 20)
    receiver = Receiver()
    settings = environment(deployment, receiver)
    consoles = [
        AskedConsole(deployment, GRANTED, name, RETRY_DATA_DIR=str(deployment.folder / name), **settings).start()
        for name in ("console-a", "console-b")
    ]  # fmt: skip
    sender, (topic,) = Sender(deployment.bootstrap_servers), deployment.dead_letters

    def fail(kind: str) -> None:
        sender.send(topic, b"k", b"{}", [("kafka_dlt-exception-fqcn", f"com.acme.{kind}".encode()), *FAILED])
        sender.finish()

    def tells(kind: str) -> bool:
        return any(each["cause"] == f"com.acme.{kind}" for each in receiver.told("new_failure"))

    # The rule begins with the first look of the console that tells: what failed before is no news.
    names = iter(f"Early{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")

    def is_told_at_last() -> bool:
        fail(next(names, "EarlyZ"))
        clock.pause(2.0)
        return bool(receiver.told("new_failure"))

    await_that("a new kind of failures is told", is_told_at_last)
    first = receiver.told("new_failure")[0]
    assert (first["teams"], first["link"]) == (["testers"], f"{URL}/failures/{first['group']}")
    assert not any(each in first["sentence"] for each in "<>@")

    asking = consoles[0]
    asked = {"kind": "retry", "filter": "exception:com.acme.*", "ramp": True, "silence": "1h"}
    found = asking.preview("ann", asked)
    asking.asked("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": found["letters"]})
    asking.asked("ann", "POST", f"/api/actions/{found['id']}/hold", {"reason": "look first"})
    await_that("the hold is told", lambda: receiver.told("on_hold"))
    (held,) = receiver.told("on_hold")
    assert (held["action"], held["by"], held["reason"]) == (found["id"], "ann", "look first")
    assert held["link"] == f"{URL}/actions/{found['id']}"

    # Whichever of them tells: the other goes on where it stopped.
    for n, dying in enumerate(consoles):
        fail(f"Late{'AB'[n]}")
        await_that("a failure is told", lambda n=n: tells(f"Late{'AB'[n]}"))  # type: ignore[misc]
        # Whoever is killed between an answer and its record has the next tell again.
        name = f"console-{'ab'[n]}"
        await_that(
            "it is written down", lambda name=name: count_written(deployment, name) == len(set(receiver.ids())),  # type: ignore[misc]
        )  # fmt: skip
        dying.process.kill()
        fail(f"After{'AB'[n]}")
        if n:
            dying.start()
        await_that("another console tells", lambda n=n: tells(f"After{'AB'[n]}"))  # type: ignore[misc]
        if not n:
            dying.start()
    await_that("people are told, too", lambda: "com.acme.AfterB" in " ".join(receiver.chat()))
    log = "".join(each.process.log_file.read_text() for each in consoles)
    assert "s3cret-token" not in log
    for each in consoles:
        each.process.terminate()
    worker.terminate()
    receiver.close()

    ids = receiver.ids()
    refused = receiver.calls[0][1].get("webhook-id")
    again = {event: count for event, count in Counter(ids).items() if count > 1}
    # The first call was refused, and made again under the same id.
    assert again == ({refused: 2} if refused else {})
    for path, headers, body in receiver.calls:
        if path == "/bot":
            made = sign_body([SharedKey(SECRET)], headers["webhook-id"], int(headers["webhook-timestamp"]), body)
            assert headers["webhook-signature"] == made["webhook-signature"]
