"""The page in a real browser: every plot has marks, nothing is complained about, and no name that letters bring can run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

pytest.importorskip("altair")

from retry.analytics.html.render import render_report
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
    """What a page is made of: element names, attributes, and by figure the shapes that stand for data."""

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
    )  # fmt: skip
    return found | {name: [] for name in nothing} | {"before": None, "cost": None, "consumer_ms": None, "assumed": 1}


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
    assert not {"script", "img", "iframe", "object", "link", "foreignobject", "a"} & set(elements.names)
    assert not [
        name for name, _ in elements.attributes if name.startswith("on") or name in ("href", "src", "style", "xlink:href")
    ]
    assert "1337" not in rendered
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", rendered)
    assert len(rendered) < 1_000_000


def test_the_page_asks_for_nothing_and_says_so_to_the_browser() -> None:
    rendered = render_report(findings())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', rendered)
    assert policy and policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1] and "script-src" not in policy[1]
    # The names of XML's own vocabularies are no addresses.
    assert set(re.findall(r"https?://[^\"' <]*", rendered)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
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
    table = rendered.partition('id="actions"')[2].partition("</section>")[0]
    assert 0 < table.count("<tr><td") == len(found["actions"]) <= 5
    for row in found["actions"]:
        assert f"<b>{row['retries']:,.0f}</b>" in table
        assert f"{row['cost']:,.2f}" in table
        assert all(line.replace("'", "&#39;") in table for line in row["rule"])
    assert "app retry · from retry-outcomes · settle time 10 min · version 1.2.3" in rendered
    free = render_report(found | {"actions": [row | {"cost": None, "consumer_ms": None} for row in found["actions"]]})
    for column in ("cost", "consumers' time"):
        assert (f'<th class="n">{column}</th>' in rendered, f'<th class="n">{column}</th>' in free) == (True, False)
    assert "--time-per-retry" in render_report(found | {"consumer_ms": None})
    assert "--time-per-retry" not in rendered
    assert "Nothing yet" in render_report(found | {"actions": []})


def test_what_actions_risk_is_told_in_letters_where_nothing_ever_recovered_and_storms_are_counted_whole() -> None:
    found = findings()
    rendered = render_report(found)
    never = [row for row in found["actions"] if not row["recoveries"]]
    assert never
    for row in never:
        letters = f"none seen; at most {row['recoveries_at_risk']:.0f}<br>of {row['letters']:,} letters, 95 % sure"
        assert letters in rendered
    assert "of 0, 95 % sure" not in rendered
    assert len(found["storms"]) < found["storms"][0]["minutes"]
    assert f"<b>{found['storms'][0]['minutes']} minutes</b>" in rendered


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
    assert len(labels) > 3
    assert len(labels) == len(set(labels))


def test_a_failure_that_is_gone_has_no_arrow_and_few_are_no_trend() -> None:
    found = findings()
    rows = [row | counts for row, counts in zip(found["fingerprints"], (
        {"earlier": 300, "recent": 0}, {"earlier": 300, "recent": 1}, {"earlier": 2, "recent": 3}, {"earlier": 0, "recent": 30},
    ), strict=False)]  # fmt: skip
    html = render_report(found | {"fingerprints": rows})
    table = html.partition("Which failures are most frequent?")[2].partition("</section>")[0]
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
    """What is wrong with a page in one size and colour; letters in a picture are to be large enough, too."""
    watched = Watched(browser, "", *look)
    watched.page.goto(file.as_uri())
    small = watched.page.evaluate("""() => [...document.querySelectorAll("figure svg")].map(svg =>
      svg.getBoundingClientRect().width / svg.viewBox.baseVal.width).filter(scale => scale < 0.9)""")
    found = [*watched.violations(), *watched.troubles, *watched.refused(), *(f"a picture is shown at {scale}" for scale in small)]
    watched.close()
    return found
