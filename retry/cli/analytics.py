"""`retry analytics`: PySpark over what became of every letter."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retry.cli.policies import Duration
from retry.errors import RetryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retry.analytics.datasets import Sets
    from retry.settings import Settings

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MEMORY = click.option(
    "--memory", default="2g", show_default=True, help="Of the local Java process; a cluster is told by spark-submit."
)
_RETRY_TOPIC = click.option("--retry-topic", multiple=True, help="Look for retries here, not where letters say; repeatable.")


def asks(command: _Command) -> _Command:
    """The options of every question: `--data`, `--retry-topic`, `--settle`, `--memory`; see `asked`."""
    data = click.option("--data", metavar="DIR", help="Ask what `ingest` wrote there; else Kafka is read.")
    settle = click.option(
        "--settle", "settle_ms", type=Duration(), default="10m", show_default=True,
        help="How long after its consumer group has passed it a retry can still fail.",
    )  # fmt: skip
    for option in (_MEMORY, settle, _RETRY_TOPIC, data):
        command = option(command)
    return command


@click.group()
def analytics() -> None:
    """What became of every letter, over weeks: Parquet sets, and questions to them or to Kafka itself."""


@analytics.command()
@click.argument("data", metavar="DIR")
@click.option("--continuous", is_flag=True, help="Go on until told to stop, a pass every --every.")
@click.option("--every", "every_ms", type=Duration(), default="10m", show_default=True, help="From one pass to the next.")
@click.option(
    "--batch", "batch_records", type=click.IntRange(1), default=1_000_000, show_default=True, help="Records in a batch, at most."
)
@_RETRY_TOPIC
@_MEMORY
def ingest(data: str, continuous: bool, every_ms: int, batch_records: int, retry_topic: tuple[str, ...], memory: str) -> None:
    """Write what is new on Kafka to the Parquet sets in DIR: letters, retries and positions, each record once.

    It can be ended at any time, and goes on where it stopped. DIR may be a URL of any file system that Spark knows.
    """
    stop = threading.Event()
    with spark("retry-ingest", memory, quick=False) as (session, settings):
        from retry.analytics import spark_kafka_options
        from retry.analytics.ingest import Ingest, Stopped
        from retry.clock import Deadline
        from retry.kafka.topics import names

        # Only now: Spark has a handler of its own. Whoever left in the midst of a call to Java left its answer to the next.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        job = Ingest(
            session, spark_kafka_options.options(settings.bootstrap_servers, settings.kafka), names(settings.app_id).outcomes, place(data),
            retry_topics=retry_topic, batch_records=batch_records, stopping=stop.is_set,
        )  # fmt: skip
        while not stop.is_set():
            next_pass = Deadline(every_ms / 1_000)
            try:
                click.echo(json.dumps(job.run()))
            except Stopped:
                break
            if not continuous:
                break
            stop.wait(next_pass.remaining_s())


@contextmanager
def asked(name: str, data: str | None, retry_topic: tuple[str, ...], memory: str) -> Iterator[tuple[SparkSession, Sets]]:
    """A session and the sets that the options of `asks` name. What goes wrong is said in a line, and ends the process with 1."""
    with spark(name, memory) as (session, settings):
        from retry.analytics import spark_kafka_options, datasets
        from retry.kafka.topics import names

        if data is not None:
            yield session, datasets.from_parquet(session, place(data))
        else:
            options = spark_kafka_options.options(settings.bootstrap_servers, settings.kafka)
            yield session, datasets.from_kafka(session, options, names(settings.app_id).outcomes, retry_topic)


@contextmanager
def spark(name: str, memory: str = "1g", *, quick: bool = True) -> Iterator[tuple[SparkSession, Settings]]:
    """A session, and the settings of the environment. What goes wrong is said in a line, and ends the process with 1."""
    try:
        # Spark is an extra, and loading it takes a second that no other command should wait.
        from retry.analytics.spark_session import session
    except ModuleNotFoundError as missing:
        click.echo(f"{missing.name} is not installed; pip install 'dead-letter-retry[analytics]'", err=True)
        sys.exit(1)
    from retry import settings as environment

    try:
        settings = environment.from_environment()
        with session(name, memory=memory, quick=quick) as made:
            yield made, settings
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def place(data: str) -> str:
    """A folder as Spark's own process finds it, whose working directory is another; on a cluster, as it was told."""
    from retry.settings import submitted

    return data if submitted() or "://" in data else str(Path(data).absolute())
