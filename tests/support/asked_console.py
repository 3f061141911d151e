"""A console as a real process beside the workers of a deployment, asked by its API."""

from __future__ import annotations

import hashlib
import http.client
import json
from pathlib import Path
from typing import Any

from tests.support.deployment import Deployment
from tests.support.process import WorkerProcess, await_that

COMMAND = ("-m", "retry", "console")


class AskedConsole:
    """One console, asked over HTTP as people and programs do.

    Args:
      granted: names of who may ask it, which are their tokens, too, and what each may, as the file of tokens has it.
    """

    def __init__(self, deployment: Deployment, granted: dict[str, str], name: str = "console", **environ: str) -> None:
        tokens = Path(deployment.folder / f"{name}.tokens")
        lines = [f"{who} {hashlib.sha256(who.encode()).hexdigest()} {what}" for who, what in granted.items()]
        tokens.write_text("\n".join(lines) + "\n")
        own = {"RETRY_CONSOLE_ADDR": "127.0.0.1:0", "RETRY_CONSOLE_TOKENS": str(tokens), **environ}
        self.process = WorkerProcess(name, deployment.folder, {**deployment.environ, **own})
        deployment.workers[name] = self.process

    def start(self) -> AskedConsole:
        """Start it, and wait until it shows what there is."""
        self.process.start(*COMMAND)
        await_that("the console is live", self.process.ready)
        return self

    def ask(self, who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer of the API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.process.port(), timeout=120)
        headers = {"Authorization": f"Bearer {who}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            kind = answer.headers["Content-Type"] or ""
            return answer.status, json.loads(text) if text and kind.endswith("json") and "ndjson" not in kind else text
        finally:
            connection.close()

    def asked(self, who: str, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of its answer."""
        status, told = self.ask(who, method, path, body)
        assert status < 300, (method, path, status, told)
        return told

    def preview(self, who: str, action: dict[str, Any], path: str = "/api/actions") -> dict[str, Any]:
        """Have an action worked out, and wait until it is: on a starved core that takes longer than one answer of the API."""
        found: dict[str, Any] = self.asked(who, "POST", path, action)

        def is_done() -> bool:
            nonlocal found
            if found["state"] == "working":
                found = self.asked(who, "GET", f"/api/actions/{found['id']}")
            return found["state"] != "working"

        await_that("an action is worked out", is_done)
        return found
