"""No text that a record, a note or a reason brings can run in the console, reach out of it, or change what stands beside it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Open
from tests.support.incident import HOSTILE

pytestmark = pytest.mark.check

INCIDENT = {"hostile": True}
# Whatever of these stands in a page was not written by a template.
_FOREIGN = """() => [
  ...document.querySelectorAll("main :is(script, style, img, iframe, object, embed, base, link, meta)"),
  ...[...document.querySelectorAll("main *")].filter(each => [...each.attributes].some(({name, value}) =>
    name.startsWith("on") || name.startsWith("hx-on")
    || /^\\s*(javascript|data|vbscript):/i.test(value) && /^(href|src|action|formaction|xlink:href)$/.test(name))),
].map(each => each.outerHTML.slice(0, 200))"""
_INVISIBLE = "() => /[\\u0000-\\u0008\\u000b-\\u001f\\u200b\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)"


def harmless(page: Page) -> None:
    """Nothing has run, nothing is there that no template has, and all that the page says can be seen."""
    # One that has just begun to load has no title yet.
    expect(page).to_have_title(re.compile("· retry$"))
    page.wait_for_load_state()
    assert page.evaluate(_FOREIGN) == []
    assert not page.evaluate(_INVISIBLE)
    expect(page.get_by_role("navigation", name="Pages", exact=True)).to_be_visible()


def list_row_links(page: Page, path: str, most: int) -> list[str]:
    """List where the rows of a page lead."""
    page.goto(path)
    harmless(page)
    found = [link.get_attribute("href") or "" for link in page.locator("tr[data-row] th a").all()]
    return list(dict.fromkeys(found))[:most]


@pytest.mark.slow
def test_no_text_of_a_record_runs(open_page: Open) -> None:
    page = open_page("/").page
    harmless(page)
    groups = list_row_links(page, "/failures", len(HOSTILE) + 5)
    letters = list_row_links(page, "/letters", 2 * len(HOSTILE) + 50)
    assert len(groups) >= len(HOSTILE) - 2
    assert len(letters) >= 2 * len(HOSTILE)
    for path in groups + letters:
        page.goto(path)
        harmless(page)


def test_no_revealed_payload_runs(open_page: Open) -> None:
    page = open_page("/").page
    for path in list_row_links(page, "/letters?q=team%3Aorders+-exception%3Aorg*", len(HOSTILE)):
        page.goto(path)
        page.get_by_role("button", name="Reveal").click()
        harmless(page)


@pytest.mark.slow
def test_no_note_and_no_reason_runs(open_page: Open) -> None:
    page = open_page("/").page
    (group,) = list_row_links(page, "/failures?q=exception%3Acom.acme.pay.CardDeclined", 1)
    for text in HOSTILE:
        page.goto(group)
        page.get_by_role("button", name="Owner, ticket and note").click()
        page.get_by_label("Owner").fill(text[:100])
        page.get_by_label("Note").fill(text)
        page.get_by_role("button", name="Save").click()
        harmless(page)
    for path in (group, "/failures"):
        page.goto(path)
        harmless(page)
    page.goto("/pauses")
    page.locator("#name").fill("orders")
    page.get_by_label("Why").first.fill("".join(HOSTILE[:4]))
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#live")).to_contain_text("ran")
    for path in ("/pauses", "/", "/audit"):
        page.goto(path)
        harmless(page)
