"""A webhook is told by a running console of a new kind of failures and of an action that is held, signed, with a link."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from typing import Any

import pytest

from retry.http_client.client import sign_body
from tests.acceptance.test_acted_letters import waiting
from tests.acceptance.test_console_acts import GRANTED
from tests.conftest import Deploy
from tests.support.asked_console import AskedConsole
from tests.support.letters import Sender
from tests.support.process import await_that

pytestmark = pytest.mark.check

SECRET = b"k" * 32
FAILED = [("kafka_dlt-exception-message", b"order 4711 timed out")]


class Receiver:
    """Keeps what it is sent; refuses the first call."""

    def __init__(self) -> None:
        calls = self.calls = list[tuple[dict[str, str], bytes]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(503 if len(calls) == 1 else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/in"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What was told of a kind of event."""
        return [told for told in (json.loads(body) for _, body in list(self.calls)) if told["type"] == kind]

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_new_failures_and_held_actions_are_told(deploy: Deploy) -> None:
    deployment, worker = waiting(deploy, 20)
    secrets = deployment.folder / "secrets"
    secrets.write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    receiver = Receiver()
    console = AskedConsole(
        deployment, GRANTED, RETRY_CONSOLE_WEBHOOK=receiver.url, RETRY_WEBHOOK_ALLOW="127.0.0.0/8",
        RETRY_WEBHOOK_SECRETS=str(secrets), RETRY_CONSOLE_URL="http://127.0.0.1:8082",
    ).start()  # fmt: skip
    # One look at what there is has to come before what is new.
    await_that("the console looks", lambda: console.process.metric("retry_console_ready") == 1)
    sender, (topic,) = Sender(deployment.bootstrap_servers), deployment.dead_letters

    kinds = count()

    def fails_anew() -> bool:
        # One more each time: which of them is the first that comes after the console's first look nobody knows.
        kind = "".join(chr(ord("A") + int(digit)) for digit in str(next(kinds)))
        sender.send(topic, b"k", b"{}", [("kafka_dlt-exception-fqcn", f"com.acme.Kind{kind}".encode()), *FAILED])
        sender.finish()
        return bool(receiver.told("group.new"))

    await_that("a new kind of failures is told", fails_anew)
    first = receiver.told("group.new")[0]["data"]
    assert (first["teams"], first["link"]) == (["testers"], f"http://127.0.0.1:8082/failures/{first['group']}")
    assert first["cause"].startswith("com.acme.Kind")

    asked = {"kind": "retry", "filter": "exception:com.acme.*", "ramp": True, "silence": "1h"}
    found = console.preview("ann", asked)
    console.asked("ann", "POST", f"/api/actions/{found['id']}/start", {"expect": found["letters"]})
    console.asked("ann", "POST", f"/api/actions/{found['id']}/hold", {"reason": "look first"})
    await_that("the hold is told", lambda: receiver.told("action.held"))
    (held,) = receiver.told("action.held")
    assert (held["data"]["action"], held["data"]["by"], held["data"]["reason"]) == (found["id"], "ann", "look first")
    assert held["data"]["link"] == f"http://127.0.0.1:8082/actions/{found['id']}"
    console.process.terminate()
    worker.terminate()
    receiver.close()
    ids = [headers["webhook-id"] for headers, _ in receiver.calls]
    # The first call was refused, and made again under the same id.
    assert ids.count(ids[0]) == 2
    assert len(set(ids)) == len(ids) - 1
    for headers, body in receiver.calls:
        made = sign_body([SECRET], headers["webhook-id"], int(headers["webhook-timestamp"]), body)
        assert headers["webhook-signature"] == made["webhook-signature"]
