"""`retry api` and `retry scheduler` over TLS, as real processes: given a new certificate while they are asked."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retry.clock import wall_ms
from tests.conftest import Deploy, Schedulings
from tests.integration.test_http_tls import Pair
from tests.support.process import WorkerProcess, await_that

pytestmark = pytest.mark.check

WISH = json.dumps({"url": "http://127.0.0.1:9/", "after": "1h"}).encode()


class TlsApi:
    """The process, and one connection to it that is kept."""

    def __init__(self, deploy: Deploy, folder: Path) -> None:
        self.pair, self.deployment = Pair(folder), deploy({"orders": 1}, shards=2)
        made = self.deployment.command("api", "token", "billing", "--until", "1h")
        assert made.returncode == 0, made.stderr
        self.token = made.stderr.strip()
        (folder / "tokens").write_text(made.stdout)
        self.environ = {
            "RETRY_API_ADDR": "127.0.0.1:0", "RETRY_API_TLS_CERT": str(self.pair.certificate),
            "RETRY_API_TLS_KEY": str(self.pair.key), "RETRY_API_TOKENS": str(folder / "tokens"),
            "RETRY_WEBHOOK_ALLOW": "127.0.0.0/8",
        }  # fmt: skip
        self.process: WorkerProcess = self.deployment.worker("api")
        self.process.start("-m", "retry", "api", **self.environ)
        await_that("it listens with TLS", lambda: " with TLS" in self.process.log() or not self.process.running())
        self.kept = self.connection()
        await_that("it is ready", lambda: self.ask("GET", "/health/ready")[0] == 200)

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.process.port(), timeout=60, context=self.pair.trusting())

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """On the connection that is kept."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.kept.request(method, path, body, headers)
        answer = self.kept.getresponse()
        return answer.status, json.loads(answer.read())

    def shown(self) -> str:
        """The digest of the certificate that a new connection is shown."""
        connection = self.connection()
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        digest = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
        connection.close()
        return digest


@pytest.fixture
def api(deploy: Deploy, tmp_path: Path) -> Iterator[TlsApi]:
    made = TlsApi(deploy, tmp_path)
    yield made
    made.process.kill()


def test_the_api_speaks_tls_with_files_that_are_renewed_while_it_is_asked(api: TlsApi) -> None:
    assert api.ask("POST", "/timers", WISH)[0] == 201
    assert api.ask("GET", "/health/ready")[1]["certificate"] == "ok"
    socket_before, before = api.kept.sock, api.shown()
    # A key of another certificate: what was there before stays, and health says so.
    good_key = api.pair.key.read_bytes()
    api.pair.key.write_bytes(api.pair.certificates.sign("other")[0])
    await_that("health tells", lambda: "RETRY_API_TLS_KEY: " in api.ask("GET", "/health/ready")[1]["certificate"])
    assert api.shown() == before
    assert "what was read before stays in use" in api.process.log()
    api.pair.key.write_bytes(good_key)
    await_that("health is well", lambda: api.ask("GET", "/health/ready")[1]["certificate"] == "ok")
    api.kept.request("GET", "/metrics", headers={"Authorization": f"Bearer {api.token}"})
    page = api.kept.getresponse().read().decode()
    (ends_s,) = re.findall(r"^retry_api_certificate_ends_timestamp_seconds (\S+)$", page, re.MULTILINE)
    assert 29 * 86_400 < float(ends_s) - wall_ms() / 1_000 <= 30 * 86_400
    assert {name for name in ("retry_build_info{", "process_open_fds ", "python_info{") if f"\n{name}" in page} == {
        "retry_build_info{", "process_open_fds ", "python_info{",
    }  # fmt: skip
    renewed = api.pair.renew()
    await_that("the new one is shown", lambda: api.shown() == renewed)
    assert api.ask("POST", "/timers", WISH)[0] == 201
    # All that time it was one connection.
    assert api.kept.sock is socket_before
    assert api.token not in api.process.log()
    assert api.process.log().count('"status":201') == 2


def test_the_api_does_not_start_with_files_that_cannot_be_used(api: TlsApi) -> None:
    other = api.deployment.worker("other")
    api.pair.certificate.unlink()
    other.start("-m", "retry", "api", **api.environ)
    await_that("it ends", lambda: not other.running())
    assert other.exit_code() == 1
    assert "RETRY_API_TLS_CERT: " in other.log() and "cannot be read" in other.log()
    assert "Traceback" not in other.log()


def test_the_scheduler_tells_in_its_health_of_the_certificate_of_its_rest_api(scheduling: Schedulings, tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    scheduler = scheduling(1, **pair.environ()).instance()

    def read_certificates() -> Any:
        return json.loads(scheduler.get("/health/ready")[1]).get("certificates")

    (port,) = re.findall(r"rest on 127\.0\.0\.1:(\d+) with TLS", scheduler.log())
    connection = http.client.HTTPSConnection("127.0.0.1", int(port), timeout=60, context=pair.trusting())
    connection.request("GET", "/schedules")
    assert connection.getresponse().read() == b"[]"
    connection.close()
    assert read_certificates() == {"rest": "ok"}
    pair.key.write_bytes(pair.certificates.sign("other")[0])
    await_that("health tells", lambda: read_certificates()["rest"].startswith("RETRY_SCHEDULER_TLS_KEY: "))
    # It serves as before, and is ready.
    assert scheduler.get("/health/ready")[0] == 200
    pair.renew()
    await_that("health is well", lambda: read_certificates() == {"rest": "ok"})


def test_a_scheduler_with_files_that_cannot_be_used_ends_before_it_makes_a_topic(
    scheduling: Schedulings, tmp_path: Path
) -> None:
    pair = Pair(tmp_path)
    pair.certificate.write_bytes(b"no certificate")
    made = scheduling(1, **pair.environ())
    instance = WorkerProcess("refused", tmp_path, made.environ)
    instance.start("-m", "retry", "scheduler")
    await_that("it ends", lambda: not instance.running())
    assert instance.exit_code() == 1
    assert "RETRY_SCHEDULER_TLS_CERT: " in instance.log() and "Traceback" not in instance.log()
    assert made.names.changelog not in made.admin.list_topics(timeout=60).topics
