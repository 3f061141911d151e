"""Ten lines for mail and chat, the links to the console, and options that cannot be meant."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from retry.__main__ import main
from retry.analytics.text_report import format_summary
from retry.cli.analytics_report import link_group
from retry.operations.letter_filter.parse import parse
from tests.support.findings import findings

HOSTILE = "\x1b[2J\u202e\n" + "x" * 500


def test_the_summary_has_what_to_do_what_became_of_the_last_and_the_change_in_ten_lines() -> None:
    found = findings()
    lines = format_summary(found)
    assert len(lines) == 10
    assert lines[0].startswith("retry: 9,260 letters failed from ") and lines[0].endswith("(before: 9,271)")
    assert [line.removeprefix("To do: ") for line in lines if line.startswith("To do: ")] == [
        row["sentence"] for row in found["actions"][:4]
    ]  # fmt: skip
    assert "Of the 3 actions of the period before: 2 not done, 1 of which none was retried since" in lines
    assert "Forecast of next week, if nothing is changed: 9,100 letters (4,100 to 16,003, 19 of 20 weeks)" in lines
    assert lines[-1] == (
        "Of 77 retries nobody knows yet whether they recovered: no sample of the group has passed them; which one reads x.DLT?"
    )
    more = format_summary(found | {"unwatched": [], "actions": found["actions"] * 3})
    assert len(more) == 10
    assert more[-1].startswith("Data: No committed offsets are known") and more[-1].endswith("(and 4 more about the data)")


def test_the_summary_of_a_first_week_says_that_there_is_nothing_to_do_and_nothing_to_compare_with() -> None:
    nothing: dict[str, Any] = {name: [] if isinstance(each, list) else each for name, each in findings().items()}
    lines = format_summary(nothing | {"before": None, "totals_before": None})
    assert len(lines) == 5
    assert "before:" not in "".join(lines[:3]) and lines[3] == "To do: nothing yet"


def test_no_name_breaks_a_line_of_the_summary() -> None:
    lines = format_summary(findings({"payments": HOSTILE, "com.acme.pay.CardDeclined": HOSTILE, "topic": HOSTILE}))
    assert 3 < len(lines) <= 10
    assert all(line.isprintable() and len(line) < 500 for line in lines)


def test_an_action_links_to_its_group_where_all_its_failures_are_one_and_else_to_the_list_of_them() -> None:
    action, origin = {"team": "shop", "exception": 'a."B\\*'}, "https://retry.example.com"
    row = {**action, "fingerprint": "00ff/x"}
    assert link_group("", action, [row]) is None
    assert link_group(origin, action, [row, row | {"team": "other"}]) == f"{origin}/failures/00ff%2Fx"
    for rows in ([], [row, row | {"fingerprint": "1"}], [row | {"fingerprint": None}]):
        address = urlsplit(link_group(origin, action, rows) or "")
        assert (address.netloc, address.path) == ("retry.example.com", "/failures")
        (asked,) = parse_qs(address.query)["q"]
        assert asked == 'team:"shop" exception:"a.\\"B\\\\\\*"'
        parse(asked, groups=True)


@pytest.mark.parametrize(("options", "told"), [
    (("--text", "--summary"), "give one of --text, --summary and --json"),
    (("--console", "javascript:alert(1)"), "is not scheme://host or scheme://host:port"),
    (("--console", "https://a/b?c"), "is not scheme://host or scheme://host:port"),
])  # fmt: skip
def test_options_that_cannot_be_meant_are_told_before_spark_starts(options: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(main, ["analytics", "report", *options])
    assert result.exit_code == 2
    assert told in result.output
