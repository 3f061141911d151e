"""All answers of `retry analytics report`: what the questions found, what to do, and what became of the last advice."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from retry.cli.analytics_options import Counts, PeriodOptions, causes, count_by_kind, count_each, counts_of
from retry.operations.letter_filter.syntax import quote_text
from retry.settings import from_environment

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
    from retry.analytics.advice.summary import advice_by_kind, saving, worth
    from retry.analytics.decisions import configured_to_ask
    from retry.analytics.findings import findings

    spark = decisions.attempts.sparkSession
    # What is asked at the same time leaves the session as it found it: set up for questions, until both are done.
    with configured_to_ask(decisions, *([] if before is None else [before])), ThreadPoolExecutor(1) as beside:
        counting = beside.submit(counts_of, decisions)
        counting_before = None if before is None else beside.submit(counts_of, before)
        found = findings(spark, decisions, asked.retentions, before)
        counts, counts_before = counting.result(), counting_before.result() if counting_before else Counts([], [])
    kinds, is_cause = count_by_kind(counts), causes(counts)
    advice = advice_by_kind(kinds, None if asked.registry is None else plan_delays(asked.registry, kinds, is_cause))
    totals, period = found["totals"], found["period"]
    bytes_each = totals["bytes"] / totals["retries"] if totals["retries"] else 0.0
    per_retry = PerRetry(bytes_each, asked.cost_per_retry, asked.time_per_retry_ms)
    actions = choose_actions(
        list_advice(advice, is_cause), period_ms=period["until_ms"] - period["since_ms"], per_retry=per_retry, file=asked.file
    )
    then = choose_actions(
        list_advice(advice_by_kind(count_by_kind(counts_before)), causes(counts_before)),
        period_ms=1 if before is None else before.until_ms - before.since_ms,
    )
    return found | {
        "about": _describe_report(asked), **_sum_costs(per_retry, totals),
        "actions": [row | {"console": link_group(asked.console, row, found["fingerprints"])} for row in actions],
        "followed_up": follow_up(then, count_each(counts)), "worth": worth(kinds, advice), "saving": saving(advice),
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

    app_id = from_environment().app_id
    source = build_topic_names(app_id).outcomes if asked.options.data is None else asked.options.data
    file = None if asked.file is None else asked.file[1]
    settle_ms, released = asked.options.settle_ms, version("dead-letter-retry")
    return {"app": app_id, "source": source, "settle_ms": settle_ms, "version": released, "file": file}


def link_group(console: str, action: Mapping[str, Any], fingerprints: list[Answers]) -> str | None:
    """Link to the failures of an action: to its group where all of them are one, else to the list of its groups."""
    if not console:
        return None
    same = [row for row in fingerprints if (row["team"], row["exception"]) == (action["team"], action["exception"])]
    if len(same) == 1 and same[0]["fingerprint"]:
        return f"{console}/failures/{quote(same[0]['fingerprint'], safe='')}"
    terms = " ".join(f"{name}:{quote_text(action[name])}" for name in ("team", "exception"))
    return f"{console}/failures?{urlencode({'q': terms})}"
