"""Signing in, and the pages of a console that has nothing to show yet: what everybody sees first. No broker is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from retry.console.web.rights import Granted, Role, make_token
from tests.support.browser import EACH_LOOK, Look, Watched
from tests.support.process import WorkerProcess, await_that

pytestmark = pytest.mark.check

TOKEN, LINE = make_token("ada", Granted({"payments": Role.OPERATOR}))
PAGES = (
    "/", "/failures", "/letters", "/act", "/actions", "/pauses", "/policies", "/schedules", "/tasks", "/timers", "/audit",
    "/failures/f00d", "/letters/parked/0/1", "/actions/00000000000000aa",
)  # fmt: skip


# The page of a console that loads looks again by itself every two seconds, in which a starved core has not looked at all of it.
_STAYS = """const later = window.setTimeout;
window.setTimeout = (call, ms, ...given) => ms === 2000 ? 0 : later(call, ms, ...given);"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console whose brokers are away since before it was started."""
    folder = tmp_path_factory.mktemp("away")
    (folder / "tokens").write_text(LINE + "\n")
    environ = {
        "RETRY_BOOTSTRAP_SERVERS": "127.0.0.1:1", "RETRY_CONSOLE_ADDR": "127.0.0.1:0",
        "RETRY_CONSOLE_TOKENS": str(folder / "tokens"), "RETRY_DATA_DIR": str(folder / "data"),
    }  # fmt: skip
    console = WorkerProcess("console", folder, environ).start("-m", "retry", "console")
    await_that("it answers", lambda: console.get("/health/live")[0] == 200)
    yield f"http://127.0.0.1:{console.port()}"
    console.kill()


def test_who_has_a_token_signs_in_gets_where_they_wanted_and_signs_out(browser: Browser, url: str) -> None:
    watched = Watched(browser, url)
    page = watched.page
    page.goto("/letters?q=team%3Apayments")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Token").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This token is not valid; retry console token makes one.")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{url}/letters?q=team%3Apayments")
    expect(page.locator(".who")).to_contain_text("ada")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto("/letters")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    watched.close()


@pytest.mark.parametrize("look", EACH_LOOK)
def test_sign_in_and_loading_keep_nobody_out(browser: Browser, url: str, look: Look) -> None:
    watched = Watched(browser, url, *look)
    page = watched.page
    page.add_init_script(_STAYS)
    page.goto("/")
    assert (watched.violations(), watched.refused()) == ([], [])
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(".who")).to_contain_text("ada")
    for path in PAGES:
        page.goto(path)
        expect(page.locator("#freshness")).to_contain_text("Loading The topics are being read: 0 % so far.")
        expect(page.get_by_role("heading", level=1)).to_have_text("Policies" if path == "/policies" else "Loading")
        assert (path, watched.violations(), watched.refused()) == (path, [], [])
    # A browser says so itself where there is no page yet.
    assert [each for each in watched.troubles if "status of 503" not in each] == []
    watched.close()
