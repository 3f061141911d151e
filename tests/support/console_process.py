"""`retry console` as a real process, and a person who looks at it."""

from __future__ import annotations

import httpx2

from tests.support.console import csrf_of
from tests.support.deployment import Deployment
from tests.support.process import WorkerProcess

CONSOLE = ("-m", "retry", "console")
_ANSWER_S = 60.0


class ConsoleProcess:
    """One console of a deployment, whose replica has read what is there."""

    def __init__(self, deployment: Deployment, name: str = "console", **environ: str) -> None:
        self.process: WorkerProcess = deployment.worker(name)
        self._environ = {"RETRY_CONSOLE_ADDR": "127.0.0.1:0", **environ}

    def start(self) -> ConsoleProcess:
        """Start it and wait until it is ready."""
        self.process.start(*CONSOLE, **self._environ)
        self.process.await_ready()
        return self

    @property
    def origin(self) -> str:
        """Return the address of the console."""
        return f"http://127.0.0.1:{self.process.port()}"

    def person(self) -> Person:
        """Somebody with a browser that has no cookies yet."""
        return Person(self.origin)


class Person:
    """A browser without JavaScript: keeps cookies, and posts the token of the page that it saw last."""

    def __init__(self, origin: str) -> None:
        self._origin, self._csrf = origin, ""
        self._client = httpx2.Client(base_url=origin, timeout=_ANSWER_S)

    def get(self, path: str, **query: str) -> httpx2.Response:
        """Look at a page."""
        answer = self._client.get(path, params=query)
        self._csrf = csrf_of(answer.text) or self._csrf
        return answer

    def post(self, path: str, **fields: str) -> httpx2.Response:
        """Send a form to a path."""
        return self._client.post(path, data={"csrf": self._csrf, **fields}, headers={"Origin": self._origin})

    def close(self) -> None:
        self._client.close()
