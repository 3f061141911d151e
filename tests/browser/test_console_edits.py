"""A letter is edited on its page and retried, by a real worker: two clicks from the page, checked while it is typed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from retry.clock import wall_ms
from tests.support.browser import EACH_LOOK, Look, Open, Watched
from tests.support.incident import DECLINED, Incident
from tests.support.reading import COMMITTED, read

pytestmark = pytest.mark.check

_NUMBERS = itertools.count(50_000)
Fail = Callable[[], str]


@pytest.fixture
def fail(incident: Incident, open_page: Open) -> Fail:
    """A letter of orders that waits for half an hour, and the filter that means it alone; the console has it."""

    def make() -> str:
        n = next(_NUMBERS)
        incident.fail(incident.orders, f"com.acme.orders.Edited{n}", f"order {n} has none", n, wall_ms())
        incident.flush()
        query = f"exception:com.acme.orders.Edited{n}"
        shown = open_page(f"/letters?q={quote(query)}")
        expect(shown.page.locator(".count strong")).to_have_text("1")
        return query

    return make


def open_letter(page: Page, query: str) -> None:
    page.goto(f"/letters?q={quote(query)}")
    page.locator("tr[data-row] th a").first.click()


def test_two_clicks_edit_a_letter_that_waits_and_have_it_retried(open_page: Open, incident: Incident, fail: Fail) -> None:
    page, query = open_page("/").page, fail()
    open_letter(page, query)
    page.get_by_role("button", name="Edit and retry").click()
    area = page.get_by_label("Value, as JSON")
    expect(area).to_be_focused()
    typed = area.input_value()
    assert '\n  "amount": ' in typed
    area.fill(re.sub(r'"amount": \d+', '"amount": oops', typed))
    expect(page.locator("#difference")).to_contain_text("Line 3, column 13: this is not JSON")
    expect(page.locator(".editor .wrong")).to_contain_text("oops")
    area.fill(re.sub(r'"amount": \d+', '"amount": 4711.50', typed))
    expect(page.locator("#difference")).to_contain_text("2 lines differ; it can be saved")
    expect(page.locator(".difference .added")).to_have_text(re.compile(r'\+ +"amount": 4711\.50,'))
    page.get_by_label("Why, in your words").fill("it was too little")
    page.get_by_role("button", name="Save and retry").click()
    expect(page).to_have_url(re.compile("/actions/[0-9a-f]{16}(#edit)?$"))
    expect(page.locator("#live .badge").first).to_have_text("done")
    page.goto(f"/letters?q={quote(query)}")
    expect(page.locator("tr[data-row]")).to_have_count(0)
    target = incident.deployment.retry_of(incident.orders)
    values = [each.value or b"" for each in read(incident.deployment.bootstrap_servers, [target], COMMITTED)]
    assert [json.loads(value)["amount"] for value in values if b"4711.50" in value] == [4711.5]


def test_a_letter_that_is_parked_is_edited_without_scripts(browser: Browser, incident: Incident) -> None:
    watched = Watched(browser, incident.url, java_script_enabled=False)
    page = watched.page
    open_letter(page, f"exception:{DECLINED} state:parked")
    page.get_by_role("button", name="Edit and retry").click()
    area = page.get_by_label("Value, as JSON")
    expect(area).to_be_focused()
    typed = area.input_value()
    area.fill(typed.replace("Jane Doe", "Jane <b>"))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".difference .added")).to_contain_text('"name": "Jane <b>"')
    assert page.get_by_label("Value, as JSON").input_value() == typed.replace("Jane Doe", "Jane <b>")
    page.get_by_role("button", name="Save and retry").click()
    expect(page).to_have_url(re.compile("/actions/[0-9a-f]{16}(#edit)?$"))
    watched.close()


@pytest.mark.parametrize("look", EACH_LOOK)
def test_nobody_is_kept_out_of_the_editor(browser: Browser, incident: Incident, look: Look) -> None:
    watched = Watched(browser, incident.url, *look)
    page = watched.page
    open_letter(page, f"exception:{DECLINED} state:parked")
    page.get_by_role("button", name="Edit and retry").click()
    area = page.get_by_label("Value, as JSON")
    expect(area).to_be_visible()
    assert (watched.violations(), watched.refused()) == ([], [])
    area.fill(area.input_value().replace("amount", "sum"))
    expect(page.locator("#difference")).to_contain_text("it can be saved")
    assert (watched.violations(), watched.refused()) == ([], [])
    area.fill("{")
    expect(page.locator("#difference")).to_contain_text("not JSON")
    assert (watched.violations(), watched.refused(), watched.troubles) == ([], [], [])
    watched.close()
