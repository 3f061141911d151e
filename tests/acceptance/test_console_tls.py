"""`retry console` with a certificate of its own: nothing in plain text, nothing for foreign hosts, and cookies over TLS alone."""

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
PUBLIC = "https://retry.example.com"


def test_the_console_speaks_tls_and_nothing_else_and_answers_to_its_own_names_alone(deploy: Deploy, tmp_path: Path) -> None:
    pair, deployment, tokens = Pair(tmp_path), deploy({"orders": 1}, shards=1), tmp_path / "people"
    tokens.write_text(f"ada {hashlib.sha256(TOKEN.encode()).hexdigest()} *:viewer\n")
    console = deployment.worker("console")
    console.start(
        *CONSOLE, RETRY_CONSOLE_ADDR="127.0.0.1:0", RETRY_CONSOLE_TOKENS=str(tokens),
        RETRY_CONSOLE_TLS_CERT=str(pair.certificate), RETRY_CONSOLE_TLS_KEY=str(pair.key), RETRY_CONSOLE_URL=PUBLIC,
        RETRY_HTTP_HOSTS="other.example.com",
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
        hosts = ("evil.example", "retry.example.com.evil.example", "console", "retry.example.com", "other.example.com")
        answers = [browser.get(path, headers={"Host": host}) for host in hosts for path in ("/", "/api/now", "/health/ready")]
        # Whoever asks for a host that is not ours gets nothing, signed in or not.
        assert [each.status_code for each in answers] == [400] * 9 + [200] * 6
        assert all("this server has another name" in each.text for each in answers[:9])
        ours = {"Host": "retry.example.com"}
        for origin_of, status in ((PUBLIC, 303), ("https://evil.example", 403), (f"{PUBLIC}.evil.example", 403)):
            posted = browser.post("/sign-in", data={"token": TOKEN}, headers={**ours, "Origin": origin_of})
            assert posted.status_code == status, origin_of
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(origin.replace("https", "http"), timeout=60.0)
    assert TOKEN not in console.log()
