"""HTTP timers on one machine, in half a minute: `python -m examples.timers`.

A real broker, one `retry worker`, one `retry api`, and a receiver that refuses the first call that it gets. Three timers: one is
called at its time, one after it was refused, and one is ended. The exit code is 0 only if each call came, signed and not early.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from examples.lifetime import killed_on_failure, run_demo
from examples.stage import DemoFailed, Stage
from retry.clock import Deadline, pause, wall_ms
from retry.kafka.local_broker import LocalBroker

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_ALL_S = 90.0
_ADDRESS = re.compile(r"http on (127\.0\.0\.1:\d+)")
Say = Callable[[str], None]


class Receiver(BaseHTTPRequestHandler):
    """What a team writes: look at the signature, do the work, answer 2xx."""

    refused: ClassVar[set[str]] = set()
    done: ClassVar[dict[str, str]] = {}
    say: ClassVar[Say] = staticmethod(print)

    def do_POST(self) -> None:
        """Refuse each message of `/shaky` once."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = json.loads(body)["name"]
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        proof = "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
        genuine = any(hmac.compare_digest(proof, each) for each in self.headers["webhook-signature"].split(" "))
        shaky = self.path == "/shaky" and name not in self.refused
        self.refused.add(name)
        status = 401 if not genuine else 503 if shaky else 204
        if status == 204:
            self.done[name] = self.headers["webhook-id"]
        self.say(f"{name}: called, {'genuine' if genuine else 'FORGED'}, answered {status}")
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def receiving(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A receiver: its URL, and the settings of a service that may call it and signs; the secret lies in `folder`."""
    secrets = folder / "secrets"
    secrets.write_text(SECRET + "\n")
    secrets.chmod(0o600)
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {"RETRY_API_ADDR": "127.0.0.1:0", "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8", "RETRY_WEBHOOK_SECRETS": str(secrets)}
        yield f"http://127.0.0.1:{server.server_port}", settings
        server.shutdown()


def play(stage: Stage, receiver: str, say: Say, deadline: Deadline) -> None:
    """Create timers and wait until their URLs were called; a worker and an API must be ready.

    Raises:
      DemoFailed: something else was called, or too early.
    """
    Receiver.say = staticmethod(say)
    address = _ADDRESS.search(stage.log_file("api").read_text())
    api = f"http://{address[1] if address else ''}"
    say(f"the API is at {api}/docs")
    began_ms = wall_ms()
    policy = {"backoff": {"kind": "constant", "delay": "2s"}, "jitter": "none"}
    for name, path in (("on time", "/"), ("shaky", "/shaky"), ("ended", "/")):
        payload = {"url": receiver + path, "after": "3s", "body": {"name": name}, "policy": policy}
        made = _request("POST", f"{api}/timers", payload)
        say(f"{name!r} is to be called at {made['at'][11:23]}")
        if name == "ended":
            _request("DELETE", f"{api}/timers/{made['id']}")
    _await_calls(stage, began_ms, deadline)
    for name, timer_id in Receiver.done.items():
        while (timer := _request("GET", f"{api}/timers/{timer_id}"))["state"] != "delivered":
            stage.check()
            if deadline.has_passed():
                raise DemoFailed(f"time is up: the API says {timer['state']} of {name}")
            pause(0.1)
        say(f"{name}: {timer['state']} by attempt {timer['attempt']}, {timer['last_call']['took_ms']} ms")
    if set(Receiver.done) != {"on time", "shaky"}:
        raise DemoFailed(f"not what was wanted: {sorted(Receiver.done)}")


def _await_calls(stage: Stage, began_ms: int, deadline: Deadline) -> None:
    while len(Receiver.done) < 2:
        stage.check()
        if deadline.has_passed():
            raise DemoFailed(f"time is up; done are {sorted(Receiver.done)}")
        pause(0.1)
        if Receiver.done and wall_ms() < began_ms + 3_000:
            raise DemoFailed("it came early")


def _request(method: str, url: str, payload: object = None) -> Any:
    body = json.dumps(payload).encode() if payload is not None else None
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"{}")


def main(folder: Path) -> None:
    """Run it on a broker of its own."""
    deadline = Deadline(_ALL_S)
    with killed_on_failure(LocalBroker(folder / "broker")) as broker:
        settings = {"RETRY_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "RETRY_SHARDS": "2",
                    "RETRY_DATA_DIR": str(folder / "data"), "RETRY_HTTP_ADDR": "127.0.0.1:0"}  # fmt: skip
        with receiving(folder) as (receiver, more), Stage(folder, settings | more) as stage:
            stage.run("topics", "create", deadline=deadline)
            stage.start("worker", "retry", "worker", "--timers-only")
            stage.start("api", "retry", "api")
            for part in ("worker", "api"):
                stage.await_ready(part, deadline)
            play(stage, receiver, print, deadline)
            stage.stop()
    print("all as it must be; nothing is left running")


if __name__ == "__main__":
    run_demo(main, print)
