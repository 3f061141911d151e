"""What `retry analytics report`, `advise` and `what-if` have in common: the period that they ask of, and counts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from retry.cli.analytics import asked, asks
from retry.cli.entries import Moment
from retry.errors import RetryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retry.analytics.advice.evidence import Evidence, Kind
    from retry.analytics.advice.replay import Start
    from retry.analytics.decisions import Decisions

_Command = TypeVar("_Command", bound=Callable[..., Any])

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Sources(NamedTuple):
    """What the options of `period` say."""

    data: str | None
    retry_topic: tuple[str, ...]
    settle_ms: int
    memory: str
    since_ms: int


def period(command: _Command) -> _Command:
    """The options of `asks`, and `--since`; see `Sources`."""
    since = click.option(
        "--since", "since_ms", type=Moment(ago=True), default="0",
        help="Only letters that failed first since: ISO time, epoch ms, or 7d ago.",
    )  # fmt: skip
    return asks(since(command))


@contextmanager
def decided(name: str, sources: Sources) -> Iterator[tuple[SparkSession, Decisions]]:
    """A session and the frames of the period. What goes wrong is said in a line, and ends the process with 1."""
    with asked(name, sources.data, sources.retry_topic, sources.memory) as (spark, sets):
        from retry.analytics.decisions import decisions

        yield spark, decisions(sets, settle_ms=sources.settle_ms, since_ms=sources.since_ms)


def counted(decisions: Decisions) -> dict[Kind, Evidence]:
    """What is known of each kind of failure."""
    from retry.analytics.advice.evidence import Cell, Evidence, Kind
    from retry.analytics.questions import cells

    found: dict[Kind, list[Cell]] = {}
    for row in cells.cells(decisions.attempts).collect():
        cell = Cell(*(row[name] for name in Cell._fields))
        found.setdefault(Kind(row["team"], row["exception"]), []).append(cell)
    return {kind: Evidence.of(each) for kind, each in found.items()}


def places(decisions: Decisions) -> dict[Kind, tuple[tuple[str, ...], bool]]:
    """The dead-letter topics of each kind, and whether its exception is always the root cause."""
    from retry.analytics.advice.evidence import Kind
    from retry.analytics.questions import cells

    found: dict[Kind, list[tuple[str, bool]]] = {}
    for row in cells.places(decisions.attempts).collect():
        found.setdefault(Kind(row["team"], row["exception"]), []).append((row["topic"], row["is_cause"]))
    return {
        kind: (tuple(sorted(topic for topic, _ in each)), all(is_cause for _, is_cause in each)) for kind, each in found.items()
    }


def starts(decisions: Decisions) -> list[Start]:
    """When letters of each kind failed first."""
    from retry.analytics.advice.replay import Start
    from retry.analytics.questions import cells

    return [Start(**row.asDict()) for row in cells.starts(decisions.histories).collect()]


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong before Spark is started is said in a line, and ends the process with 1."""
    try:
        yield
    except RetryError as error:
        raise click.ClickException(str(error)) from None


def write(file: Path, text: str) -> None:
    """Write a file, or say in a line why not."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}; name another file") from None
