"""What `retry analytics report`, `advise` and `what-if` have in common: the period that they are about, and counts of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from retry import clock
from retry.cli.analytics import dataset_options, open_recorded
from retry.cli.options import Moment, add_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retry.analytics.advice.evidence import Evidence, Kind
    from retry.analytics.advice.replay import Start
    from retry.analytics.datasets import Recorded
    from retry.analytics.decisions import Decisions

Row = dict[str, Any]

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class PeriodOptions(NamedTuple):
    """The values of the options that `period` adds."""

    data: str | None
    retry_topic: tuple[str, ...]
    settle_ms: int
    memory: str
    since_ms: int
    until_ms: int | None


# What `PeriodOptions` has.
period = add_options([
    dataset_options,
    click.option(
        "--since", "since_ms", type=Moment(ago=True), default="0",
        help="Only letters whose first failure is since: ISO time, epoch ms, or 7d for seven days ago.",
    ),
    click.option(
        "--until", "until_ms", type=Moment(ago=True), help="What was known then: nothing that was recorded later. As --since."
    ),
])  # fmt: skip


@contextmanager
def read_decisions(name: str, options: PeriodOptions) -> Iterator[tuple[SparkSession, Decisions]]:
    with _open_recorded(name, options) as (spark, recorded):
        from retry.analytics.decisions import build_decisions

        period = recorded.select_period(options.since_ms, options.until_ms)
        yield spark, build_decisions(period, settle_ms=options.settle_ms, since_ms=options.since_ms)


@contextmanager
def decisions_and_before(name: str, options: PeriodOptions) -> Iterator[tuple[Recorded, Decisions, Decisions | None]]:
    """Open a Spark session with the frames of the period, and of the one before, as long and as known at its end; that is None
    without `--since`, or where nothing failed in it."""
    with _open_recorded(name, options) as (_, recorded):
        from retry.analytics.decisions import build_decisions, build_decisions_if_any

        since_ms, settle_ms = options.since_ms, options.settle_ms
        now = build_decisions(recorded.select_period(since_ms, options.until_ms), settle_ms=settle_ms, since_ms=since_ms)
        first_ms = max(0, 2 * since_ms - (options.until_ms or clock.wall_ms()))
        before = recorded.select_period(first_ms, since_ms) if since_ms else None
        yield recorded, now, None if before is None else build_decisions_if_any(before, settle_ms=settle_ms, since_ms=first_ms)


def list_days_missing(recorded: Recorded, since_ms: int, until_ms: int) -> list[str]:
    """List the days of a period, UTC, of which nothing at all was recorded: no letter, no retry, no committed offset."""
    first, last = (datetime.fromtimestamp(ms / 1_000, UTC).date() for ms in (since_ms, until_ms))
    letters, sent, positions = (frame.select("day") for frame in (recorded.letters, recorded.sent, recorded.positions))
    days = letters.unionAll(sent).unionAll(positions).where(f"day between '{first}' and '{last}'").distinct()
    found = {row["day"] for row in days.collect()}
    every = (first + timedelta(days=n) for n in range((last - first).days + 1))
    return [day.isoformat() for day in every if day not in found]


@contextmanager
def split_by_age(name: str, options: PeriodOptions) -> Iterator[tuple[Decisions, Decisions]]:
    """Yield the decisions of the older two thirds of a period, as far as known at their end, and the decisions of the rest.

    Raises:
      RetryError: nothing failed in one of them.
    """
    with _open_recorded(name, options) as (_, recorded):
        from retry.analytics.datasets import find_first_failed_ms
        from retry.analytics.decisions import build_decisions

        period = recorded.select_period(options.since_ms, options.until_ms)
        first_ms = find_first_failed_ms(period, options.since_ms)
        cut_ms = first_ms + (period.until_ms - first_ms) * 2 // 3
        older, newer = recorded.select_period(options.since_ms, cut_ms), recorded.select_period(cut_ms, options.until_ms)
        yield (
            build_decisions(older, settle_ms=options.settle_ms, since_ms=options.since_ms),
            build_decisions(newer, settle_ms=options.settle_ms, since_ms=cut_ms),
        )


@contextmanager
def _open_recorded(name: str, options: PeriodOptions) -> Iterator[tuple[SparkSession, Recorded]]:
    if options.until_ms is not None and options.until_ms <= options.since_ms:
        raise click.UsageError("--until is not after --since")
    with open_recorded(name, options.data, options.retry_topic, options.memory) as opened:
        yield opened


class Counts(NamedTuple):
    """How retries ended: the rows of `count_cells` and `count_episodes` of `retry.analytics.questions.recovery`."""

    cells: list[Row]
    episodes: list[Row]


def counts_of(decisions: Decisions) -> Counts:
    from retry.analytics.decisions import configure_for_questions
    from retry.analytics.questions import recovery

    with configure_for_questions(decisions):
        asked, attempts = (
            (recovery.count_cells, recovery.count_episodes),
            recovery.merge_small_kinds(decisions.attempts, decisions.attempts),
        )
        return Counts(*([row.asDict() for row in ask(attempts, decisions.settled_ms).collect()] for ask in asked))


def count_by_kind(counts: Counts) -> dict[Kind, Evidence]:
    """Count how the retries of each kind of failure ended; topics and policies that do not differ are counted together."""
    from retry.analytics.advice.evidence import pool_evidence

    return pool_evidence(count_each(counts))


def count_each(counts: Counts) -> dict[Kind, Evidence]:
    """Count how the retries of each kind of failure ended, each topic and policy by itself."""
    from retry.analytics.advice.evidence import Cell, Evidence
    from retry.analytics.episodes import Ends, Episode

    cells: dict[Kind, list[Cell]] = {}
    for row in counts.cells:
        cells.setdefault(_kind_of(row), []).append(Cell(*(row[name] for name in Cell._fields)))
    episodes: dict[Kind, list[Episode]] = {}
    for row in counts.episodes:
        ends = (*[Ends()] * (row["attempt"] - 1), Ends(*(row[name] for name in Ends._fields)))
        episode = Episode(row["run_ms"], row["block"], row["start_ms"], row["end_ms"], ends, row["longest_ms"])
        episodes.setdefault(_kind_of(row), []).append(episode)
    return {kind: Evidence.from_cells(each, episodes.get(kind, ())) for kind, each in cells.items()}


def _kind_of(row: Row) -> Kind:
    from retry.analytics.advice.evidence import Kind

    return Kind(row["team"], row["exception"], (row["topic"],), (row["policy"],))


def causes(counts: Counts) -> dict[tuple[str, str, str | None], bool]:
    """Map each team, dead-letter topic and exception to whether the exception is always the root cause."""
    found: dict[tuple[str, str, str | None], bool] = {}
    for row in counts.cells:
        place = row["team"], row["topic"], row["exception"]
        found[place] = found.get(place, True) and row["is_cause"]
    return found


def starts(decisions: Decisions) -> list[Start]:
    """List, for each kind of failure, how many letters failed first in which hour."""
    from retry.analytics.advice.replay import Start
    from retry.analytics.decisions import configure_for_questions
    from retry.analytics.questions import recovery

    with configure_for_questions(decisions):
        histories = recovery.merge_small_kinds(decisions.histories, decisions.attempts)
        return [Start(**row.asDict()) for row in recovery.count_starts(histories).collect()]
