"""Two consoles behind one address: whoever has signed in at one is known to both, also after either was started again."""

from __future__ import annotations

from contextlib import closing
from itertools import cycle
from pathlib import Path

import httpx2
import pytest

from retry.console.web.rights import Granted, Role, make_token
from tests.acceptance.test_console_shown import FAILED, two_teams
from tests.conftest import Deploy
from tests.support.console import csrf_of
from tests.support.console_process import ConsoleProcess
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.proxy import Proxy

pytestmark = pytest.mark.check


class Balancer:
    """A browser whose every request comes to the next console, through one address, as a proxy in front of them has it."""

    def __init__(self, proxy: Proxy, *consoles: ConsoleProcess) -> None:
        self._proxy, self._consoles, self._turns = proxy, consoles, cycle(range(len(consoles)))
        self.origin = f"http://127.0.0.1:{proxy.port}"
        # A connection that is kept would stay with one of them.
        self.client = httpx2.Client(base_url=self.origin, timeout=60.0, headers={"Connection": "close"})

    def next(self) -> ConsoleProcess:
        console = self._consoles[next(self._turns)]
        self._proxy.target_port = console.process.port()
        return console

    def get(self, path: str) -> httpx2.Response:
        self.next()
        return self.client.get(path)

    def post(self, path: str, **fields: str) -> httpx2.Response:
        self.next()
        return self.client.post(path, data=fields, headers={"Origin": self.origin})

    def close(self) -> None:
        self.client.close()


def test_sign_ins_forms_and_live_pages_hold_at_both_and_through_restarts(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy({"slow": 1, "given-up": 1}, shards=2)
    slow, _ = two_teams(deployment)
    token, line = make_token("ada", Granted({"payments": Role.OPERATOR}))
    people, key = tmp_path / "people", tmp_path / "key"
    people.write_text(line)
    key.write_text("k" * 64)
    files = {"RETRY_CONSOLE_TOKENS": str(people), "RETRY_CONSOLE_SESSION_KEY": str(key)}
    deployment.worker().start().await_ready()
    sender = Sender(deployment.bootstrap_servers)
    sender.send(slow, b"key", b"{}", FAILED)
    sender.finish()
    one, other = (ConsoleProcess(deployment, name, **files).start() for name in ("one", "other"))
    with Proxy() as proxy, closing(Balancer(proxy, one, other)) as browser:
        assert browser.post("/sign-in", token=token).status_code == 303
        pages = [browser.get("/pauses") for _ in range(4)]
        assert [page.status_code for page in pages] == [200] * 4
        csrf = csrf_of(pages[0].text)
        for what in ("pauses", "pauses/resume"):
            form = {"scope": "team", "name": "payments"} if what == "pauses" else {"paused": "team/payments"}
            assert browser.post(f"/{what}", csrf=csrf, **form).status_code == 303
            shown = "team payments" if what == "pauses" else "Nothing is paused."
            # What one of them has written the other sees in a moment.
            await_that("both show it", lambda shown=shown: all(shown in browser.get("/pauses").text for _ in range(2)))
        for console in (one, other):
            assert console.process.terminate() < 30
            console.start()
            assert all("ada" in browser.get("/").text for _ in range(4)), "nobody has to sign in again"
            for _ in range(2):
                browser.next()
                with browser.client.stream("GET", "/live?part=now&of=") as stream:
                    assert stream.status_code == 200
                    assert any("hx-partial" in line for line in stream.iter_lines())
        assert browser.post("/sign-out", csrf=csrf).status_code == 303
        assert [browser.get("/").status_code for _ in range(2)] == [303] * 2
