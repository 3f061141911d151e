"""The console is for everybody: light and dark, on a wide screen and on a phone, by keyboard alone, without scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from retry.clock import wall_ms
from retry.console.web.rights import Granted, Role, make_token
from tests.support.browser import EACH_LOOK, Look, Open, Watched
from tests.support.incident import DATABASE, DECLINED, GATEWAY, PARKED, WAITING, Incident

pytestmark = pytest.mark.check


def places(page: Page) -> list[str]:
    """Every page that the navigation leads to, and one of each kind that a row leads to."""
    paths = [link.get_attribute("href") or "" for link in page.locator("nav[aria-label=Pages] a").all()]
    for path in ("/failures", "/letters", "/letters?q=state%3Aparked"):
        page.goto(path)
        paths += [path, page.locator("tr[data-row] th a").first.get_attribute("href") or ""]
    paths += ["/schedules/history", "/tasks/history", "/timers/history", "/audit?by=nobody"]
    return list(dict.fromkeys([*paths, "/act", "/letters?q=nonsense", "/letters?q=team%3Anobody", "/nowhere"]))


def find_departed(page: Page, topic: str) -> str:
    """The page of a letter of a topic that has been retried since."""
    for offset in range(100):
        page.goto(f"/letters/{topic}/0/{offset}")
        if page.locator("h1 .badge", has_text="left").count():
            return f"/letters/{topic}/0/{offset}"
    raise AssertionError(f"no letter of {topic}/0 has left")


@pytest.mark.parametrize("look", EACH_LOOK)
def test_nobody_is_kept_out(browser: Browser, incident: Incident, look: Look) -> None:
    watched = Watched(browser, incident.url, *look)
    watched.page.goto("/")
    looked_at = [*places(watched.page), find_departed(watched.page, incident.payments)]
    assert len(looked_at) >= 17
    for path in looked_at:
        watched.page.goto(path)
        assert (path, watched.violations(), watched.refused()) == (path, [], [])
    # A browser says so itself where a page is none, or a filter cannot be read.
    assert [each for each in watched.troubles if "status of 40" not in each] == []
    watched.close()


@pytest.mark.slow
def test_every_page_says_how_old_it_is_an_hour_later_too(browser: Browser, incident: Incident) -> None:
    watched = Watched(browser, incident.url)
    page, alone = watched.page, []
    page.goto("/")
    for path in places(page):
        page.goto(path)
        if page.locator("#stream").count():
            expect(page.locator("#freshness .badge")).to_have_text("Live")
        else:
            alone.append(path)
    assert {"/act", "/policies", "/schedules", "/tasks", "/timers", "/nowhere"} < set(alone)
    page.clock.install()
    for path in alone:
        page.goto(path)
        expect(page.locator("#freshness")).to_contain_text("This page does not refresh itself: load it again")
        page.clock.fast_forward("01:00:00")
        expect(page.locator("#freshness")).to_contain_text("(1 h ago)")
    watched.close()


def test_a_page_that_is_not_kept_fresh_any_more_says_so(browser: Browser, incident: Incident) -> None:
    watched = Watched(browser, incident.url)
    page, told = watched.page, watched.page.locator("#freshness")
    page.route("**/live?*", lambda asked: asked.abort())
    page.goto("/failures")
    expect(told).to_contain_text(re.compile(r"Not live As of .*\): load this page again"))
    page.unroute("**/live?*")
    page.reload()
    expect(told.locator(".badge")).to_have_text("Live")
    port = incident.console.port()
    incident.console.kill()
    expect(told).to_contain_text(re.compile(r"Not live As of .*\): the console does not answer"))
    incident.console.start("-m", "retry", "console", RETRY_CONSOLE_ADDR=f"127.0.0.1:{port}").await_ready()
    expect(told.locator(".badge")).to_have_text("Live")
    watched.close()


def test_a_page_whose_reader_signs_out_elsewhere_is_not_called_live_any_more(
    browser: Browser, incident: Incident, tmp_path: Path
) -> None:
    token, line = make_token("ada", Granted({"payments": Role.VIEWER}))
    (tmp_path / "tokens").write_text(line + "\n")
    port = incident.console.port()
    address, tokens = f"127.0.0.1:{port}", str(tmp_path / "tokens")
    incident.console.kill()
    incident.console.start("-m", "retry", "console", RETRY_CONSOLE_ADDR=address, RETRY_CONSOLE_TOKENS=tokens).await_ready()
    watched = Watched(browser, incident.url)
    page, told = watched.page, watched.page.locator("#freshness")
    page.goto("/failures")
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    expect(told.locator(".badge")).to_have_text("Live")
    elsewhere = page.context.new_page()
    elsewhere.goto(f"{incident.url}/failures")
    elsewhere.get_by_role("button", name="Sign out").click()
    expect(told).to_contain_text(re.compile(r"Not live As of .*\): you are signed out"))
    assert float(page.locator("#live").evaluate("each => getComputedStyle(each).opacity")) < 1
    watched.close()
    incident.console.kill()
    incident.console.start("-m", "retry", "console", RETRY_CONSOLE_ADDR=address).await_ready()


def test_a_page_whose_scripts_come_slowly_is_kept_fresh(browser: Browser, incident: Incident) -> None:
    watched = Watched(browser, incident.url)
    page = watched.page

    def late(asked: Route) -> None:
        # Whatever htmx would do as soon as it may, it has done before this script is there.
        page.wait_for_function("() => window.htmx !== undefined")
        page.evaluate("() => new Promise(done => setTimeout(() => setTimeout(done)))")
        asked.continue_()

    page.route("**/hx-sse.min.js", late)
    page.goto("/failures")
    expect(page.locator("#freshness .badge")).to_have_text("Live")
    watched.close()


def test_now_says_what_there_is(open_page: Open) -> None:
    page = open_page("/").page
    waiting, parked = sum(WAITING.values()), sum(PARKED.values())
    expect(page.locator(".sentence")).to_contain_text(f"{waiting} wait, {parked} are parked")
    expect(page.get_by_role("heading", name="Due in the next 24 hours")).to_be_visible()
    # A picture is drawn from its table, and the table says the same.
    expect(page.locator("figure.chart canvas").first).to_be_visible()
    page.get_by_text("As a table").first.click()
    told = [int(cell.get_attribute("data-y") or 0) for cell in page.locator("table[data-series]").first.locator("[data-y]").all()]
    assert sum(told) == waiting


def test_filters_are_completed_and_what_excludes_all_is_marked(open_page: Open) -> None:
    page = open_page("/letters").page
    line = page.locator("#filter")
    line.press_sequentially("team:pay")
    expect(page.get_by_role("option").first).to_have_text("team:payments")
    line.press("ArrowDown")
    line.press("Enter")
    expect(line).to_have_value("team:payments")
    line.press("Enter")
    expect(page.locator(".count")).to_contain_text(f"{WAITING[GATEWAY] + PARKED[DECLINED]} letters match")
    line.fill("team:payments exception:NoSuchThing")
    line.press("Enter")
    expect(page.locator("mark")).to_have_text("exception:NoSuchThing")


def test_a_filter_on_payloads_can_be_stopped_until_it_says_how_far_it_looked(browser: Browser, incident: Incident) -> None:
    address = "/letters?q=team%3Apayments+value.%24.amount%3D21"
    context = browser.new_context(base_url=incident.url, java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    expect(page.locator(".looked")).to_contain_text("Payloads were looked into: ")
    expect(page.locator("tr[data-row]")).to_have_count(2)
    expect(page.get_by_role("link", name="Stop looking")).not_to_be_visible()
    context.close()


def test_the_keyboard_alone_goes_from_a_filter_to_the_page_of_an_action(open_page: Open, incident: Incident) -> None:
    page = open_page("/letters").page
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("team:orders")
    page.keyboard.press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(WAITING[DATABASE])
    for key in "jjkxjx":
        page.keyboard.press(key)
    rows = page.locator("tr[data-row]")
    expect(rows.nth(1)).to_have_attribute("aria-current", "true")
    expect(rows.nth(0).get_by_role("checkbox")).to_be_checked()
    expect(rows.nth(1).get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("a")
    expect(page.get_by_text("2 letters chosen")).to_be_visible()
    page.go_back()
    page.keyboard.press("j")
    named = page.locator("tr[aria-current=true]").get_attribute("data-name") or ""
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{incident.url}/letters/{named}")
    page.keyboard.press("a")
    expect(page.get_by_text("1 letter chosen")).to_be_visible()


def test_what_comes_meanwhile_is_shown_and_leaves_focus_and_input(open_page: Open, incident: Incident) -> None:
    page = open_page("/letters?q=team%3Aorders").page
    rows, line = page.locator("tr[data-row]"), page.locator("#filter")
    before = rows.count()
    rows.nth(2).get_by_role("checkbox").check()
    line.focus()
    line.press("End")
    line.press_sequentially(" state:wai")
    incident.fail(incident.orders, DATABASE, "deadlock detected: process 1", 999, wall_ms())
    incident.flush()
    expect(rows).to_have_count(before + 1)
    expect(line).to_be_focused()
    expect(line).to_have_value("team:orders state:wai")
    expect(rows.nth(2).get_by_role("checkbox")).to_be_checked()


def test_pages_work_without_scripts(browser: Browser, incident: Incident) -> None:
    context = browser.new_context(base_url=incident.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/letters")
    page.locator("#filter").fill("team:orders")
    page.get_by_role("button", name="Show").click()
    page.locator("tr[data-row]").first.get_by_role("checkbox").check()
    page.get_by_role("button", name="Act on selected").click()
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.locator("#blast")).to_have_text("1 letter to retry")
    page.get_by_role("button", name="Leave them alone").click()
    expect(page.get_by_role("heading", name="Letters")).to_be_visible()
    context.close()
