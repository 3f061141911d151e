"""`retry analytics advise` and `what-if`: which retries are worth making, and what another policy file would have made of
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from retry.cli import analytics_options
from retry.cli.analytics_options import JSON, PeriodOptions, causes, count_by_kind, counts_of, period, read_decisions
from retry.cli.output import say, say_json, say_lines, write_file
from retry.policies.policy_file import load_with_text, parse

_FILE = click.option("--file", "now", envvar="RETRY_POLICIES", show_envvar=True, required=True, help="The policy file of now.")
_WRITE = click.option(
    "--write", "new", metavar="NEW", type=click.Path(dir_okay=False, path_type=Path), help="Write the policy file here."
)


@click.command()
@period
@_FILE
@_WRITE
@click.option(
    "--keep", type=click.FloatRange(0.5, 1), default=0.99, show_default=True,
    help="Share of the recoveries of each kind of failure that must be kept.",
)  # fmt: skip
@click.option(
    "--enough", type=click.IntRange(30), default=100, show_default=True, help="Letters of a kind needed for advice on it."
)
@click.option(
    "--backtest", "as_backtest", is_flag=True,
    help="Advise from the older two thirds of the period, and show what that would have kept in the newest third.",
)  # fmt: skip
@JSON
def advise(now: str, new: Path | None, keep: float, enough: int, as_backtest: bool, as_json: bool, **options: Any) -> None:
    """Say for each team and exception how many attempts are worth making, and after which delays.

    The rules that this makes are shown as a difference of the policy file, or written to another one with --write.
    """
    if as_backtest:
        if new is not None:
            raise click.UsageError("--backtest writes nothing: leave out --write")
        found = _run_backtest(_read(now), now, keep, enough, PeriodOptions(**options))
        _say(found, _backtest_lines(found), as_json)
        return
    from retry.analytics.advice.policy_rewrite import add_rules, diff_policies, list_advice
    from retry.analytics.advice.replay import plan_delays
    from retry.analytics.advice.summary import choose_advice_by_kind, make_advice_rows, sum_saving

    text = _read(now)
    with read_decisions("retry-advise", PeriodOptions(**options)) as (_, decisions):
        counts = counts_of(decisions)
        kinds, is_cause = count_by_kind(counts), causes(counts)
        advice = choose_advice_by_kind(kinds, plan_delays(parse(text, now), kinds, is_cause), keep=keep, enough=enough)
        rules = list_advice(advice, is_cause)
        changed, added = add_rules(text, now, rules)
    diff = diff_policies(text, now, rules)
    result = {"advice": make_advice_rows(kinds, advice), "saving": sum_saving(advice, keep), "rules": added, "diff": diff}
    _say(result, (*_format_advice(result), *(["", *diff] if diff and new is None else [])), as_json)
    _write(new, changed, as_json)


@click.command("what-if")
@click.argument("tried", metavar="FILE")
@period
@_FILE
@_WRITE
@JSON
def what_if(tried: str, now: str, new: Path | None, as_json: bool, **options: Any) -> None:
    """Show what the policy file FILE would have made of the failures of the period, beside what the present one made of them.

    Compared are retries, recoveries, time to recovery and parked letters.

    With --write the file is written again, with these figures as a comment at its head.
    """
    from retry.analytics.advice.compare import compare_policies, format_comparison

    text = _read(tried)
    registries = parse(_read(now), now), parse(text, tried)
    with read_decisions("retry-what-if", PeriodOptions(**options)) as (_, decisions):
        result = compare_policies(*registries, analytics_options.starts(decisions), count_by_kind(counts_of(decisions)))
    table = format_comparison(result)
    _say(result, table, as_json)
    _write(new, "".join(f"# {line}\n" for line in table) + text, as_json)


def _run_backtest(text: str, now: str, keep: float, enough: int, options: PeriodOptions) -> dict[str, Any]:
    from retry.analytics.advice.compare import backtest
    from retry.analytics.advice.replay import plan_delays
    from retry.analytics.advice.summary import choose_advice_by_kind

    with analytics_options.split_by_age("retry-backtest", options) as (older, newer):
        counts = counts_of(older)
        kinds = count_by_kind(counts)
        advice = choose_advice_by_kind(kinds, plan_delays(parse(text, now), kinds, causes(counts)), keep=keep, enough=enough)
        found = backtest(advice, analytics_options.count_each(counts_of(newer)))
    fitted = sum(each.letters for each in kinds.values())
    period = {"since_ms": older.since_ms, "cut_ms": older.until_ms, "until_ms": newer.until_ms}
    return {"period": period, "fitted": fitted, "keep": keep, **found}


def _backtest_lines(found: dict[str, Any]) -> Iterator[str]:
    from retry.analytics.advice.compare import format_backtest
    from retry.analytics.html.format import noun
    from retry.clock import iso

    cut = iso(found["period"]["cut_ms"])
    letters = f"{found['fitted']:,} {noun(found['fitted'], 'letter')}"
    yield f"advice of {letters} until {cut}, tried on those that failed first since then:"
    yield from format_backtest(found)


def _say(result: dict[str, Any], lines: Iterable[str], as_json: bool) -> None:
    say_json(result) if as_json else say_lines(lines)


def _write(new: Path | None, text: str, as_json: bool) -> None:
    if new is not None:
        write_file(new, text)
        say(str(new.absolute()), err=as_json)


def _read(file: str) -> str:
    """The text of a policy file that can be used."""
    return load_with_text(file)[1]


def _format_advice(result: dict[str, Any]) -> Iterator[str]:
    from retry.analytics.advice.summary import describe_advice
    from retry.analytics.html.format import noun

    saving = result["saving"]
    retries = noun(saving["of"], "retry", "retries")
    part = f"{saving['retries']:,.0f} of {saving['of']:,.0f} {retries} can be left out ({saving['share']:.1%})"
    yield f"{part}; {result['rules']} {noun(result['rules'], 'rule')}"
    for row in result["advice"]:
        where = f" ({row['where']})" if row["where"] else ""
        letters = f"{row['letters']:,} {noun(row['letters'], 'letter')}"
        yield f"{row['team']} {row['exception']!r}{where}: {letters}, {describe_advice(row)}"
