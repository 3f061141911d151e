"""The commands over Parquet sets of generated events, of which the truth is known: 3 teams with known chances to recover."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark")

from retry.__main__ import main
from retry.analytics.advice.evidence import compute_survival
from retry.analytics.spark_session import open_session
from tests.support import sets
from tests.support.events import KINDS, START_MS, Events, Kind, events
from tests.support.report_schema import faults_of

# Each command takes Spark many seconds to plan; tests/acceptance/test_analytics.py has one of each.
pytestmark = pytest.mark.slow

LETTERS, DAY_MS = 4_500, 86_400_000
POLICIES = "teams:\n" + "".join(
    f"  {kind.team}:\n    topics:\n      - {{dead_letters: {kind.team}.DLT, retry_to: {kind.team}.retry}}  # {kind.team}\n"
    for kind in KINDS
)
POLICIES = (
    "defaults: {backoff: {kind: steps, delays: [10s, 30s, 1m, 2m, 5m, 10m, 20m, 40m]}, jitter: none, max_attempts: 8}\n"
    + POLICIES
)


_COSTS = ("--cost-per-retry", "0.5", "--time-per-retry", "800ms")


@pytest.fixture(scope="module")
def truth() -> Events:
    return events(LETTERS, seed=3, over_ms=30 * DAY_MS)


@pytest.fixture(scope="module")
def folder(truth: Events, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the sets, and the policy file of now. One Java process for all commands, as long as this session lasts."""
    data = tmp_path_factory.mktemp("data")
    (data / "policies.yaml").write_text(POLICIES)
    with open_session("test-advise", memory="2g") as spark:
        sets.write(spark, truth, data)
        yield data


@pytest.fixture(scope="module")
def report(folder: Path) -> dict:
    return json.loads(_run("analytics", "report", "--data", str(folder), *_COSTS, "--json").stdout)


@pytest.fixture(scope="module")
def advised_report(folder: Path) -> dict:
    new = folder / "advised.yaml"
    return json.loads(_run("analytics", "advise", *data_options(folder), "--write", str(new), "--json").stdout) | {"file": new}


def test_the_report_counts_what_is_true(report: dict, truth: Events) -> None:
    totals = report["totals"]
    assert (totals["letters"], totals["recovered"], totals["parked"]) == (LETTERS, truth.recovered.total(), truth.parked.total())
    assert (totals["retries"], totals["unknown"]) == (len(truth.sent), 0)
    for row in report["comparison"]:
        assert row["recovered"] == sum(n for (team, _, _), n in truth.recovered.items() if team == row["team"])
    assert totals["bytes"] == sum(row["bytes"] for row in truth.sent)


def test_the_report_is_as_its_schema_says(report: dict) -> None:
    assert faults_of(report) == []


def test_the_summary_has_ten_lines_at_most_and_each_team_has_a_page_that_links_to_the_console(folder: Path) -> None:
    pages, console = folder / "pages", "https://retry.example.com"
    # What came before has to have seen a weekend, or nothing is advised of it.
    since = ("--since", str(START_MS + 15 * DAY_MS))
    asked = ("analytics", "report", "--data", str(folder), *since, "--pages", str(pages), "--summary", "--console", console)
    lines = _run(*asked).stdout.splitlines()
    assert 6 <= len(lines) <= 10
    assert any(line.startswith("To do: Stop retrying com.acme.Invalid in billing: ") for line in lines)
    assert any(line.startswith("Of the ") and " of the period before: " in line for line in lines)
    assert len(list(pages.iterdir())) == len(KINDS) + 2
    links = re.findall('<a href="([^"]*)"', (pages / "index.html").read_text())
    assert {*links} == {path.name for path in pages.iterdir()} - {"index.html"}
    page = (pages / "all.html").read_text()
    assert f'<a href="{console}/failures/' in page and "What became of the actions of the" in page


def test_every_question_has_an_answer_and_the_chances_hold_the_truth(report: dict) -> None:
    known = {"acted", "changed", "days_missing", "followed_up", "near_retention", "not_counted", "storms", "unsampled"}
    known |= {"forecast", "unwatched"}
    assert {name for name, answer in report.items() if answer == []} <= known
    rows = {(row["team"], row["attempt"]): row for row in report["incidence_by_attempt"]}
    missed = 0
    for kind in KINDS:
        for attempt, truly in enumerate(_chances(kind), 1):
            row = rows.get((kind.team, attempt))
            missed += row is not None and not row["hazard_low"] - 1e-9 <= truly <= row["hazard_high"] + 1e-9
    # Of 20 intervals of 95 %, which do not depend on each other as those of the curve do.
    assert missed <= 3


def test_curves_cards_and_tables_agree(report: dict) -> None:
    last = {name: {row["team"]: row for row in report[name]} for name in ("incidence_by_attempt", "incidence_by_time")}
    assert report["totals"]["unknown"] == 0
    for policy in report["comparison"]:
        for curve in last.values():
            row = curve[policy["team"]]
            assert row["part_recovered"] == pytest.approx(policy["recovery"])
            assert row["part_parked"] == pytest.approx(policy["parked"] / policy["letters"])
            assert row["part_failing"] == pytest.approx(0)
    assert sum(row["wasted"] for row in report["waste"]) == report["totals"]["wasted"]
    for name in ("letters", "recovered", "parked", "expired", "unknown", "waiting", "retries"):
        assert sum(row[name] for row in report["comparison"]) == report["totals"][name]
    assert sum(row["retries"] for row in report["waste"]) == report["totals"]["retries"]
    assert sum(row["letters"] for row in report["parked_by_reason"]) == report["totals"]["parked"] + report["totals"]["expired"]
    assert sum(row["recovered"] for row in report["time_to_recovery"]) == report["totals"]["recovered"]
    failures = report["totals"]["retries"] + report["totals"]["parked"]
    assert sum(row["failures"] for row in report["fingerprints"]) == failures
    assert sum(row["failures"] for row in report["fingerprints_over_time"]) == failures
    totals, cost = report["totals"], report["cost"]
    assert (cost["retries"], cost["wasted"]) == (totals["retries"] / 2, totals["wasted"] / 2)
    assert report["consumer_ms"] == {"per_retry": 800, "retries": totals["retries"] * 800, "wasted": totals["wasted"] * 800}


def test_of_each_frequent_failure_there_are_letters_to_look_at_and_the_command_that_does(report: dict, truth: Events) -> None:
    kinds = {row["source"]: (row["team"], row["exception"], row["fingerprint"], row["failed_ms"]) for row in truth.letters}
    for row in report["fingerprints"]:
        assert 1 <= len(row["samples"]) <= 3
        assert row["explain"] == [f"retry explain {source}" for source in row["samples"]]
        seen = [kinds[source] for source in row["samples"]]
        assert {each[:3] for each in seen} == {(row["team"], row["exception"], row["fingerprint"])}
        assert seen[0][3] == row["last_seen_ms"]


def test_what_changed_stands_beside_a_report_of_the_period_before(folder: Path, truth: Events) -> None:
    since_ms = START_MS + 17 * DAY_MS
    found = json.loads(_run("analytics", "report", *period_options(folder, since_ms, truth.until_ms)).stdout)
    before_ms = 2 * since_ms - truth.until_ms
    before = json.loads(_run("analytics", "report", *period_options(folder, before_ms, since_ms)).stdout)
    assert found["before"] == before["period"]
    assert before["period"]["until_ms"] == since_ms
    for report, suffix in ((found, ""), (before, "_before")):
        for name in ("letters", "retries", "recovered", "parked", "expired", "unknown"):
            assert sum(row[name + suffix] for row in found["changed"]) == report["totals"][name]
        for row in report["comparison"]:
            (same,) = [each for each in found["changed"] if each["policy"] == row["policy"]]
            assert same["recovery" + suffix] == row["recovery"]
    # Nobody has touched these policies.
    assert {tuple(row["policy_changes"]) for row in found["changed"]} == {()}
    assert len(found["changed"]) == len(KINDS)
    page = folder / "changed.html"
    _run("analytics", "report", *period_options(folder, since_ms, truth.until_ms), "--html", str(page))
    assert "What changed against the period before?" in page.read_text()


def test_advice_of_the_older_letters_is_tried_on_the_newer_ones(folder: Path, truth: Events) -> None:
    found = json.loads(_run("analytics", "advise", *data_options(folder), "--backtest", "--json").stdout)
    cut_ms = found["period"]["cut_ms"]
    newer = [row for row in truth.letters if row["first_failed_ms"] >= cut_ms]
    tried = found["all"]
    assert (found["period"]["until_ms"], tried["letters"]) == (truth.until_ms, len({row["id"] for row in newer}))
    assert found["fitted"] == LETTERS - tried["letters"]
    assert tried["retries"] == sum(row["decision"] == "retry" for row in newer)
    assert tried["recovered"] == tried["letters"] - sum(row["decision"] == "park" for row in newer)
    assert tried["left_out"] > 0.3 * tried["retries"]
    assert tried["kept_high"] >= 0.99
    assert {row["team"] for row in found["kinds"]} >= {"billing"}
    said = _run("analytics", "advise", *data_options(folder), "--backtest").stdout.splitlines()
    assert said[0].startswith(f"advice of {found['fitted']:,} letters until ")
    assert len(said) == 2 + len(found["kinds"]) + bool(found["delays"])


def test_the_next_week_is_forecast_from_the_days_that_were(report: dict) -> None:
    total, *teams = report["forecast"]
    assert (total["team"], [row["team"] for row in teams]) == (None, sorted(kind.team for kind in KINDS))
    assert total["letters"] == pytest.approx(LETTERS * 7 / 30, rel=0.05)
    assert total["letters"] == pytest.approx(sum(row["letters"] for row in teams))
    for row in report["forecast"]:
        assert row["letters_low"] < row["letters"] < row["letters_high"] < 2 * row["letters"]
        assert row["recovered_low"] <= row["recovered"] <= row["recovered_high"]
    assert report["unwatched"] == []


def test_actions_are_the_largest_of_the_advice_with_their_cost(report: dict, folder: Path) -> None:
    changing = [
        row["saved"] for row in report["worth"] if row["changes"] and row["saved"] >= max(1, 10 * row["recoveries_at_risk"])
    ]
    assert [row["retries"] for row in report["actions"]] == sorted(changing, reverse=True)[:5]
    assert report["actions"]
    for row in report["actions"]:
        assert (row["cost"], row["consumer_ms"]) == (pytest.approx(row["retries"] / 2), pytest.approx(row["retries"] * 800))
        assert row["rule"] and 0 <= row["recoveries_at_risk"] <= 0.01 * (row["recoveries"] or row["letters"])
    about = {"app": "retry", "source": str(folder), "settle_ms": 600_000, "file": None, "version": ""}
    assert report["about"] | {"version": ""} == about


def test_advice_has_fewer_retries_and_keeps_the_recoveries_of_the_truth(advised_report: dict) -> None:
    chances = {(kind.team, kind.exception): _chances(kind) for kind in KINDS}
    before, after, recovers, kept = 0.0, 0.0, 0.0, 0.0
    for row in advised_report["advice"]:
        left = compute_survival(chances[row["team"], row["exception"]])
        before, after = before + sum(left[:-1]), after + sum(left[: row["attempts"]])
        recovers, kept = recovers + 1 - left[-1], kept + 1 - left[row["attempts"]]
        assert 1 - left[row["attempts"]] >= 0.99 * (1 - left[-1])
    assert kept >= 0.99 * recovers
    assert after < 0.7 * before


def test_the_file_that_advise_writes_is_accepted_and_does_what_it_says(advised_report: dict, folder: Path) -> None:
    file = str(advised_report["file"])
    assert _run("policies", "check", file).stdout == f"{file}: 3 teams, 3 topics: OK\n"
    added = [line[1:] for line in advised_report["diff"] if line.startswith("+") and not line.startswith("+++")]
    assert added == [line for line in advised_report["file"].read_text().splitlines() if line not in POLICIES.splitlines()]
    assert "# payments" in advised_report["file"].read_text()
    found = json.loads(_run("analytics", "what-if", file, *data_options(folder), "--json").stdout)
    now, tried = found["now"], found["tried"]
    assert now["letters"] == tried["letters"] == LETTERS
    assert tried["retries"] == pytest.approx(now["retries"] - advised_report["saving"]["retries"], rel=0.02)
    assert tried["recovered"] >= 0.99 * now["recovered"]
    assert tried["recovered_low"] <= tried["recovered"] <= tried["recovered_high"]


def test_the_replay_says_what_was_and_the_file_that_was_tried_is_written_with_what_was_found(
    folder: Path, truth: Events
) -> None:
    tried, new = folder / "tried.yaml", folder / "new.yaml"
    tried.write_text(POLICIES.replace("max_attempts: 8", "max_attempts: 2"))
    found = json.loads(_run("analytics", "what-if", str(tried), *data_options(folder), "--write", str(new), "--json").stdout)
    assert found["now"]["retries"] == pytest.approx(len(truth.sent), rel=0.01)
    assert found["now"]["recovered"] == pytest.approx(truth.recovered.total(), rel=0.01)
    assert found["tried"]["retries"] < found["now"]["retries"]
    assert new.read_text().endswith(tried.read_text())
    head = new.read_text().removesuffix(tried.read_text())
    assert head
    assert all(line.startswith("# ") for line in head.splitlines())
    assert _run("policies", "check", str(new)).stdout.endswith(": OK\n")


def test_the_advice_is_said_in_lines_and_too_little_data_is_refused(folder: Path) -> None:
    said = _run("analytics", "advise", *data_options(folder), "--enough", "2000").stdout.splitlines()
    assert said[0].startswith("0 of ")
    assert all("too few; 500 more" in line for line in said[1:])
    assert len(said) == 1 + len(KINDS)


def test_the_page_is_written_where_it_is_said(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    options = ("--html", str(file), "--retention", "billing.parked=1m")
    assert _run("analytics", "report", "--data", str(folder), *options).stdout == f"{file}\n"
    page = file.read_text()
    plots = ("worth", "incidence_by_attempt", "incidence_by_time", "waste", "lateness")
    assert all(f'id="plot-{name}"' in page for name in plots)
    assert "billing.<wbr>parked" in page.partition("What will Kafka delete?")[2]


def test_what_cannot_be_done_is_said_in_a_line(folder: Path, tmp_path: Path) -> None:
    empty = _run("analytics", "report", "--data", str(tmp_path / "none"), code=1)
    assert "retry analytics ingest" in empty.stderr
    late = _run("analytics", "report", "--data", str(folder), "--since", "2030-01-01T00:00:00Z", code=1)
    assert "earlier --since" in late.stderr
    bad = _run("analytics", "report", "--data", str(folder), "--retention", "x=soon", code=1)
    assert bad.stderr.startswith("--retention x=soon: ")
    gone = _run("analytics", "advise", "--data", str(folder), "--file", str(tmp_path / "gone.yaml"), code=1)
    assert "cannot be read" in gone.stderr


def data_options(folder: Path) -> tuple[str, ...]:
    return "--data", str(folder), "--file", str(folder / "policies.yaml")


def period_options(folder: Path, since_ms: int, until_ms: int) -> tuple[str, ...]:
    return "--data", str(folder), "--since", str(since_ms), "--until", str(until_ms), "--json"


def _chances(kind: Kind) -> list[float]:
    return [kind.recovers(n, delay_ms) for n, delay_ms in enumerate(kind.delays_ms, 1)]


def _run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner(env={"RETRY_POLICIES": None}).invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result
