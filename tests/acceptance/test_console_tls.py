"""`retry console` with a certificate of its own: nothing in plain text, and cookies that browsers send over TLS alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx2
import pytest

from tests.conftest import Deploy
from tests.integration.test_http_tls import Pair
from tests.support.console import csrf_of
from tests.support.console_process import CONSOLE
from tests.support.process import await_that

pytestmark = pytest.mark.check

TOKEN = "a token of ada's"


def test_the_console_speaks_tls_and_nothing_else(deploy: Deploy, tmp_path: Path) -> None:
    pair, deployment, tokens = Pair(tmp_path), deploy({"orders": 1}, shards=1), tmp_path / "people"
    tokens.write_text(f"ada {hashlib.sha256(TOKEN.encode()).hexdigest()} *:viewer\n")
    console = deployment.worker("console")
    console.start(
        *CONSOLE, RETRY_CONSOLE_ADDR="127.0.0.1:0", RETRY_CONSOLE_TOKENS=str(tokens),
        RETRY_CONSOLE_TLS_CERT=str(pair.certificate), RETRY_CONSOLE_TLS_KEY=str(pair.key),
    )  # fmt: skip
    await_that("it listens with TLS", lambda: " with TLS" in console.log() or not console.running())
    origin = f"https://127.0.0.1:{console.port()}"
    with httpx2.Client(base_url=origin, verify=pair.trusting(), timeout=60.0) as browser:
        await_that("it is ready", lambda: browser.get("/health/ready").status_code == 200)
        assert browser.get("/health/ready").json()["certificate"] == "ok"
        csrf = csrf_of(browser.get("/sign-in").text)
        signed_in = browser.post("/sign-in", data={"csrf": csrf, "token": TOKEN}, headers={"Origin": origin})
        cookie = signed_in.headers["set-cookie"]
        assert (signed_in.status_code, cookie.startswith("__Host-"), "; Secure" in cookie) == (303, True, True)
        assert browser.get("/").status_code == 200
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(origin.replace("https", "http"), timeout=60.0)
    assert TOKEN not in console.log()
