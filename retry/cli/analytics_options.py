"""What `retry analytics report`, `advise` and `what-if` have in common: the period that they are about, and counts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from retry.cli.analytics import dataset_options, open_datasets
from retry.cli.moment import Moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retry.analytics.advice.evidence import Evidence, Kind
    from retry.analytics.advice.replay import Start
    from retry.analytics.decisions import Decisions

Row = dict[str, Any]
_Command = TypeVar("_Command", bound=Callable[..., Any])

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class PeriodOptions(NamedTuple):
    """The values of the options that `period` adds."""

    data: str | None
    retry_topic: tuple[str, ...]
    settle_ms: int
    memory: str
    since_ms: int
    until_ms: int | None


def period(command: _Command) -> _Command:
    """The options of `dataset_options`, `--since` and `--until`; see `PeriodOptions`."""
    since = click.option(
        "--since", "since_ms", type=Moment(ago=True), default="0",
        help="Only letters whose first failure is since: ISO time, epoch ms, or 7d for seven days ago.",
    )  # fmt: skip
    until = click.option(
        "--until", "until_ms", type=Moment(ago=True),
        help="What was known then: nothing that was recorded later. As --since.",
    )  # fmt: skip
    return dataset_options(since(until(command)))


@contextmanager
def decisions_of(name: str, options: PeriodOptions) -> Iterator[tuple[SparkSession, Decisions]]:
    """A Spark session and the frames of the period."""
    if options.until_ms is not None and options.until_ms <= options.since_ms:
        raise click.UsageError("--until is not after --since")
    period = options.since_ms, options.until_ms
    with open_datasets(name, options.data, options.retry_topic, options.memory, *period) as (spark, datasets):
        from retry.analytics.decisions import decisions

        yield spark, decisions(datasets, settle_ms=options.settle_ms, since_ms=options.since_ms)


def cells_of(decisions: Decisions) -> list[Row]:
    """How retries ended, see `retry.analytics.questions.cells`."""
    from retry.analytics.questions import cells

    return [row.asDict() for row in cells.cells(decisions.attempts, decisions.settled_ms).collect()]


def count_by_kind(cells: Iterable[Row]) -> dict[Kind, Evidence]:
    """How the retries of each kind of failure ended; topics and policies that do not differ are counted together."""
    from retry.analytics.advice.evidence import Cell, Evidence, Kind
    from retry.analytics.advice.pooling import pooled

    by_kind: dict[Kind, list[Cell]] = {}
    for row in cells:
        cell = Cell(*(row[name] for name in Cell._fields))
        by_kind.setdefault(Kind(row["team"], row["exception"], (row["topic"],), (row["policy"],)), []).append(cell)
    return pooled({kind: Evidence.of(each) for kind, each in by_kind.items()})


def causes(cells: Iterable[Row]) -> dict[tuple[str, str, str | None], bool]:
    """By team, dead-letter topic and exception, whether this is always the root cause."""
    found: dict[tuple[str, str, str | None], bool] = {}
    for row in cells:
        place = row["team"], row["topic"], row["exception"]
        found[place] = found.get(place, True) and row["is_cause"]
    return found


def starts(decisions: Decisions) -> list[Start]:
    """When letters of each kind failed first."""
    from retry.analytics.advice.replay import Start
    from retry.analytics.questions import cells

    return [Start(**row.asDict()) for row in cells.starts(decisions.histories).collect()]


def write(file: Path, text: str) -> None:
    """Write a file, or say in a line why not."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}; name another file") from None
