"""What all pages share, in Chromium: times in the reader's zone, a phone's menu, keys that lead to pages, titles that count."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from retry.clock import wall_ms
from tests.support.browser import PHONE, Open, Watched
from tests.support.incident import DATABASE, PARKED, WAITING, Incident

pytestmark = pytest.mark.check
# Five hours and a half before UTC, all the year.
ZONE, AHEAD = "Asia/Kolkata", "GMT+5:30"
_FULL = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.mark.slow
def test_times_are_in_the_zone_of_who_looks_with_utc_beside_them_until_that_is_switched_off(open_page: Open) -> None:
    page = open_page("/audit", timezone_id=ZONE).page
    page.goto("/letters")
    page.locator("tr[data-row] th a").first.click()
    time = page.locator("dl.facts time").first
    expect(time).to_have_text(re.compile(rf"^{_FULL} GMT\+5:30 \(.*\d\d:\d\d(:\d\d)? UTC, .*(ago|in .*|now)\)$"))
    local = time.inner_text()
    page.get_by_role("button", name="Times in UTC").click()
    expect(time).to_have_text(re.compile(rf"^{_FULL} UTC \((.* ago|in .*|now)\)$"))
    shown = [page.evaluate(f"() => Date.parse('{text[:19].replace(' ', 'T')}Z')") for text in (local, time.inner_text())]
    assert shown[0] - shown[1] == 5.5 * 3_600_000
    # It is remembered, by this browser.
    page.goto("/")
    expect(page.locator("#freshness time")).to_have_text(re.compile(rf"^{_FULL} UTC$"))
    page.get_by_role("button", name="Times in my zone").click()
    expect(page.locator("#freshness time")).to_contain_text(AHEAD)


def test_what_is_kept_fresh_stays_in_the_zone_of_who_looks(open_page: Open) -> None:
    page = open_page("/", timezone_id=ZONE).page
    place = page.locator("#freshness")
    expect(place.locator(".badge")).to_have_text("Live")
    first = place.locator("time").inner_text()
    expect(place.locator("time")).not_to_have_text(first)
    expect(place.locator("time")).to_contain_text(AHEAD)


def test_without_scripts_times_are_in_utc_and_the_menu_of_a_phone_opens(browser: Browser, incident: Incident) -> None:
    context = browser.new_context(
        base_url=incident.url, java_script_enabled=False, timezone_id=ZONE, viewport={"width": PHONE[0], "height": PHONE[1]}
    )
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#freshness time")).to_have_text(re.compile(rf"^{_FULL} UTC$"))
    expect(page.locator("#times-button")).not_to_be_visible()
    link = page.get_by_role("link", name="Audit")
    expect(link).not_to_be_visible()
    page.get_by_role("button", name="Menu").click()
    link.click()
    expect(page).to_have_url(f"{incident.url}/audit")
    context.close()


def test_keys_lead_to_every_page_and_open_a_row(open_page: Open, incident: Incident) -> None:
    page = open_page("/").page
    for key, path in (("f", "/failures"), ("l", "/letters"), ("o", "/policies"), ("w", "/workers"), ("n", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(incident.url + path)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("go to Workers")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page).to_have_url(f"{incident.url}/failures")
    page.keyboard.press("j")
    page.locator("main").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/failures/[0-9a-f]+"))


def test_the_title_says_how_many_are_new_and_follows_what_comes(open_page: Open, incident: Incident) -> None:
    page = open_page("/").page
    waiting, parked = sum(WAITING.values()), sum(PARKED.values())
    expect(page).to_have_title(re.compile(rf"^\(\d+ new\) Now: {waiting} waiting, {parked} parked · retry$"))
    incident.fail(incident.orders, DATABASE, "deadlock detected: process 1", 998, wall_ms())
    incident.flush()
    expect(page).to_have_title(re.compile(f"Now: {waiting + 1} waiting, "))


def test_on_a_phone_counts_come_first_and_the_navigation_takes_no_room(browser: Browser, incident: Incident) -> None:
    watched = Watched(browser, incident.url, size=PHONE)
    page = watched.page
    page.goto("/")
    header, figures = page.locator("header").bounding_box(), page.locator(".figures").bounding_box()
    assert header is not None
    assert figures is not None
    assert header["height"] < 120
    assert figures["y"] + figures["height"] < PHONE[1] * 0.75
    watched.close()
