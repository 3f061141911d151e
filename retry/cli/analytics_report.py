"""`retry analytics report`: what became of every retry, what to do, and what became of the last advice.

It is written as HTML pages, as text, or as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import click

from backoff import PolicyInvalid, duration_ms
from retry.cli.analytics_options import (
    JSON,
    Counts,
    PeriodOptions,
    causes,
    count_by_kind,
    count_each,
    counts_of,
    decisions_and_before,
    list_days_missing,
    period,
)
from retry.cli.output import say, say_json, say_lines, write_file
from retry.cli.policies import Duration
from retry.errors import RetryError
from retry.operations.letter_filter.syntax import quote_text
from retry.policies.policy_file import load_with_text
from retry.settings import read_settings

if TYPE_CHECKING:
    from retry.analytics.advice.actions import PerRetry
    from retry.analytics.decisions import Decisions
    from retry.policies.registry import Registry

Answers = dict[str, Any]


class Asked(NamedTuple):
    """The options of a report as they were read and checked.

    Attributes:
      retentions: by topic, how many milliseconds it keeps records.
      file: text and name of the policy file of now; None where there is none.
      console: the address of the console, empty where none was told.
    """

    options: PeriodOptions
    retentions: Mapping[str, int]
    file: tuple[str, str] | None
    registry: Registry | None
    cost_per_retry: float | None
    time_per_retry_ms: int | None
    console: str


def answer_questions(asked: Asked, decisions: Decisions, before: Decisions | None) -> Answers:
    """Answer every question about the letters of a period, and say what to do; `days_missing` is left to who knows of days."""
    from retry.analytics.advice.actions import PerRetry, choose_actions, follow_up
    from retry.analytics.advice.forecast import forecast_week
    from retry.analytics.advice.policy_rewrite import list_advice
    from retry.analytics.advice.replay import plan_delays
    from retry.analytics.advice.summary import choose_advice_by_kind, make_advice_rows, sum_saving
    from retry.analytics.decisions import configure_for_questions
    from retry.analytics.findings import findings

    spark = decisions.attempts.sparkSession
    # What is asked at the same time leaves the session as it found it: set up for questions, until both are done.
    with configure_for_questions(decisions, *([] if before is None else [before])), ThreadPoolExecutor(1) as beside:
        counting = beside.submit(counts_of, decisions)
        counting_before = None if before is None else beside.submit(counts_of, before)
        found = findings(spark, decisions, asked.retentions, before)
        counts, counts_before = counting.result(), counting_before.result() if counting_before else Counts([], [])
    kinds, is_cause = count_by_kind(counts), causes(counts)
    advice = choose_advice_by_kind(kinds, None if asked.registry is None else plan_delays(asked.registry, kinds, is_cause))
    totals, period = found["totals"], found["period"]
    bytes_each = totals["bytes"] / totals["retries"] if totals["retries"] else 0.0
    per_retry = PerRetry(bytes_each, asked.cost_per_retry, asked.time_per_retry_ms)
    actions = choose_actions(
        list_advice(advice, is_cause), period_ms=period["until_ms"] - period["since_ms"], per_retry=per_retry, file=asked.file
    )
    then = choose_actions(
        list_advice(choose_advice_by_kind(count_by_kind(counts_before)), causes(counts_before)),
        period_ms=1 if before is None else before.until_ms - before.since_ms,
    )
    return found | {
        "about": _describe_report(asked), **_sum_costs(per_retry, totals),
        "actions": [row | {"console": link_group(asked.console, row, found["fingerprints"])} for row in actions],
        "followed_up": follow_up(then, count_each(counts)), "worth": make_advice_rows(kinds, advice),
        "saving": sum_saving(advice),
        "forecast": forecast_week(kinds, period["since_ms"], period["until_ms"]),
    }  # fmt: skip


def _sum_costs(per_retry: PerRetry, totals: Mapping[str, Any]) -> Answers:
    return {
        name: None if each is None else {"per_retry": each, **{of: totals[of] * each for of in ("retries", "wasted")}}
        for name, each in (("cost", per_retry.cost), ("consumer_ms", per_retry.consumer_ms))
    }


def _describe_report(asked: Asked) -> Answers:
    from importlib.metadata import version

    from retry.kafka.topics import build_topic_names

    app_id = read_settings().app_id
    source = build_topic_names(app_id).outcomes if asked.options.data is None else asked.options.data
    file = None if asked.file is None else asked.file[1]
    settle_ms, released = asked.options.settle_ms, version("dead-letter-retry")
    return {"app": app_id, "source": source, "settle_ms": settle_ms, "version": released, "file": file}


def link_group(console: str, action: Mapping[str, Any], fingerprints: list[Answers]) -> str | None:
    """Return a link to the failures of an action: to their group where there is just one, else to the list of their groups.

    None where no address of a console is given.
    """
    if not console:
        return None
    same = [row for row in fingerprints if (row["team"], row["exception"]) == (action["team"], action["exception"])]
    if len(same) == 1 and same[0]["fingerprint"]:
        return f"{console}/failures/{quote(same[0]['fingerprint'], safe='')}"
    terms = " ".join(f"{name}:{quote_text(action[name])}" for name in ("team", "exception"))
    return f"{console}/failures?{urlencode({'q': terms})}"


_PAGE = Path("retry-report.html")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+")


def _check_console(_context: click.Context, _option: click.Parameter, url: str) -> str:
    if url and not _ORIGIN.fullmatch(url):
        raise click.BadParameter(f"{url!r} is not scheme://host or scheme://host:port, like https://retry.example.com")
    return url


@click.command()
@period
@click.option(
    "--html", "file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help=f"File to write the page to; {_PAGE} where nothing else is asked for.",
)  # fmt: skip
@click.option(
    "--file", "now", envvar="RETRY_POLICIES", show_envvar=True,
    help="The policy file of now: what is new in it is not advised away.",
)  # fmt: skip
@click.option("--text", "as_text", is_flag=True, help="Print tables for a terminal. With --html the page is written as well.")
@click.option("--summary", "as_summary", is_flag=True, help="Print ten lines at most, for mail and chat.")
@click.option(
    "--retention", metavar="TOPIC=7d", multiple=True,
    help="How long a topic keeps its records. By default Kafka is asked, unless --data is given.",
)  # fmt: skip
@click.option(
    "--cost-per-retry", type=click.FloatRange(0), help="What a retry costs, in any currency: the page says what actions save."
)
@click.option(
    "--time-per-retry", "time_per_retry_ms", type=Duration(),
    help="How long a consumer works on a retry, which is recorded nowhere: the page says how much of that actions save.",
)  # fmt: skip
@click.option(
    "--console", metavar="URL", envvar="RETRY_CONSOLE_URL", show_envvar=True, default="", callback=_check_console,
    help="Address of the console, like https://retry.example.com: actions link to their failures there.",
)  # fmt: skip
@click.option(
    "--pages", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Write a page for each team to this folder, one of all, and index.html that leads to them.",
)  # fmt: skip
@JSON
def report(
    file: Path | None, now: str | None, as_text: bool, as_summary: bool, retention: Sequence[str], cost_per_retry: float | None,
    time_per_retry_ms: int | None, console: str, pages: Path | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Write one HTML page: what became of all retries, and which of them are worth making.

    With --text, --summary or --json the numbers are printed instead, with --pages each team has a page.
    """
    if as_text + as_summary + as_json > 1:
        raise click.UsageError("give one of --text, --summary and --json")
    if file is None and pages is None and not (as_text or as_summary or as_json):
        file = _PAGE
    registry, text = (None, None) if now is None else load_with_text(now)
    named = None if now is None or text is None else (text, now)
    asked = Asked(
        PeriodOptions(**options), _parse_retentions(retention), named, registry, cost_per_retry, time_per_retry_ms, console
    )  # fmt: skip
    with ThreadPoolExecutor(1) as beside:
        drawing = None if file is None and pages is None else beside.submit(_warm_up)
        answers, by_team = _compute_answers(asked, is_by_team=pages is not None)
    if as_json:
        say_json(answers)
    if as_text or as_summary:
        from retry.analytics.text_report import format_report, format_summary

        say_lines(format_report(answers) if as_text else format_summary(answers))
    if drawing is not None:
        drawing.result()
        for path in _write_pages(answers, by_team, file, pages):
            say(str(path.absolute()), err=as_json or as_summary)


def _write_pages(answers: Answers, by_team: Mapping[str, Answers], file: Path | None, pages: Path | None) -> Iterator[Path]:
    """Write what was asked for; returns the page, and the one that leads to those of all teams."""
    from retry.analytics.html.render import render_pages, render_report

    if file is not None:
        write_file(file, render_report(answers))
        yield file
    if pages is not None:
        try:
            pages.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise click.ClickException(f"{pages} cannot be made: {error.strerror}; name another folder") from None
        for name, rendered in render_pages(answers, by_team):
            write_file(pages / name, rendered)
        yield pages / "index.html"


def _warm_up() -> None:
    from retry.analytics.html.render import warm_up

    warm_up()


def _compute_answers(asked: Asked, *, is_by_team: bool) -> tuple[Answers, dict[str, Answers]]:
    """Answer about all letters; and about those of each team alone, where that is asked."""
    with decisions_and_before("retry-report", asked.options) as (recorded, decisions, before):
        from retry.analytics.decisions import configure_for_questions
        from retry.analytics.findings import select_team

        if asked.options.data is None:
            asked = asked._replace(retentions={**_retentions_on_kafka(decisions), **asked.retentions})
        whole = answer_questions(asked, decisions, before)
        with configure_for_questions(decisions):
            days = {"days_missing": list_days_missing(recorded, **whole["period"])}
        by_team = {
            team: answer_questions(asked, select_team(decisions, team), before and select_team(before, team)) | days
            for team in (row["team"] for row in (whole["teams"] if is_by_team else ()))
        }  # fmt: skip
    return whole | days, by_team


def _parse_retentions(options: Sequence[str]) -> dict[str, int]:
    """Parse options such as `TOPIC=7d` into milliseconds by topic; raises RetryError where one cannot be read."""
    retentions = {}
    for option in options:
        topic, _, duration = option.partition("=")
        try:
            retentions[topic] = duration_ms(duration)
        except PolicyInvalid as invalid:
            raise RetryError(f"--retention {option}: {invalid.reason}") from None
    return retentions


def _retentions_on_kafka(decisions: Decisions) -> dict[str, int]:
    """Ask Kafka how many milliseconds it keeps records of each topic that letters went to; below 0 for ever."""
    from retry.kafka import client_config, topics

    targets = decisions.attempts.select("target").union(decisions.parked.select("target")).distinct()
    admin, names = client_config.connect_admin(read_settings()), [row["target"] for row in targets.collect()]
    # A topic that is compacted alone keeps what is newest for ever.
    return {
        topic: int(about.config["retention.ms"]) if "delete" in about.config["cleanup.policy"] else -1
        for topic, about in topics.describe(admin, names, optional=True).items() if about.config
    }  # fmt: skip
