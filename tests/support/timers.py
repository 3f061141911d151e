"""`retry api` as a real process, and what it is asked."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.support.deployment import Deployment
from tests.support.process import WorkerProcess

API = ("-m", "retry", "api")


class Api:
    """One API process of a deployment."""

    def __init__(self, deployment: Deployment, name: str = "api", **environ: str) -> None:
        self.process: WorkerProcess = deployment.worker(name)
        self._environ = {"RETRY_API_ADDR": "127.0.0.1:0", "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", **environ}

    def start(self) -> Api:
        """Start it and wait until it has read what is there."""
        self.process.start(*API, **self._environ)
        self.process.await_ready()
        return self

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.process.port(), timeout=60)
        try:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            if raw is not None:
                sent = {"Content-Type": "application/json", **sent}
            connection.request(method, path, raw, sent)
            answer = connection.getresponse()
            told = answer.read()
            kind = answer.headers.get("content-type", "")
            return answer.status, json.loads(told) if "json" in kind else told.decode(), dict(answer.headers)
        finally:
            connection.close()

    def make(self, url: str, **wish: object) -> str:
        """Make a timer; its id."""
        status, told, _ = self.ask("POST", "/timers", {"url": url, **wish})
        assert status == 201, told
        return str(told["id"])

    def state(self, timer_id: str) -> dict[str, Any]:
        """Ask for the state of a timer; empty where there is none."""
        status, told, _ = self.ask("GET", f"/timers/{timer_id}")
        return told if status == 200 else {}
