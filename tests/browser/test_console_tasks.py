"""Twelve tasks of an engineer on call take no more clicks, and no more scrolling, than they may.

What each took is printed, which `-s` shows, and left in `console-tasks.md` in the folder of the test.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from retry.clock import wall_ms
from tests.support.browser import Open
from tests.support.console_operator import Operator, render_efforts
from tests.support.incident import Incident

pytestmark = pytest.mark.check

LEDGER, CURRENCY, JUNK = (f"com.acme.pay.{name}" for name in ("LedgerClosed", "WrongCurrency", "TestTraffic"))
# Over 1,000 letters their number is asked for; one of the wrong ones is edited, the others are patched.
LETTERS = {LEDGER: 1_005, CURRENCY: 101, JUNK: 8}
# How many clicks each may take.
CLICKS_MAX = {
    "find what is new": 0, "read the stack": 1, "pause": 2, "whose is it": 0, "ramp": 3, "watch it": 0, "hold it": 1,
    "discard junk": 3, "undo that": 2, "edit one and retry": 3, "patch a hundred": 3, "what did we do last night": 1,
}  # fmt: skip
SCREENS_MAX = 0.5
_DOCS = Path(__file__).parents[2] / "docs/evidence/console.md"


def fail(incident: Incident, page: Page) -> None:
    """Letters of three more failures, which the console has."""
    for n, (exception, count) in enumerate(LETTERS.items(), 2):
        for order in range(count):
            incident.fail(incident.payments, exception, f"order {order} cannot be booked", 10_000 * n + order, wall_ms())
    incident.flush()
    for exception, count in LETTERS.items():
        page.goto(f"/letters?q={quote(f'exception:{exception}')}")
        expect(page.locator(".count strong")).to_have_text(f"{count:,}")


def open_failure(page: Page, exception: str) -> None:
    """Go to where a task begins."""
    page.goto(f"/failures?q={quote(f'exception:{exception}')}")
    page.locator("tr[data-row] th a").first.click()
    expect(page.locator("h1")).to_contain_text(exception.rpartition(".")[2])


def type_next(operator: Operator, field: Locator, text: str) -> None:
    """Type what the page asks for next, without a click into the field."""
    expect(field).to_be_focused()
    operator.type(field, text)


def has_come_to(page: Page, status: str) -> None:
    """The page of an action is shown, and says so."""
    expect(page).to_have_url(re.compile(r"/actions/[0-9a-f]{16}"))
    expect(page.locator("#live .badge").first).to_have_text(status)


def find_button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name)


def find_link(page: Page, name: str) -> Locator:
    return page.get_by_role("link", name=name)


def look_and_pause(operator: Operator, incident: Incident) -> None:
    """Find what is new, read its stack, pause, and ask whose it is."""
    page = operator.page
    newest = page.locator("section", has=page.get_by_role("heading", name="What is new")).locator("a", has_text="LedgerClosed")
    page.goto("/")
    with operator.task("find what is new"):
        operator.see(newest)
    with operator.task("read the stack"):
        operator.click(newest)
        operator.see(page.locator(".stack-trace .own").first)
    find_button(page, "Assign to me").click()
    expect(page.locator(".about .facts")).to_contain_text("local")
    with operator.task("pause"):
        operator.click(find_button(page, "Pause…"))
        operator.click(find_button(page, "Pause it"))
        operator.see(page.locator("#live", has_text=incident.payments))
    find_button(page, "Resume").click()
    expect(page.locator("#live")).to_contain_text("Nothing is paused")
    page.goto("/")
    with operator.task("whose is it"):
        operator.see(page.locator("li", has_text=re.compile("local is on .*LedgerClosed")))


def ramp_and_hold(operator: Operator, incident: Incident) -> None:
    """Retry in steps, watch them, and hold them."""
    page = operator.page
    open_failure(page, LEDGER)
    with operator.task("ramp"):
        operator.click(find_link(page, "Retry 1,005 letters"))
        operator.click(find_button(page, "Show what would happen"))
        type_next(operator, page.get_by_label("Type the number of letters"), "1005")
        operator.click(find_button(page, "Retry 1,005 letters"))
        has_come_to(page, "running")
    page.goto("/failures")
    # Consumers read no more than this step, so that it still runs when it is to be held.
    with incident.consuming(), operator.task("watch it"):
        operator.see(page.locator("#ramps", has_text=re.compile(r"step \d of \d\. [1-9]\d* recovered, 0 failed again")))
    with operator.task("hold it"):
        operator.click(find_button(page, "Hold the retry"))
        has_come_to(page, "on hold")
    find_button(page, "Cancel").click()
    has_come_to(page, "cancelled")


def discard_and_undo(operator: Operator) -> None:
    """Discard letters, and bring them back."""
    page = operator.page
    page.goto("/failures")
    with operator.task("discard junk"):
        operator.click(page.locator("tr[data-row]", has_text="TestTraffic").get_by_role("link", name="Discard"))
        operator.click(find_button(page, "Show what would happen"))
        operator.click(find_button(page, "Discard 8 letters"))
        has_come_to(page, "done")
    with operator.task("undo that"):
        operator.click(find_button(page, "Undo"))
        operator.click(find_button(page, "Undo 8 letters"))
        has_come_to(page, "done")


def edit_and_patch(operator: Operator) -> None:
    """Edit one letter and have it retried, and patch all others."""
    page = operator.page
    open_failure(page, CURRENCY)
    with operator.task("edit one and retry"):
        operator.click(find_link(page, "Open the letter"))
        operator.click(find_button(page, "Edit and retry…"))
        value = page.get_by_label("Value, as JSON")
        type_next(operator, value, json.dumps(json.loads(value.input_value()) | {"amount": 17}))
        operator.click(find_button(page, "Save and retry"))
        has_come_to(page, "done")
    open_failure(page, CURRENCY)
    with operator.task("patch a hundred"):
        operator.click(find_link(page, "Patch…"))
        type_next(operator, page.get_by_label("JSON merge patch of each value"), '{"currency": "EUR"}')
        operator.click(find_button(page, "Show what would happen"))
        operator.click(find_button(page, "Patch 100 letters"))
        has_come_to(page, "done")


def test_twelve_tasks_take_no_more_clicks_than_they_may(open_page: Open, incident: Incident, tmp_path: Path) -> None:
    page = open_page("/").page
    operator = Operator(page)
    fail(incident, page)
    look_and_pause(operator, incident)
    ramp_and_hold(operator, incident)
    discard_and_undo(operator)
    edit_and_patch(operator)
    page.goto("/")
    with operator.task("what did we do last night"):
        operator.click(find_link(page, "Audit"))
        operator.see(page.locator("tr[data-row]", has_text="patched 100 letters"))
        operator.see(page.locator("tr[data-row]", has_text="paused").last)

    table = render_efforts(operator.efforts)
    print(f"\n{table}")
    (tmp_path / "console-tasks.md").write_text(table)
    assert all(each.screens <= SCREENS_MAX for each in operator.efforts.values()), table
    over = {name: each.clicks for name, each in operator.efforts.items() if each.clicks > CLICKS_MAX[name]}
    assert (list(operator.efforts), over) == (list(CLICKS_MAX), {}), table
    told = dict(re.findall(r"^\| ([a-z ]+) \| \d+ \| (\d+) \|", _DOCS.read_text(), re.MULTILINE))
    assert {name: told.get(name) for name in CLICKS_MAX} == {name: str(each.clicks) for name, each in operator.efforts.items()}
