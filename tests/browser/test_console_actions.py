"""What can be done in the console is done, by a real worker, and is seen to be done: each action, note, pause and search."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from retry.clock import Deadline, wall_ms
from tests.support.browser import EACH_LOOK, Look, Open, Watched
from tests.support.incident import DATABASE, DECLINED, GATEWAY, NET, PARKED, WAITING, Incident
from tests.support.reading import COMMITTED, read

pytestmark = pytest.mark.check

_FIRST = itertools.count(10_000, 10_000)
FQCN = "kafka_dlt-exception-fqcn"

Fail = Callable[[str, int], str]


@pytest.fixture
def fail(incident: Incident, open_page: Open) -> Fail:
    """Letters of orders that nobody else asks for, and the filter that means them; the console has them."""

    def make(name: str, count: int) -> str:
        # Each is of an original record that no other test has a letter of.
        first = next(_FIRST)
        for n in range(first, first + count):
            incident.fail(incident.orders, f"com.acme.orders.{name}", f"order {n} has none", n, wall_ms())
        incident.flush()
        query = f"exception:com.acme.orders.{name}"
        shown = open_page(f"/letters?q={quote(query)}")
        expect(shown.page.locator(".count strong")).to_have_text(f"{count:,}")
        return query

    return make


def ask(page: Page, query: str, kind: str, fields: dict[str, str] | None = None, counted: int = 1) -> None:
    """The form of an action, filled; then its preview, which says how many letters it means."""
    page.goto(f"/act?q={quote(query)}")
    page.locator(f"input[name=kind][value={kind}]").check()
    page.evaluate("() => document.querySelectorAll('form details').forEach(each => each.open = true)")
    for name, text in (fields or {}).items():
        box = page.locator(f"[name={name}]")
        if box.evaluate("each => each.tagName") == "SELECT":
            box.select_option(text)
        else:
            box.fill(text)
    page.get_by_label("Why, in your words").fill(f"to see what {kind} does")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.locator("#blast")).to_contain_text(f"{counted} letter")


def start(page: Page, kind: str) -> None:
    """The preview's button, and the action's own page once all is done."""
    page.get_by_role("button", name=f"{kind.capitalize()} ").click()
    expect(page).to_have_url(re.compile("/actions/"))
    expect(page.locator("#live .badge").first).to_have_text("done")


def comes(page: Page, path: str, text: str) -> None:
    """A page that does not refresh itself says so before long."""
    deadline = Deadline(180)
    while text not in page.goto(path).text():  # type: ignore[union-attr]
        assert not deadline.has_passed(), f"{path} does not say {text!r}"


def shows(page: Page, query: str, count: int) -> None:
    """The console shows so many letters of a filter, by itself."""
    page.goto(f"/letters?q={quote(query)}")
    expect(page.locator("tr[data-row]")).to_have_count(count)


@pytest.mark.slow
def test_an_incident_is_followed_from_its_failures_to_the_last_recovery(open_page: Open, incident: Incident) -> None:
    page = open_page("/").page
    page.get_by_role("link", name="Failures").first.click()
    page.locator('tr[data-row] a[href^="/failures/"]', has_text="GatewayTimeout").first.click()
    page.get_by_role("button", name="Owner, ticket and note").click()
    page.get_by_label("Owner").fill("ada")
    page.get_by_label("Note").fill("the gateway is down")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".note")).to_have_text("the gateway is down")
    page.locator("[data-act=all]").click()
    page.get_by_text("In steps, a few letters first").click()
    page.locator("#ramp").select_option("yes")
    page.locator("#settle").fill("200ms")
    page.get_by_label("Why, in your words").fill("the gateway is back")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.locator("#blast")).to_have_text(f"{WAITING[GATEWAY]} letters to retry")
    with incident.consuming():
        page.get_by_role("button", name="Retry ").click()
        # Whoever looks at something else sees how far it has come, and can hold it from there.
        page.get_by_role("link", name="Letters").first.click()
        expect(page.locator("#ramps")).to_contain_text(f"Retry of {WAITING[GATEWAY]} letters runs")
        page.get_by_role("button", name="Hold the retry").click()
        expect(page.locator("#live .badge").first).to_have_text("on hold")
        page.get_by_role("button", name="Go on with the retry").click()
        expect(page.locator("tbody tr").last).to_contain_text("passed")
        expect(page.locator("#outcome")).to_have_text(f"{WAITING[GATEWAY]} recovered, 0 failed again, 0 not known yet.")
    expect(page.locator("#ramps")).to_have_text("")
    expect(page.locator("#live")).to_contain_text(f"{WAITING[GATEWAY]} of {WAITING[GATEWAY]} done")
    shows(page, f"exception:{GATEWAY}", 0)
    comes(page, "/audit", "the gateway is back")


def test_letters_are_patched_postponed_parked_and_redirected(open_page: Open, incident: Incident, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Moved", 3)
    ask(page, query, "patch", {"merge_patch": '{"amount": 17}'}, 3)
    expect(page.locator(".diff").first).to_contain_text("17")
    start(page, "patch")
    ask(page, query, "retry", {"postpone": "1h"}, 3)
    start(page, "retry")
    ask(page, query, "park", counted=3)
    start(page, "park")
    shows(page, f"{query} state:parked", 3)
    page.locator("tr[data-row] th a").first.click()
    expect(page.get_by_text("by_operator").first).to_be_visible()
    elsewhere = incident.deployment.retry_of(incident.payments)
    ask(page, f"{query} state:parked", "redirect", {"to": elsewhere}, 3)
    expect(page.locator("#blast")).to_contain_text(f"to {elsewhere}")
    start(page, "redirect")
    shows(page, query, 0)
    sent = read(incident.deployment.bootstrap_servers, [elsewhere], COMMITTED)
    assert sorted(json.loads(each.value or b"")["amount"] for each in sent if b"Moved" in dict(each.headers)[FQCN]) == [17] * 3


def test_a_letter_is_edited(open_page: Open, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Wrong", 1)
    ask(page, query, "edit", {"set_headers": "x-mended: yes"})
    page.get_by_role("button", name="Leave them alone").click()
    page.goto(f"/act?q={quote(query)}")
    page.locator("input[name=kind][value=edit]").check()
    page.get_by_label("Set headers").fill("x-mended: yes")
    page.get_by_label("give it a new value").check()
    page.get_by_role("textbox", name="New value").fill('{"order": "mended"}')
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.locator(".diff")).to_contain_text('"mended"')
    start(page, "edit")
    page.goto(f"/letters?q={quote(query)}")
    page.locator("tr[data-row] th a").click()
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_label("Value, as JSON")).to_have_value(re.compile('"order": "mended"'))
    expect(page.get_by_role("region", name="Headers others")).to_contain_text("x-mended")


def test_over_a_thousand_letters_their_number_is_typed_and_they_go_in_steps(open_page: Open, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Many", 1_001)
    page.goto(f"/act?q={quote(query)}")
    page.get_by_text("In steps, a few letters first").click()
    page.get_by_label("Wait where no consumer group is named").fill("10m")
    page.get_by_role("button", name="Show what would happen").click()
    expect(page.locator("#blast")).to_have_text("1,001 letters to retry")
    expect(page.locator("main")).to_contain_text("In steps of 1, 2, 5, 20, 50, 200")
    preview, number = page.url, page.get_by_label("Type the number of letters: 1,001")
    for size in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.reload()
        expect(number).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("button", name="Retry 1,001 letters")).to_be_in_viewport(ratio=1)
    expect(page.get_by_text("+981 more: show all")).to_be_visible()
    page.get_by_role("button", name="Retry 1,001 letters").click()
    # A browser does not send what is asked for and empty.
    expect(number).to_be_focused()
    expect(page).to_have_url(preview)
    number.fill("1001")
    page.get_by_role("button", name="Retry 1,001 letters").click()
    expect(page.locator("#live .badge").first).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#live .badge").first).to_have_text("cancelled")


def test_a_discarded_letter_is_brought_back(open_page: Open, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Undone", 2)
    ask(page, query, "discard", counted=2)
    start(page, "discard")
    expect(page.get_by_role("button", name="Hold")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#blast")).to_contain_text("2 letters")
    start(page, "undo")
    shows(page, query, 2)


def test_a_ramp_is_held_resumed_and_cancelled(open_page: Open, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Stopped", 4)
    ask(page, query, "retry", {"ramp": "yes", "silence": "10m"}, 4)
    page.get_by_role("button", name="Retry ").click()
    for order, status in (("Hold", "on hold"), ("Go on", "running"), ("Cancel", "cancelled")):
        page.get_by_role("button", name=order, exact=True).click()
        # The page offers what can be ordered now, without being loaded again.
        expect(page.locator("#live .badge").first).to_have_text(status)
    expect(page.get_by_role("group", name="Orders")).to_have_count(0)


def test_the_form_asks_only_what_its_kind_needs_and_a_preview_says_who_else_acts(open_page: Open, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Both", 4)
    page.goto(f"/act?q={quote(query)}")
    seen = {"retry": "at", "redirect": "to", "patch": "merge_patch", "edit": "value", "park": "", "discard": ""}
    page.evaluate("() => document.querySelectorAll('form details').forEach(each => each.open = true)")
    for kind, own in seen.items():
        page.locator(f"#kind-{kind}").check()
        for name in ("at", "to", "merge_patch", "value"):
            shows_times = name == "at" and kind == "redirect"
            expect(page.locator(f"#{name}")).to_be_visible(visible=name == own or shows_times)
    ask(page, query, "retry", {"ramp": "yes", "silence": "10m"}, 4)
    page.get_by_role("button", name="Retry ").click()
    expect(page.locator("#live .badge").first).to_have_text("running")
    running = page.url
    ask(page, query, "discard", counted=3)
    expect(page.locator("#others")).to_contain_text("with the same filter")
    expect(page.locator("tr[data-row]").first).to_contain_text("has none")
    page.locator("#others a").click()
    expect(page).to_have_url(running)
    page.get_by_role("button", name="Cancel").click()


def test_what_failed_again_is_counted_and_found(open_page: Open, incident: Incident, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Twice", 3)
    ask(page, query, "retry", counted=3)
    with incident.consuming(failing=lambda record: (record.key() or b"").endswith(b"1")):
        start(page, "retry")
        expect(page.locator("#outcome")).to_contain_text("1 failed again")
    page.locator("#outcome a").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)
    expect(page.locator("tr[data-row]")).to_contain_text("Twice")


def test_rows_and_pages_are_selected(open_page: Open, fail: Fail) -> None:
    page, query = open_page("/").page, fail("Selected", 3)
    shows(page, query, 3)
    page.get_by_label("Select the letters of this page").check()
    expect(page.locator("#selected-count")).to_contain_text("3")
    page.locator("tr[data-row]").first.get_by_role("checkbox").uncheck()
    page.get_by_role("button", name="Act on selected").click()
    expect(page.get_by_text("2 letters chosen")).to_be_visible()
    shows(page, query, 3)
    page.get_by_role("link", name="Act on all that match").click()
    expect(page.locator("#filter")).to_have_value(query)


def test_a_pause_is_begun_seen_and_ended(open_page: Open) -> None:
    page = open_page("/pauses").page
    page.locator("#name").fill("payments")
    page.locator("#until").fill("2h")
    page.get_by_label("Why").first.fill("the bank is down")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#live")).to_contain_text("the bank is down")
    page.goto("/")
    expect(page.locator(".sentence")).to_contain_text("payments is paused")
    page.goto("/pauses")
    page.get_by_role("button", name="Resume team payments").click()
    expect(page.locator("#live")).to_contain_text("Nothing is paused")


def test_groups_are_merged_split_and_resolved_and_that_is_undone(open_page: Open, fail: Fail, incident: Incident) -> None:
    page = open_page("/").page
    fail("Merged", 2)
    fail("Other", 1)
    groups = {}
    for name in ("Merged", "Other"):
        page.goto(f"/failures?q=exception%3Acom.acme.orders.{name}")
        groups[name] = page.locator("tr[data-group]").get_attribute("data-group") or ""
    page.goto(f"/failures/{groups['Merged']}")
    page.get_by_text("Is another failure the same?").click()
    page.get_by_label("Fingerprint of a group").fill(groups["Other"])
    page.get_by_role("button", name="Merge it").click()
    expect(page.locator(".about .facts")).to_contain_text(groups["Other"])
    page.get_by_role("button", name="Undo").click()
    page.goto(f"/failures/{groups['Merged']}")
    expect(page.locator(".about .facts")).not_to_contain_text(groups["Other"])
    page.get_by_role("button", name="Resolve it").click()
    expect(page.get_by_text("Resolved").first).to_be_visible()
    incident.fail(incident.orders, "com.acme.orders.Merged", "order 9 has none", 9, wall_ms())
    incident.flush()
    shows(page, "exception:com.acme.orders.Merged", 3)
    page.goto(f"/failures/{groups['Merged']}")
    expect(page.get_by_role("button", name="Resolve it")).to_be_visible()
    page.get_by_role("button", name="Make each a group of its own").first.click()
    expect(page.get_by_role("heading", name="Merges and splits")).to_be_visible()


def test_a_filter_is_saved_and_deleted(open_page: Open) -> None:
    page = open_page("/letters?q=team%3Apayments+state%3Aparked").page
    page.get_by_text("Save this filter").click()
    page.get_by_label("Name").fill("parked payments")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("link", name="parked payments")).to_be_visible()
    page.get_by_role("button", name="Delete the filter parked payments").click()
    expect(page.get_by_role("link", name="parked payments")).not_to_be_visible()


def test_a_payload_is_shown_to_who_reveals_it_and_the_audit_says_so(open_page: Open) -> None:
    page = open_page(f"/letters?q=exception%3A{DECLINED}").page
    expect(page.locator(".count")).to_contain_text(f"{PARKED[DECLINED]} letters match")
    page.locator("tr[data-row] th a").first.click()
    assert "4111" not in page.content()
    expect(page.get_by_role("region", name="Shape of the value")).to_contain_text("customer")
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_label("Value, as JSON")).to_have_value(re.compile("4111-1111"))
    comes(page, "/audit", "reveal")


def test_a_letters_page_tells_why_it_is_where_it_is(open_page: Open) -> None:
    page = open_page(f"/letters?q=exception%3A{DATABASE}").page
    page.locator("tr[data-row] th a").first.click()
    expect(page.get_by_role("heading", name="Where it goes, and why")).to_be_visible()
    expect(page.locator(".timeline")).to_contain_text("failed")


@pytest.mark.parametrize("look", EACH_LOOK)
def test_a_letter_is_drawn_from_its_failure_to_now_and_to_its_retry(browser: Browser, incident: Incident, look: Look) -> None:
    watched = Watched(browser, incident.url, *look)
    page = watched.page
    page.goto(f"/letters?q=exception%3A{DATABASE}")
    page.locator("tr[data-row] th a").first.click()
    drawn = page.get_by_role("img", name=re.compile("It failed; after .* now; in .* due for retry 1."))
    expect(drawn.locator("circle")).to_have_count(2)
    assert page.locator(".timeline .stop").all_inner_texts() == drawn.locator("circle + text").all_text_contents() == ["1", "2"]
    x_of = "each => each.getBoundingClientRect().x"
    failed_x, now_x, due_x = (drawn.locator(place).evaluate(x_of) for place in ("circle.failed", "line", "circle.waiting"))
    assert 0 <= failed_x < now_x < due_x < look[1][0] - 20
    assert (watched.violations(), watched.refused(), watched.troubles) == ([], [], [])
    watched.close()


def test_policies_are_explained_and_tried(open_page: Open, incident: Incident) -> None:
    page = open_page("/policies").page
    page.locator("#topic").fill(incident.payments)
    page.locator("#exception").fill(DECLINED)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#explained")).to_contain_text("park")
    page.locator("#exception").fill(NET)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#explained")).to_contain_text("1s")


def test_what_a_changed_policy_file_would_do_to_what_waits_is_counted(open_page: Open, incident: Incident, fail: Fail) -> None:
    page = open_page("/policies").page
    fail("Later", 2)
    page.goto("/letters?q=state%3Awaiting")
    waiting = int(page.locator(".count strong").inner_text().replace(",", ""))
    before = page.goto("/policies").text().partition("SHA-256 <code>")[2][:64]  # type: ignore[union-attr]
    incident.deployment.policy_file.write_text(incident.policies(orders_delay="45m"))
    deadline = Deadline(180)
    while before in page.goto("/policies").text():  # type: ignore[union-attr]
        assert not deadline.has_passed(), "the policy file is not read again"
    page.locator("#team").select_option("orders")
    page.get_by_role("button", name="Show what would change").click()
    told = page.get_by_role("region", name="What would change")
    later, left = (
        int(n.replace(",", ""))
        for n in re.findall(r"([\d,]+) (?:later|left alone)", page.locator("#rehearsed p").first.inner_text())
    )  # fmt: skip
    # Those of payments, and what somebody has acted on, are left alone.
    assert (later + left, later >= 2) == (waiting, True)
    (team, _, moved), = (row.split("\t") for row in told.locator("tbody tr").all_inner_texts())
    assert (team, moved) == ("orders", f"{later:,} later")
    incident.deployment.policy_file.write_text(incident.policies())


@pytest.mark.parametrize("look", EACH_LOOK)
def test_nobody_is_kept_out_of_what_follows_a_form(browser: Browser, incident: Incident, fail: Fail, look: Look) -> None:
    query, watched = fail(f"Seen{'Dark' if look[0] == 'dark' else 'Light'}{look[1][0]}", 3), Watched(browser, incident.url, *look)
    page = watched.page

    def demand_open_to_all() -> None:
        assert (page.url, watched.violations(), watched.refused()) == (page.url, [], [])

    page.goto(f"/letters?q={quote(query)}")
    page.locator("tr[data-row] th a").first.click()
    page.get_by_role("button", name="Reveal").click()
    expect(page.get_by_label("Value, as JSON")).to_be_visible()
    demand_open_to_all()
    ask(page, query, "patch", {"merge_patch": '{"amount": 17}'}, 3)
    demand_open_to_all()
    ask(page, query, "retry", {"ramp": "yes", "silence": "10m"}, 3)
    demand_open_to_all()
    page.get_by_role("button", name="Retry ").click()
    for order, status in (("Hold", "on hold"), ("Cancel", "cancelled")):
        page.get_by_role("button", name=order, exact=True).click()
        expect(page.locator("#live .badge").first).to_have_text(status)
        demand_open_to_all()
    assert watched.troubles == []
    watched.close()
