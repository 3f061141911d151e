"""The list of failures as it is used: dense, ordered and narrowed by clicks, assigned from a row, without scripts too."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from retry.clock import wall_ms
from tests.support.browser import PHONE, Open
from tests.support.incident import DATABASE, DECLINED, GATEWAY, WAITING, Incident

pytestmark = pytest.mark.check
LAPTOP = 1440, 900
ROWS_MIN = 12


def test_a_laptop_shows_a_dozen_failures_and_a_phone_their_counts_first(open_page: Open) -> None:
    page = open_page("/failures", size=LAPTOP).page
    boxes = [row.bounding_box() or {} for row in page.locator("tr[data-row]").all()]
    assert (LAPTOP[1] - boxes[0]["y"]) // max(box["height"] for box in boxes) >= ROWS_MIN
    expect(page.get_by_role("navigation", name="Narrow down")).to_be_visible()
    phone = open_page("/failures", size=PHONE).page
    row = phone.locator("tr[data-row]", has_text=GATEWAY.rpartition(".")[2])
    count, what, facets = (phone.locator(each).first.bounding_box() or {} for each in (".count", ".failures .filter", ".facets"))
    assert count["y"] < what["y"] < facets["y"]
    waiting, failure = (row.locator(each).bounding_box() or {} for each in (".waiting", ".what"))
    assert waiting["x"] + waiting["width"] <= failure["x"]
    expect(row.locator(".waiting")).to_have_text(f"{WAITING[GATEWAY]} waiting")


def test_clicks_alone_order_narrow_and_assign_without_scripts(browser: Browser, incident: Incident) -> None:
    context = browser.new_context(base_url=incident.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/failures")
    rows = page.locator("tr[data-row]")
    page.get_by_role("columnheader", name="Waiting").get_by_role("link").click()
    expect(page.get_by_role("columnheader", name="Waiting")).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text(GATEWAY.rpartition(".")[2])
    facets = page.get_by_role("navigation", name="Narrow down")
    facets.get_by_role("link", name=re.compile(r"^orders \d")).click()
    expect(page.locator("#filter")).to_have_value("team:orders")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(DATABASE.rpartition(".")[2])
    page.get_by_role("button", name=re.compile("^Assign to me")).click()
    expect(rows.first.locator(".owner")).to_have_text("local")
    expect(page).to_have_url(f"{incident.url}/failures?q=team%3Aorders&sort=-waiting")
    facets.get_by_role("link", name=re.compile(r"^orders \d")).click()
    expect(page.locator("#filter")).to_have_value("")
    page.locator("tr[data-row]", has_text=DECLINED.rpartition(".")[2]).get_by_role("link", name=re.compile("^Pause")).click()
    expect(page.locator("#name")).to_have_value(incident.payments)
    expect(page.get_by_label("Why", exact=True)).to_have_value(DECLINED)
    context.close()


def test_what_comes_meanwhile_keeps_the_order_and_two_that_look_the_same_can_be_merged(
    open_page: Open, incident: Incident
) -> None:
    page = open_page("/failures?sort=-waiting").page
    one, other = "posting of the order failed", "posting of the order: failed again"
    for n, message in enumerate((one, one, other)):
        incident.fail(incident.orders, "com.acme.orders.PostingFailed", message, n, wall_ms())
    incident.flush()
    offer = page.get_by_role("group", name="These two look the same")
    expect(offer).to_contain_text("com.acme.orders.PostingFailed")
    waiting = [int(text) for text in page.locator("tbody .waiting a").all_inner_texts()]
    assert waiting == sorted(waiting, reverse=True)
    offer.get_by_role("button", name="Merge").click()
    expect(page.get_by_role("heading", name="Merges and splits")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    page.goto("/failures")
    offer.get_by_role("button", name="They differ").click()
    expect(page.locator("tr[data-row]", has_text="PostingFailed")).to_have_count(2)
    expect(offer).to_have_count(0)
