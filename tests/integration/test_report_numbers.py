"""The page shows the numbers of the JSON and no others: cards, tables, sentences, and the marks of every picture."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("altair")

from jinja2.filters import do_filesizeformat as size

from backoff import duration_text
from retry.analytics.html.format import change, count, duration, moment, money, points, share
from retry.analytics.html.render import render_report
from retry.analytics.quality import describe_quality
from tests.support.counted import each_counted, slips
from tests.support.findings import findings

pytestmark = pytest.mark.check

Row = Mapping[str, Any]
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?%?")
_MOMENT_MS = 1_000_000_000_000
# What sentences say of every report.
_SAID = ("90 % by", "68 % to 70 %", "50, 90 and 99", "of 100 letters", "Of 100 letters", "of 100 retries", "TOPIC=7d")
# By the name of a table, which rows of the JSON it has, and what of a row its columns with numbers show.
TABLES: Mapping[str, tuple[str, Callable[[Row], list[str]]]] = {
    "Forecast of next week": ("forecast", lambda row: [
        told for name in ("letters", "recovered")
        for told in (count(row[name]), f"{count(row[f'{name}_low'])} to {count(row[f'{name}_high'])}")
    ]),
    "Policies beside the period before": ("changed", lambda row: [
        *(count(row[name]) for each in ("letters", "retries") for name in (each, f"{each}_before")),
        share(row["recovery"]), share(row["recovery_before"]),
        count(row["parked"] + row["expired"]), count(row["parked_before"] + row["expired_before"]),
    ]),
    "Attempts that are worth it": ("worth", lambda row: [
        count(row["letters"]), share(row["recovery"]), count(row["attempts_now"]),
        count(row["attempts"]),
    ]),
    "Attempts of which nobody can say yet": ("worth", lambda row: [
        count(row["letters"]), share(row["recovery"]), count(row["attempts_now"]),
    ]),
    "Teams and policies": ("comparison", lambda row: [
        count(row["letters"]), count(row["recovered"]), share(row["recovery"]),
        *(count(row[name]) for name in ("parked", "expired", "discarded", "unknown", "waiting", "retries")),
    ]),
    "Parked letters by reason": ("parked_by_reason", lambda row: [count(row["letters"])]),
    "Letters on which operators acted": ("acted", lambda row: [
        count(row[name]) for name in ("letters", "recovered", "failed", "open", "parked", "discarded")
    ]),
    "Frequent failures": ("fingerprints", lambda row: [count(row[name]) for name in ("failures", "lineages", "parked")]),
    "Letters that Kafka will delete": ("near_retention", lambda row: [count(row["letters"])]),
}  # fmt: skip


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The report of `--json`, of counts that cannot be taken for each other."""
    made = findings()
    for n, row in enumerate([made["totals"], *made["comparison"], *made["changed"], *made["waste"], *made["acted"]]):
        row |= {name: value + 7 * n + len(name) for name, value in row.items() if type(value) is int}
    told: dict[str, Any] = json.loads(json.dumps(made))
    return told


@pytest.fixture(scope="module")
def page_html(report: dict[str, Any]) -> str:
    made = report | {
        "worth": [row | {"delays_ms": {int(n): ms for n, ms in row["delays_ms"].items()}} for row in report["worth"]]
    }
    return render_report(made)


@pytest.mark.parametrize("name", TABLES)
def test_each_row_of_a_table_has_the_numbers_of_its_row_of_the_json(name: str, report: dict[str, Any], page_html: str) -> None:
    key, numbers = TABLES[name]
    table = re.search(rf'aria-label="{name}"><table>(.*?)</table>', page_html, re.DOTALL)
    assert table
    rows = [row for row in re.findall(r"<tr.*?</tr>", table[1], re.DOTALL) if '<td class="n' in row]
    shown = [[_text(cell) for cell in re.findall(r'<td class="n[ "].*?</td>', row, re.DOTALL)] for row in rows]
    unknown = name == "Attempts of which nobody can say yet"
    wanted = [row for row in report[key] if key != "worth" or (row["verdict"] == "unknown") == unknown]
    assert wanted
    assert [cells[: len(numbers(row))] for cells, row in zip(shown, wanted, strict=True)] == [numbers(row) for row in wanted]


def test_cards_are_the_totals(report: dict[str, Any], page_html: str) -> None:
    totals, cost, time = report["totals"], report["cost"], report["consumer_ms"]
    cards = page_html.partition('<div class="cards">')[2].partition("<section")[0]
    assert [_text(card) for card in re.findall(r"<b>.*?</b>", cards)] == [
        count(totals["letters"]), share(totals["recovery"]), duration(totals["p50_ms"]), count(totals["retries"]),
        count(totals["wasted"]), count(totals["parked"] + totals["expired"]),
    ]  # fmt: skip
    for told in (
        f"({share(totals['recovery_low'])} to {share(totals['recovery_high'])})", f"90 % by {duration(totals['p90_ms'])}",
        f"sent, {size(totals['bytes'])}, cost {money(cost['retries'])}, {duration(time['retries'])} of consumers",
        f"{size(totals['wasted_bytes'])}, cost {money(cost['wasted'])}, {duration(time['wasted'])} of consumers",
        f"{count(totals['expired'])} of them too old; {count(totals['discarded'])} discarded by operators, ",
        f"discarded by operators, {count(totals['unknown'])} still open",
    ):  # fmt: skip
        assert told in _text(cards)
    before = report["totals_before"]
    then = f"the {duration(report['before']['until_ms'] - report['before']['since_ms'])} before"
    for name in ("letters", "retries", "wasted"):
        assert f"{count(before[name])} {then} ({change(totals[name], before[name])})" in _text(cards)
    assert f"{share(before['recovery'])} {then} ({points(totals['recovery'], before['recovery'])})" in _text(cards)


def test_the_box_about_the_data_has_what_the_json_has_of_it(report: dict[str, Any], page_html: str) -> None:
    box = _text(page_html.partition('id="quality"')[2].partition("</section>")[0])
    assert f"x.DLT of payments ({count(report['unsampled'][0]['retries'])})" in box
    assert ", ".join(report["days_missing"]) in box
    assert f"{count(report['totals']['unknown'])} letters have no end yet" in box
    assert f"{count(report['not_counted'][0]['records'])} unreadable" in box
    assert f"the first at {moment(report['odd']['first_ms'])} UTC" in box
    clean = {"unsampled": [], "days_missing": [], "not_counted": [], "odd": {"letters": 0, "first_ms": None}}
    totals = report["totals"] | {"unknown": 0}
    assert describe_quality(report | clean | {"totals": totals}) == []
    assert "--since 7d" in describe_quality(report | {"before": None})[2]
    short = report["before"] | {"since_ms": report["before"]["until_ms"] - 3_600_000}
    assert "only a part was recorded (records begin 1 h before this period" in describe_quality(report | {"before": short})[2]


def test_marks_of_every_picture_stand_where_the_json_says(report: dict[str, Any], page_html: str) -> None:
    hazards = [row for kind in report["worth"] for row in kind["hazards"]]
    by_attempt, by_time = report["incidence_by_attempt"], report["incidence_by_time"]
    expected: dict[str, list[tuple[str, list[float]]]] = {
        "worth": [("chance to recover: ", [100 * row["hazard"] for row in hazards])],
        "incidence_by_attempt": [("of all letters: ", _parts(by_attempt))],
        "incidence_by_time": [("of all letters: ", _parts(by_time))],
        "waste": [("retries sent: ", [
            part for row in report["waste"] for part in (row["wasted"], row["retries"] - row["wasted"])
        ])],
        "comparison": [("recovered of what ended: ", [100 * row["recovery"] for row in report["comparison"]]),
                       ("recovery_low: ", [row["recovery_low"] for row in report["comparison"]]),
                       ("recovery_high: ", [row["recovery_high"] for row in report["comparison"]])],
        "time_to_recovery": [("from first failure to recovery: ", _percentiles(report["time_to_recovery"]))],
        "lateness": [("sent after it was due: ", _percentiles(report["lateness"]))],
        "fingerprints": [("failures: ", [row["failures"] for row in report["fingerprints_over_time"]])],
        "retries_over_time": [("retries in a minute: ", [row["sent"] for row in report["retries_over_time"] + report["storms"]])],
    }  # fmt: skip
    figures = dict(re.findall(r'<figure id="plot-([a-z_]+)"(.*?)</figure>', page_html, re.DOTALL))
    assert figures.keys() == expected.keys()
    for name, axes in expected.items():
        for axis, numbers in axes:
            shown = Counter(round(float(each), 3) for each in re.findall(rf"{axis}([\d.e-]+)", figures[name]))
            wanted = Counter(round(number, 3) for number in numbers)
            # The start of a curve is no row: nothing has recovered yet.
            assert wanted and not wanted - shown, (name, axis)
            assert {*shown} - {*wanted} <= {0.0}, (name, axis)


def test_whatever_else_has_a_digit_is_a_number_or_a_name_of_the_json(report: dict[str, Any], page_html: str) -> None:
    assert list_unexplained(page_html, report) == []
    totals = report["totals"]
    others = report | {"totals": totals | {"wasted": 10_007}}
    assert {digits.strip(",.") for digits in list_unexplained(page_html, others)} == {count(totals["wasted"])}


@pytest.mark.parametrize(("number", "sentences"), [
    (1, ("Of 1 recovered retry", "passed it: it counts", "1 letter 1 the", "1 more letter is needed", "1 retry sent",
         "of 1 letter might", "1 of 1 expected retry can", "1 minute with", "1 more last attempt would")),
    (2, ("Of 2 recovered retries", "passed them: they count", "2 letters 2 the", "2 more letters are needed", "2 retries sent",
         "of 2 letters might", "2 of 2 expected retries can", "2 minutes with", "2 more last attempts would")),
])  # fmt: skip
def test_each_number_has_the_word_that_goes_with_it(number: int, sentences: tuple[str, ...]) -> None:
    made = findings()
    verdicts = ("unknown", "keep", "fewer")
    every = made | {
        "assumed": 7,
        "worth": [row | {"verdict": each, "missing": 1, "delays_ms": {}} for row in made["worth"] for each in verdicts],
        "actions": [row | {"verdict": "fewer", "recoveries": recoveries} for row in made["actions"] for recoveries in (0.0, 1.2)],
        "saving": made["saving"] | {"retries": 1, "of": 1},
    }
    page = render_report(each_counted(every, number))
    text = _text(re.sub(r"<style>.*?</style>|<figure.*?</figure>", " ", page, flags=re.DOTALL))
    assert slips(text) == []
    assert [said for said in sentences if said not in text] == []


def list_unexplained(rendered: str, found: dict[str, Any]) -> list[str]:
    """Numbers of the text of a page that are no number of the JSON, as people read them, and stand in no name of it."""
    text = _text(re.sub(r"<style>.*?</style>|<figure.*?</figure>", " ", rendered, flags=re.DOTALL))
    names = sorted({value for value in _leaves(found) if isinstance(value, str) and value}, key=len, reverse=True)
    numbers = [value for value in _leaves(found) if isinstance(value, int | float)]
    for said in (*_SAID, *names, *(moment(number) for number in numbers if number > _MOMENT_MS)):
        text = text.replace(said, " ")
    totals = found["totals"]
    numbers += [totals["parked"] + totals["expired"], *(row["parked"] + row["expired"] for row in found["changed"])]
    numbers += [row["parked_before"] + row["expired_before"] for row in found["changed"]]
    before = found["totals_before"]
    numbers += [before["parked"] + before["expired"], totals["unknown"] / totals["letters"]]
    numbers += [found["before"]["until_ms"] - found["before"]["since_ms"]]
    ends = [(each["parked"] + each["expired"]) for each in (totals, before)]
    beside = [change(*ends), points(totals["recovery"], before["recovery"])]
    beside += [change(totals[name], before[name]) for name in ("letters", "p50_ms", "retries", "wasted")]
    numbers += [-(-row["recoveries_at_risk"] // 1) for row in found["actions"] if row["recoveries_at_risk"]]
    known = {digits for number in numbers for shown in _spoken(number) for digits in _NUMBER.findall(shown)}
    known |= {digits for told in beside for digits in _NUMBER.findall(told)}
    known |= {digits for row in found["fingerprints"] if row["earlier"] for digits in _ratios(row["recent"] / row["earlier"])}
    return [digits for digits in _NUMBER.findall(text) if digits.strip(",.") not in known]


def _spoken(number: float) -> Iterator[str]:
    yield from (f"{number}", count(number), size(number), money(number), duration(number))
    if 0 <= number <= 1:
        yield share(number)
    if number >= 1:
        yield duration_text(int(number))


def _ratios(ratio: float) -> list[str]:
    return [f"{ratio:.1f}", *_NUMBER.findall(share(min(ratio, 1)))]


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value


def _parts(rows: list[dict[str, Any]]) -> list[float]:
    return [100 * part for row in rows for part in (row["part_recovered"], row["part_parked"] + row["part_expired"])]


def _percentiles(rows: list[dict[str, Any]]) -> list[float]:
    return [row[f"p{p}_ms"] for row in rows for p in (50, 90, 99)]


def _text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup.replace("<wbr>", ""))).split())
