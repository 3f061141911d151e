"""`retry analytics report`: what became of every retry, on HTML pages, as text, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff import PolicyInvalid, duration_ms
from retry.cli.analytics_answers import Answers, Asked, answer_questions
from retry.cli.analytics_options import JSON, PeriodOptions, decisions_and_before, list_days_missing, period
from retry.cli.output import say, say_json, say_lines, write_file
from retry.cli.policies import Duration
from retry.errors import RetryError
from retry.policies.policy_file import load_with_text
from retry.settings import from_environment

if TYPE_CHECKING:
    from retry.analytics.decisions import Decisions

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
        from retry.analytics.decisions import configured_to_ask
        from retry.analytics.findings import select_team

        if asked.options.data is None:
            asked = asked._replace(retentions={**_retentions_on_kafka(decisions), **asked.retentions})
        whole = answer_questions(asked, decisions, before)
        with configured_to_ask(decisions):
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
    admin, names = client_config.admin(from_environment()), [row["target"] for row in targets.collect()]
    # A topic that is compacted alone keeps what is newest for ever.
    return {
        topic: int(about.config["retention.ms"]) if "delete" in about.config["cleanup.policy"] else -1
        for topic, about in topics.describe(admin, names, optional=True).items() if about.config
    }  # fmt: skip
