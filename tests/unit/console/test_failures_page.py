"""The page of failures: links that order and narrow it, saved views, and what each row offers to whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape

import pytest

from retry.console.reading.facets import Facet, FacetValue
from retry.console.reading.group_list import GroupPage, Lookalike, Similar
from retry.console.rows import FailureState, SavedFilter
from retry.console.web.rights import Role, Viewer
from tests.support.acting_console import ActingConsole
from tests.support.console import FakeNotes, group

ANN, VIC = Viewer("ann", {"shop": Role.OPERATOR}), Viewer("vic", {"shop": Role.VIEWER})
BOTH = Viewer("bob", {"shop": Role.OPERATOR, "bank": Role.VIEWER})
ADA = Viewer("ada", {"*": Role.OPERATOR})
PAIR = Lookalike("a.B", Similar("aa", "posting #", 7, ("shop",)), Similar("cc", "posting #:", 2, ("shop", "bank")))


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.kinds = [
        group("aa", ("shop",), topics=("orders.DLT",), state=FailureState.NEW, consumer_groups=("billing",)),
        group("bb", ("bank",), topics=("loans.DLT", "more.DLT"), state=FailureState.CAME_AGAIN),
    ]
    made.replica.listed = GroupPage(
        [], "on", 2, states={FailureState.NEW: 1, FailureState.RESOLVED: 4}, waiting=2, parked=4,
        facets=(Facet("team", (FacetValue("shop", 3), FacetValue("bank", 2)), 5),),
    )  # fmt: skip
    yield made
    made.close()


def links(html: str) -> dict[str, str]:
    """The address of each link, by its text; of several of one text the first."""
    found: dict[str, str] = {}
    for address, text in re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', html, re.DOTALL):
        found.setdefault(" ".join(unescape(re.sub(r"<[^>]+>", "", text)).split()), unescape(address))
    return found


def test_headers_order_the_list_and_pages_and_the_live_part_keep_the_order(console: ActingConsole) -> None:
    html = console.ask(ADA, "GET", "/failures?q=team:shop&show=new&sort=-last").text
    to = links(html)
    assert (to["Team"], to["Last seen"]) == (
        "/failures?q=team%3Ashop&show=new&sort=team", "/failures?q=team%3Ashop&show=new&sort=last",
    )  # fmt: skip
    assert to["Next page"] == "/failures?q=team%3Ashop&show=new&sort=-last&after=on"
    assert re.findall(r'aria-sort="(\w+)"', html) == ["descending"]
    of = re.findall(r'hx-sse:connect="/live\?part=failures&amp;of=([^"]*)"', html)
    assert of == ["q%3Dteam%253Ashop%26show%3Dnew%26sort%3D-last"]
    live = console.console.live._parts["failures"](ADA.sight(), "q=team%3Ashop&show=new&sort=-last")
    assert live.strip() in html
    assert {each[1:] for each in console.replica.asked_groups} == {(None, "new", "-last")}


def test_where_letters_were_not_counted_by_what_they_have_the_page_says_so(console: ActingConsole) -> None:
    said = "There was no time to count letters by team"
    assert said not in console.ask(ADA, "GET", "/failures").text
    console.replica.listed = replace(console.replica.listed or GroupPage([]), facets=None)
    html = console.ask(ADA, "GET", "/failures?q=team:shop").text
    assert (said in html, links(html)["shop –"]) == (True, "/failures"), "what the filter asks for can be taken out"


@pytest.mark.parametrize("query", ["sort=size", "sort=", "sort=--last", "show=waiting"])
def test_an_order_or_state_that_there_is_not_is_refused(console: ActingConsole, query: str) -> None:
    assert console.ask(ADA, "GET", f"/failures?{query}").status_code == 400


def test_states_are_tabs_with_counts_and_facets_write_the_filter(console: ActingConsole) -> None:
    html = console.ask(ADA, "GET", "/failures?q=team:shop&sort=team").text
    to = links(html)
    assert to["Open 1"] == "/failures?q=team%3Ashop&sort=team"
    assert to["Resolved 4"] == "/failures?q=team%3Ashop&show=resolved&sort=team"
    assert (to["shop 3"], to["bank 2"]) == ("/failures?sort=team", "/failures?q=team%3Ashop+team%3Abank&sort=team")
    assert ("5 more" in html, "6 letters wait" in html, "2 letters wait, 4 are parked" in html) == (True, False, True)
    assert ("<title>(1 new) 1 open failure " in html, 'data-title="(1 new) 1 open failure"' in html) == (True, True)


def test_a_saved_filter_is_a_tab_on_both_lists_and_one_saved_here_leads_back_here(console: ActingConsole) -> None:
    kept = FakeNotes([SavedFilter("Ours", "team:shop", "shop", "ann")])
    written, console.replica.notes = console.replica.notes, kept
    shown, other = (console.ask(ANN, "GET", f"/failures?q={q}").text for q in ("team:shop", "key:1"))
    assert links(shown)["Ours"] == "/failures?q=team%3Ashop"
    assert [html.count('aria-current="page">Ours') for html in (shown, other)] == [1, 0]
    assert links(console.ask(ANN, "GET", "/letters").text)["Ours"] == "/letters?q=team%3Ashop"
    assert ("Save this filter" in other, "Save this filter" in console.ask(VIC, "GET", "/failures?q=key:1").text) == (True, False)
    console.replica.notes = written
    for page, back in (("failures", "/failures?q=key%3A1"), ("letters", "/letters?q=key%3A1"), ("", "/letters?q=key%3A1")):
        form = {"name": "x", "text": "key:1", "team": "shop", "page": page}
        assert console.ask(ANN, "POST", "/filters", form).headers["location"] == back
    assert console.ask(ANN, "POST", "/filters", {**form, "page": "//evil"}).status_code == 400
    gone = console.ask(ANN, "POST", "/filters/delete", {"name": "x", "team": "shop", "page": "failures"})
    assert gone.headers["location"] == "/failures"


def test_a_row_offers_what_its_viewer_may_do_for_its_teams(console: ActingConsole) -> None:
    rows = lambda viewer: dict(re.findall(  # noqa: E731
        r'<tr id="row-(\w+)"(.*?)</tr>', console.ask(viewer, "GET", "/failures").text, re.DOTALL
    ))  # fmt: skip
    for viewer, offered in ((ADA, {"aa", "bb"}), (BOTH, {"aa"}), (ANN, {"aa"}), (VIC, set())):
        found = rows(viewer)
        assert {id_ for id_, row in found.items() if "Retry" in row and "/assign" in row and "checkbox" in row} == offered
        assert {id_ for id_, row in found.items() if "/act?" in row or "/assign" in row or "/pauses?" in row} == offered
    assert ("New</span>" in rows(ADA)["aa"], "Came again</span>" in rows(ADA)["bb"], "billing" in rows(ADA)["aa"]) == (True,) * 3


def test_pause_leads_to_the_form_of_what_the_failure_is_of(console: ActingConsole) -> None:
    html = console.ask(ADA, "GET", "/failures").text
    one, other = [unescape(each) for each in re.findall(r'href="(/pauses\?[^"]*)"', html)]
    assert one == "/pauses?scope=topic&name=orders.DLT&reason=java.net.ConnectException"
    assert other == "/pauses?scope=team&name=bank&reason=java.net.ConnectException", "it is of two topics"
    form, filled = console.ask(ADA, "GET", one).text, ("orders.DLT", "java.net.ConnectException")
    assert '<option value="topic" selected>' in form
    assert all(f'value="{each}"' in form for each in filled)


def test_assign_makes_whoever_asks_the_owner_and_goes_back_to_where_that_was_asked(console: ActingConsole) -> None:
    console.replica.kinds = [replace(console.replica.kinds[0], note="call them", link="https://t/1"), console.replica.kinds[1]]
    form = {"q": "team:shop", "sort": "-last", "show": "new"}
    for viewer, path, status in ((VIC, "aa", 403), (BOTH, "bb", 403), (ANN, "bb", 404)):
        assert console.ask(viewer, "POST", f"/failures/{path}/assign", form).status_code == status
    assert console.replica.notes.calls == []
    done = console.ask(ANN, "POST", "/failures/aa/assign", form)
    assert (done.status_code, done.headers["location"]) == (303, "/failures?q=team%3Ashop&show=new&sort=-last")
    assert console.replica.notes.calls == [("set_note", "aa", "ann", "call them", "https://t/1", "ann", ("shop",))]
    of_failure = console.ask(ANN, "POST", "/failures/aa/assign", {"page": "failure"})
    assert (of_failure.status_code, of_failure.headers["location"]) == (303, "/failures/aa")
    assert console.ask(ANN, "POST", "/failures/aa/assign", {"sort": "size"}).status_code == 400


def test_a_merge_is_offered_to_who_may_do_it_and_can_be_dismissed(console: ActingConsole) -> None:
    console.replica.kinds = [*console.replica.kinds, group("cc", ("shop", "bank"))]
    console.replica.listed = replace(console.replica.listed or GroupPage([]), lookalikes=(PAIR,))
    html = console.ask(ADA, "GET", "/failures").text
    assert "These two look the same: merge?" in html
    assert 'form="merging" formaction="/failures/aa/merge" name="group" value="cc"' in html
    assert 'form="listed" formaction="/failures/aa/apart" name="group" value="cc"' in html
    assert all("look the same" not in console.ask(viewer, "GET", "/failures").text for viewer in (ANN, VIC, BOTH))
    for viewer, status in ((VIC, 403), (ANN, 403), (BOTH, 403)):
        assert console.ask(viewer, "POST", "/failures/aa/apart", {"group": "cc"}).status_code == status
    assert console.replica.notes.calls == []
    done = console.ask(ADA, "POST", "/failures/aa/apart", {"group": "cc", "sort": "team"})
    assert (done.headers["location"], console.replica.notes.calls) == ("/failures?sort=team", [("keep_apart", "aa", "cc", "ada")])
    assert console.ask(ADA, "POST", "/failures/aa/apart", {"group": "aa"}).status_code == 400
