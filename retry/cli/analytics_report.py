"""`retry analytics report`: what became of every retry, on one HTML page, as text, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff import PolicyInvalid, duration_ms
from retry.cli.analytics_options import JSON, PeriodOptions, causes, count_by_kind, counts_of, decisions_and_before, period
from retry.cli.output import say, say_json, say_lines, write_file
from retry.cli.policies import Duration
from retry.errors import RetryError
from retry.policies.policy_file import load
from retry.settings import from_environment

if TYPE_CHECKING:
    from retry.analytics.decisions import Decisions

_PAGE = Path("retry-report.html")


@click.command()
@period
@click.option(
    "--html", "file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help=f"File to write the page to; {_PAGE} where neither --text nor --json is given.",
)  # fmt: skip
@click.option(
    "--file", "now", envvar="RETRY_POLICIES", show_envvar=True,
    help="The policy file of now: what is new in it is not advised away.",
)  # fmt: skip
@click.option("--text", "as_text", is_flag=True, help="Print tables for a terminal. With --html the page is written as well.")
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
@JSON
def report(
    file: Path | None, now: str | None, as_text: bool, retention: Sequence[str], cost_per_retry: float | None,
    time_per_retry_ms: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Write one HTML page: what became of all retries, and which of them are worth making.

    With --text or --json the numbers are printed instead.
    """
    if as_text and as_json:
        raise click.UsageError("give --text or --json, not both")
    if file is None and not (as_text or as_json):
        file = _PAGE
    with ThreadPoolExecutor(1) as beside:
        drawing = None if file is None else beside.submit(_warm_up)
        answers = _compute_answers(now, retention, (cost_per_retry, time_per_retry_ms), PeriodOptions(**options))
    if as_json:
        say_json(answers)
    if as_text:
        from retry.analytics.text_report import format_report

        say_lines(format_report(answers))
    if drawing is not None and file is not None:
        drawing.result()
        from retry.analytics.html.render import render_report

        write_file(file, render_report(answers))
        say(str(file.absolute()), err=as_json)


def _warm_up() -> None:
    from retry.analytics.html.render import warm_up

    warm_up()


def _compute_answers(
    now: str | None, retention: Sequence[str], told: tuple[float | None, int | None], options: PeriodOptions
) -> dict[str, Any]:
    from retry.analytics.advice.forecast import forecast_week
    from retry.analytics.advice.policy_rewrite import list_advice
    from retry.analytics.advice.replay import plan_delays
    from retry.analytics.advice.summary import PerRetry, advice_by_kind, choose_actions, saving, worth

    retentions = _parse_retentions(retention)
    registry = None if now is None else load(now)
    text = None if now is None else Path(now).read_text(encoding="utf-8-sig")
    with decisions_and_before("retry-report", options) as (spark, decisions, before):
        from retry.analytics.decisions import configured_to_ask
        from retry.analytics.findings import findings

        if options.data is None:
            retentions = _retentions_on_kafka(decisions) | retentions
        # What is asked at the same time leaves the session as it found it: set up for questions, until both are done.
        with configured_to_ask(decisions, *filter(None, [before])), ThreadPoolExecutor(1) as beside:
            counting = beside.submit(counts_of, decisions)
            answers = findings(spark, decisions, retentions, before)
            counts = counting.result()
    kinds, is_cause = count_by_kind(counts), causes(counts)
    advice = advice_by_kind(kinds, None if registry is None else plan_delays(registry, kinds, is_cause))
    totals = answers["totals"]
    per_retry = PerRetry(totals["bytes"] / totals["retries"] if totals["retries"] else 0.0, *told)
    costs = {
        name: None if each is None else {"per_retry": each, **{of: totals[of] * each for of in ("retries", "wasted")}}
        for name, each in (("cost", per_retry.cost), ("consumer_ms", per_retry.consumer_ms))
    }
    file = None if text is None or now is None else (text, now)
    actions = choose_actions(list_advice(advice, is_cause), per_retry=per_retry, file=file)
    about = {"about": _describe_report(options), **costs, "actions": actions}
    period = answers["period"]
    forecast = forecast_week(kinds, period["since_ms"], period["until_ms"])
    return answers | about | {"worth": worth(kinds, advice), "saving": saving(advice), "forecast": forecast}


def _describe_report(options: PeriodOptions) -> dict[str, Any]:
    from importlib.metadata import version

    from retry.kafka.topics import build_topic_names

    app_id = from_environment().app_id
    source = build_topic_names(app_id).outcomes if options.data is None else options.data
    return {"app": app_id, "source": source, "settle_ms": options.settle_ms, "version": version("dead-letter-retry")}


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
