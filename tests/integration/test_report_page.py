"""The page in a real browser: every plot has marks, nothing is complained about, and no name that letters bring can run."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from ruamel.yaml import YAML

pytest.importorskip("altair")

from retry.analytics.html.render import PALETTE, judge_attempt, number_teams, render_pages, render_report
from tests.support.browser import LOOKS, Look, Watched, browsing
from tests.support.findings import findings

pytestmark = pytest.mark.check

PLOTS = {
    "worth", "incidence_by_attempt", "incidence_by_time", "waste", "time_to_recovery", "comparison", "fingerprints", "lateness",
    "retries_over_time",
}  # fmt: skip
# By four, since as many names stand in a page.
HOSTILE = (
    (
        "<script>document.title='ran'</script>",
        '"><img src=x onerror="document.title=\'ran\'">',
        "</text></svg><script>document.title='ran'</script>",
        "</style><svg onload=document.title='ran'>",
    ),
    ("{{ 7 * 191 }}{% raw %}", "datum.x + '\\' + alert(1)", "&lt;b&gt;&amp;", "]]><!--"),
    ("\x00\x1b[2J\u202edlrow\ud800", "x" * 5_000, "\n\t ", "javascript:alert(1)"),
)
Dom = Callable[[str], tuple[str, str]]
NAMES = ("payments", "com.acme.pay.CardDeclined", "io.elastic.NodeClosed", "topic")


class Elements(HTMLParser):
    """The parts of a page: element names, attributes, and by figure the shapes that stand for data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.marks: dict[str, list[dict[str, str | None]]] = {}
        self._figure: str | None = None
        self._groups: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        told = dict(attrs)
        if tag == "figure":
            self._figure = str(told["id"])
            self.marks[self._figure] = []
        elif tag == "g":
            self._groups.append(told.get("class") or "")
        elif self._figure and tag in ("path", "line") and self._groups and " role-mark" in self._groups[-1]:
            self.marks[self._figure].append(told)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "figure":
            self._figure = None
        elif tag == "g":
            self._groups.pop()


def nearly_empty() -> dict[str, Any]:
    """Findings of a first letter: each answer has one row at most, and half of them have none."""
    found: dict[str, Any] = {name: each[:1] if isinstance(each, list) else each for name, each in findings().items()}
    nothing = (
        "actions", "changed", "not_counted", "storms", "near_retention", "lateness", "time_to_recovery", "parked_by_reason",
        "followed_up", "forecast", "unwatched", "unsampled", "days_missing",
    )  # fmt: skip
    none = dict.fromkeys(("before", "totals_before", "cost", "consumer_ms"))
    return found | {name: [] for name in nothing} | none | {"assumed": 1}


def hostile(texts: Sequence[str]) -> dict[str, Any]:
    return findings(dict(zip(NAMES, texts, strict=True)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


@pytest.fixture
def dom(browser: Browser, tmp_path: Path) -> Callable[[str], tuple[str, str]]:
    """The page as the browser has it, and what the browser says to its console."""

    def load(text: str) -> tuple[str, str]:
        (file := tmp_path / "page.html").write_text(text, encoding="utf-8")
        watched = Watched(browser)
        watched.page.goto(file.as_uri())
        found = watched.page.content(), "\n".join(watched.troubles)
        watched.close()
        return found

    return load


def test_every_plot_has_marks_and_the_console_is_empty(dom: Dom) -> None:
    found, console = dom(render_report(findings()))
    assert console == ""
    elements = Elements(found)
    assert elements.marks.keys() == {f"plot-{name}" for name in PLOTS}
    for name, marks in elements.marks.items():
        assert len(marks) >= 3, name
        assert all(mark.get("fill") or mark.get("stroke") for mark in marks), name
        assert not [mark for mark in marks if "NaN" in (mark.get("d") or "") + (mark.get("transform") or "")], name


def test_the_browser_would_have_told(dom: Dom) -> None:
    forbidden = "<script>document.title='ran'</script><p style='color:red'>"
    found, console = dom(render_report(findings()).replace("</main>", f"</main>{forbidden}"))
    assert console.count("Content Security Policy") >= 2
    assert "<title>ran</title>" not in found


def test_no_name_runs(dom: Dom) -> None:
    found, console = dom(render_report(hostile(HOSTILE[0])))
    assert console == ""
    assert "<title>What became of every retry</title>" in found
    assert Elements(found).marks.keys() == {f"plot-{name}" for name in PLOTS}


@pytest.mark.parametrize("texts", HOSTILE, ids=["markup", "templates", "characters"])
def test_a_name_is_text_wherever_it_stands(texts: Sequence[str]) -> None:
    rendered = render_report(hostile(texts))
    elements = Elements(rendered)
    assert not {"script", "img", "iframe", "object", "link", "foreignobject"} & set(elements.names)
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name in ("src", "style", "xlink:href")]
    links = {value for name, value in elements.attributes if name == "href"}
    assert links == {row["console"] for row in hostile(texts)["actions"]}
    assert "1337" not in rendered
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", rendered)
    assert len(rendered) < 1_000_000


def test_the_page_asks_for_nothing_and_says_so_to_the_browser() -> None:
    rendered = render_report(findings())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', rendered)
    assert policy and policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1] and "script-src" not in policy[1]
    # The names of XML's own vocabularies are no addresses.
    found = set(re.findall(r"https?://[^\"' <]*", rendered)) - {row["console"] for row in findings()["actions"]}
    assert found <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"@import|url\(", rendered)
    ids = [value for name, value in Elements(rendered).attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_plots_without_data_are_left_out_and_the_page_says_what_is_not_known() -> None:
    nothing: dict[str, Any] = {name: [] if isinstance(each, list) else each for name, each in findings().items()}
    rendered = render_report(
        nothing | {"assumed": 12, "retention_known": False, "saving": {"retries": 0, "of": 0, "share": 0.0, "kept_low": 0.99}}
    )
    assert "<figure" not in rendered
    assert "no retry topic keeps the time of appending" in rendered
    assert "Retention was not asked" in rendered
    assert "Of 12 recovered retries nobody says" in rendered
    assert "nobody says" not in render_report(findings())


def test_the_page_begins_with_what_to_do_and_says_what_it_was_made_of() -> None:
    found = findings()
    rendered = render_report(found)
    assert rendered.index('id="actions"') < rendered.index('class="cards"')
    part = rendered.partition('id="actions"')[2].partition("</section>")[0]
    assert 0 < part.count("<li>") == len(found["actions"]) <= 5
    blocks = re.findall(r"<pre [^>]*>(.*?)</pre>", part, re.DOTALL)
    for row, block in zip(found["actions"], blocks, strict=True):
        assert f"<h3>{row['sentence']}</h3>" in part
        assert f"cost {row['cost']:,.2f}" in part
        assert f'<a href="{row["console"]}" rel="noreferrer">' in part
        (rules,) = YAML(typ="safe").load(html.unescape(block)).values()
        assert rules == YAML(typ="safe").load("\n".join(row["rule"]))
    assert "app retry · from retry-outcomes · settle time 10 min · version 1.2.3" in rendered
    none = {"cost": None, "consumer_ms": None, "console": None}
    free = render_report(found | none | {"actions": [row | none for row in found["actions"]]})
    for told in (", cost ", " of consumers", "<a "):
        assert (told in rendered, told in free) == (True, False)
    assert "--time-per-retry" in free
    assert "--time-per-retry" not in rendered
    assert "Nothing yet" in render_report(found | {"actions": []})


def test_with_a_policy_file_an_action_is_the_whole_topic_as_it_is_to_stand_there() -> None:
    found = findings()
    rule = f"        rules: [{{exception: '{'x' * 300}'}}]"
    section = ["      - dead_letters: x.DLT  # <ours>", "        retry_to: x.retry", rule]
    rendered = render_report(found | {
        "about": found["about"] | {"file": "policies.yaml"}, "actions": [found["actions"][0] | {"section": section}],
    })  # fmt: skip
    blocks = re.findall(r"<pre [^>]*>(.*?)</pre>", rendered, re.DOTALL)
    assert [html.unescape(each) for each in blocks] == ["\n".join(section)]
    assert "In <code>policies.yaml</code> this takes the place of" in rendered


def test_what_actions_risk_is_told_in_letters_where_nothing_ever_recovered_and_storms_are_counted_whole() -> None:
    found = findings()
    rendered = render_report(found)
    never = [row for row in found["actions"] if not row["recoveries"]]
    assert never
    for row in never:
        might = f"at most {row['recoveries_at_risk']:.0f} of {row['letters']:,} letters might"
        assert f"None was seen to recover; {might}" in rendered
    assert "of 0 recoveries" not in rendered
    assert len(found["storms"]) < found["storms"][0]["minutes"]
    assert f"<b>{found['storms'][0]['minutes']} minutes</b>" in rendered


def test_whoever_knows_no_statistics_meets_no_word_of_it() -> None:
    text = re.sub("<[^>]*>", " ", re.sub("<style>.*?</style>", "", render_report(findings()), flags=re.DOTALL)).lower()
    words = ("hazard", "kaplan", "aalen", "wilson", "confidence", "percentile", "median", "censored", "incidence", "interval")
    assert [word for word in words if word in text] == []


def test_what_is_not_known_is_never_said_to_be_worthless() -> None:
    found = findings()
    unsure = found["worth"][0] | {"verdict": "unknown", "missing": 7, "exception": "a.Young", "reason": ""}
    refused = unsure | {"exception": "a.Refused", "missing": 0, "reason": "the history has not seen a Saturday"}
    rendered = render_report(found | {"worth": [found["worth"][1], unsure, refused]})
    known, _, unknown = rendered.partition("<h3>Not sure yet</h3>")
    table = unknown.partition("</table>")[0]
    assert "7 more letters are needed" in table and "the history has not seen a Saturday" in table
    assert "Young" not in known.rpartition("<table>")[2]
    panels = known.partition('id="plot-worth"')[2].split('class="panel"')[1:]
    assert [set(re.findall("is_worth: ([a-z ]*)", panel)) & {"not worth it", "not sure yet"} for panel in panels] == [
        {"not worth it"}, {"not sure yet"}, {"not sure yet"},
    ]  # fmt: skip
    idle = {"verdict": "keep", "attempts": 3}
    assert judge_attempt(idle, {"attempt": 3, "at_risk": 9, "hazard": 0}) == "not sure yet"
    assert judge_attempt(idle, {"attempt": 2, "at_risk": 9, "hazard": 0.1}) == "worth making"
    assert judge_attempt(idle | {"verdict": "fewer"}, {"attempt": 4, "at_risk": 9, "hazard": 0.1}) == "not worth it"


def test_a_team_has_one_colour_in_all_pictures_and_tables_and_on_its_own_page() -> None:
    found = findings()
    numbers = number_teams(found)
    assert numbers == {"orders": 0, "payments": 1, "search": 2}
    rendered = render_report(found)
    for team, number in numbers.items():
        assert {*re.findall(rf'<i class="dot c(\d)"></i>{team}\b', rendered)} == {str(number)}
        for name in ("incidence_by_attempt", "incidence_by_time", "retries_over_time"):
            figure = rendered.partition(f'id="plot-{name}"')[2].partition("</figure>")[0]
            panel = figure.partition(f"</i>{team}<")[2].partition('class="panel"')[0]
            assert PALETTE[number] in panel
            assert not ({*PALETTE} - {PALETTE[number]}) & {*re.findall("#[0-9a-f]{6}", panel)}
    own: dict[str, Any] = found | {
        name: [row for row in each if row.get("team") == "search"]
        for name, each in found.items() if isinstance(each, list) and name != "days_missing"
    }  # fmt: skip
    page = render_report(own, whole=found)
    assert '<i class="dot c2"></i>search' in page and '<a href="index.html">All teams</a>' in page
    assert not {PALETTE[0], PALETTE[1]} & {*re.findall("#[0-9a-f]{6}", page.partition("<figure")[2])}


def test_each_team_has_a_page_whatever_its_name_and_one_leads_to_them() -> None:
    names = ["shop", "../../etc", "Shop", "\x1b<b>\ud800", "", "x" * 500]
    found: dict[str, Any] = {name: [] if isinstance(each, list) else each for name, each in findings().items()}
    found |= {name: findings()[name] for name in ("actions", "teams")}
    by_team = {name: found | {"teams": [found["teams"][0] | {"team": name}]} for name in names}
    pages = dict(render_pages(found, by_team))
    assert len(pages) == len(names) + 2
    assert all(re.fullmatch(r"[a-z0-9-]{1,60}\.html", name) for name in pages)
    links = re.findall('<a href="([^"]*)"', pages["index.html"])
    assert {*links} == {*pages} - {"index.html"}
    assert "<b>\ud800" not in pages["index.html"] and found["actions"][0]["sentence"] in pages["index.html"]


def test_a_letter_of_another_time_does_not_stretch_an_axis() -> None:
    found = findings()
    usual = render_report(found)
    year_ms = 366 * 86_400_000
    odd = found | {
        "incidence_by_time": [*found["incidence_by_time"], found["incidence_by_time"][0] | {"time_ms": 12 * year_ms}],
        "time_to_recovery": [row | {"p99_ms": 12 * year_ms} for row in found["time_to_recovery"]],
        "lateness": [row | {"p50_ms": 9 * year_ms, "p90_ms": 9 * year_ms, "p99_ms": 9 * year_ms} for row in found["lateness"]],
    }
    rendered = render_report(odd)
    figures = [page.partition('id="plot-incidence_by_time"')[2].partition("</figure>")[0] for page in (usual, rendered)]
    labels = [re.findall(r">(\d+ (?:min|h|d|s))<", figure) for figure in figures]
    assert labels[0] and labels[1] == labels[0]
    assert 'id="plot-lateness"' not in rendered and 'id="plot-time_to_recovery"' in rendered
    assert "2 letters say that they failed long before all others" in rendered


def test_advised_delays_are_short_and_those_of_attempts_in_a_row_are_one() -> None:
    found = findings()
    rows = [found["worth"][0] | {"verdict": "delays", "delays_ms": {1: 120_000, 2: 120_000, 4: 5_400_000}}]
    table = render_report(found | {"worth": rows}).partition("Which retries are worth making?")[2]
    assert "attempts 1 to 2 after 2m; attempt 4 after 1h30m" in " ".join(table.split())


def test_two_teams_that_see_one_fingerprint_have_a_row_each() -> None:
    found = findings()
    (one, *_) = found["fingerprints"]
    rows = [one, one | {"team": "other"}]
    over = [{**each, "team": row["team"]} for row in rows for each in found["fingerprints_over_time"][:3]]
    rendered = render_report(found | {"fingerprints": rows, "fingerprints_over_time": over})
    figure = rendered.partition('id="plot-fingerprints"')[2].partition("</figure>")[0]
    assert {kind.split()[0] for kind in re.findall("kind: ([^;<]*)", figure)} == {"payments", "other"}


def test_moments_of_a_short_period_can_be_told_apart() -> None:
    found = findings()
    minutes = [{"team": "payments", "minute_ms": found["period"]["since_ms"] + n * 60_000, "sent": n} for n in range(4)]
    figure = render_report(found | {"retries_over_time": minutes, "storms": []}).partition('id="plot-retries_over_time"')[2]
    labels = re.findall(r">(\d\d:\d\d:\d\d)<", figure.partition("</figure>")[0])
    assert len(labels) > 2
    assert len(labels) == len(set(labels))


def test_a_failure_that_is_gone_has_no_arrow_and_few_are_no_trend() -> None:
    found = findings()
    rows = [row | counts for row, counts in zip(found["fingerprints"], (
        {"earlier": 300, "recent": 0}, {"earlier": 300, "recent": 1}, {"earlier": 2, "recent": 3}, {"earlier": 0, "recent": 30},
    ), strict=False)]  # fmt: skip
    rendered = render_report(found | {"fingerprints": rows})
    table = rendered.partition("Which failures are most frequent?")[2].partition("</section>")[0]
    samples = r'<tr class="samples"><td></td><td colspan="8"><code>retry explain'
    trends = re.findall(rf'<td class="n ([a-z]*)">([^<]*)</td></tr>\s*{samples}', table)
    assert trends == [("good", "gone"), ("good", "↓ to 0.3 %"), ("", "steady"), ("bad", "new")]


def test_of_a_single_row_there_is_something_to_see() -> None:
    first: dict[str, Any] = {name: each[:1] if isinstance(each, list) else each for name, each in findings().items()}
    marks = Elements(render_report(first | {"storms": []})).marks
    assert marks.keys() == {f"plot-{name}" for name in PLOTS}
    for name, drawn in marks.items():
        shapes = [mark for mark in drawn if len(re.findall("[LlAahvHV]", mark.get("d") or "")) >= 2]
        assert shapes, name


@pytest.mark.parametrize("found", [findings(), nearly_empty()], ids=["busy", "nearly empty"])
def test_whoever_cannot_see_it_or_has_a_phone_can_read_it(found: dict[str, Any], browser: Browser, tmp_path: Path) -> None:
    (file := tmp_path / "page.html").write_text(render_report(found), encoding="utf-8")
    for look in LOOKS:
        assert (look, faults(browser, file, look)) == (look, [])


def faults(browser: Browser, file: Path, look: Look) -> list[str]:
    """List what is wrong with a page in one size and colour; letters in a picture are to be large enough, too."""
    watched = Watched(browser, "", *look)
    watched.page.goto(file.as_uri())
    small = watched.page.evaluate("""() => [...document.querySelectorAll("figure svg")].map(svg =>
      svg.getBoundingClientRect().width / svg.viewBox.baseVal.width).filter(scale => scale < 0.9)""")
    found = [*watched.violations(), *watched.troubles, *watched.refused(), *(f"a picture is shown at {scale}" for scale in small)]
    watched.close()
    return found


@pytest.mark.parametrize("found", [findings(), nearly_empty()], ids=["busy", "nearly empty"])
def test_on_paper_no_page_is_blank_and_no_column_is_lost(found: dict[str, Any], browser: Browser, tmp_path: Path) -> None:
    (file := tmp_path / "page.html").write_text(render_report(found), encoding="utf-8")
    # A4 less its margins, at 96 dots an inch.
    watched = Watched(browser, "", "light", (703, 1_000))
    watched.page.goto(file.as_uri())
    watched.page.emulate_media(media="print")
    lost = watched.page.evaluate("""() => [...document.querySelectorAll("table, svg, pre, .card, li, p")]
      .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
      .map(each => each.outerHTML.slice(0, 80))""")
    assert lost == []
    assert watched.violations() == []
    whole_px = watched.page.evaluate("() => document.documentElement.scrollHeight")
    pdf = watched.page.pdf(prefer_css_page_size=True)
    watched.close()
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    # A page has room for 1,032 pixels; what must not be broken leaves some of it free.
    assert whole_px / 1_032 <= pages <= 1.5 * whole_px / 1_032 + 1
