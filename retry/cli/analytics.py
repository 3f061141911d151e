"""`retry analytics`: PySpark over what became of every letter."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retry.cli.options import add_options
from retry.cli.output import say, say_json
from retry.cli.policies import Duration
from retry.distribution import describe_extra
from retry.errors import RetryError
from retry.policies.policy_file import load
from retry.policies.registry import Registry
from retry.settings import Settings, is_submitted, read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retry.analytics.datasets import Recorded

# Some million events. Ten million have 251 MB, and a report on them takes 0.6 of the CPU with Java's second compiler.
LARGE_BYTES = 64 << 20

_MEMORY = click.option(
    "--memory", default="1200m", show_default=True, help="Memory of the local Java process. With spark-submit, set it there."
)
_RETRY_TOPIC = click.option(
    "--retry-topic", multiple=True, help="Read retries from this topic, not from those that the letters name."
)


# The options of every question; see `open_recorded`.
dataset_options = add_options([
    click.option("--data", metavar="DIR", help="Read what `ingest` wrote to DIR, instead of Kafka."),
    _RETRY_TOPIC,
    click.option(
        "--settle", "settle_ms", type=Duration(), default="10m", show_default=True,
        help="How long after its consumer group has committed past it a retry can still fail.",
    ),
    _MEMORY,
])  # fmt: skip


@click.group()
def analytics() -> None:
    """Find out what became of every letter, from Kafka itself or from Parquet files that are kept for longer."""


@analytics.command()
@click.argument("data", metavar="DIR")
@click.option("--continuous", is_flag=True, help="Run until stopped, with a pass every --every.")
@click.option("--every", "every_ms", type=Duration(), default="10m", show_default=True, help="Time from one pass to the next.")
@click.option(
    "--batch", "batch_records", type=click.IntRange(1), default=1_000_000, show_default=True, help="Most records in one batch."
)
@_RETRY_TOPIC
@_MEMORY
def ingest(data: str, continuous: bool, every_ms: int, batch_records: int, retry_topic: tuple[str, ...], memory: str) -> None:
    """Write what is new on Kafka to Parquet files in DIR: letters, retries and committed offsets, each record once.

    Each pass prints how many records it has added. It can be ended at any time, and goes on where it stopped. DIR may be a URL
    of any file system that Spark knows.
    """
    stop = threading.Event()
    with spark("retry-ingest", memory, quick=False) as (session, settings):
        from retry.analytics import spark_kafka_options
        from retry.analytics.ingest import Ingest, Stopped
        from retry.clock import Deadline
        from retry.kafka.topics import build_topic_names

        demand_right_to_outcomes(settings)
        # Only now: Spark has a handler of its own. Whoever left in the midst of a call to Java left its answer to the next.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        job = Ingest(
            session, spark_kafka_options.build_options(settings.bootstrap_servers, settings.kafka),
            build_topic_names(settings.app_id).outcomes, absolute(data),
            retry_topics=retry_topic, batch_records=batch_records, stopping=stop.is_set,
        )  # fmt: skip
        while not stop.is_set():
            next_pass = Deadline(every_ms / 1_000)
            try:
                say_json(job.run())
            except Stopped:
                break
            if not continuous:
                break
            stop.wait(next_pass.remaining_s())


@analytics.command()
@click.argument("data", metavar="DIR")
@click.option(
    "--keep", "keep_ms", type=Duration(), default="6h", show_default=True,
    help="How long files stay that were merged, for whoever reads them.",
)  # fmt: skip
@_MEMORY
def compact(data: str, keep_ms: int, memory: str) -> None:
    """Merge the small files that passes of `ingest` left in DIR, into one for each day and team. Works without a broker.

    It can be ended at any time, and `ingest` and `report` may run beside it. What was merged is deleted by a later run.
    """
    with spark("retry-compact", memory, quick=False, kafka=False) as (session, _):
        from retry.analytics.compact import Compaction

        done = Compaction(session, absolute(data), keep_ms=keep_ms).run()
        say_json({name: each._asdict() for name, each in done.items()})


@analytics.command()
def prepare() -> None:
    """Keep Spark's classes in a file, once for each version of Java and Spark: all other commands here start in half the time.

    The file, of some 170 MB, lies in the cache; its path is printed. To make it takes half a minute and a gigabyte of memory.
    """
    try:
        from retry.analytics.findings import prepare as made
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None
    say(str(made()))


@contextmanager
def open_recorded(
    name: str, data: str | None, retry_topic: tuple[str, ...], memory: str
) -> Iterator[tuple[SparkSession, Recorded]]:
    """Open a Spark session; yield the session, and the recorded outcomes that the options of `dataset_options` name.

    Raises:
      RetryError: it cannot be read, now or when it is asked.
    """
    with spark(name, memory, quick=not is_large(data), kafka=data is None) as (session, settings):
        from retry.analytics import datasets, spark_kafka_options
        from retry.analytics.spark_session import translate_failures
        from retry.kafka.topics import build_topic_names

        outcomes = build_topic_names(settings.app_id).outcomes
        with translate_failures(f"{data or outcomes} cannot be read"):
            if data is not None:
                yield session, datasets.read_parquet(session, absolute(data))
            else:
                demand_right_to_outcomes(settings)
                options = spark_kafka_options.build_options(settings.bootstrap_servers, settings.kafka)
                yield session, datasets.read_kafka(session, options, outcomes, retry_topic)


def demand_right_to_outcomes(settings: Settings) -> None:
    """Ask whether this user may read what is going to be read: Spark takes a topic that it may not see for one that is not there.

    Raises:
      BrokersUnreachable, PolicyFileInvalid: nobody can tell.
      RightMissing: not the outcomes.
    """
    from retry.kafka import client_config
    from retry.process import acls

    registry = load(settings.policies) if settings.policies else Registry()
    acls.demand_rights(client_config.connect_admin(settings), acls.ANALYTICS, acls.resolve_names(settings.app_id, registry))


@contextmanager
def spark(name: str, memory: str = "1g", *, quick: bool = True, kafka: bool = True) -> Iterator[tuple[SparkSession, Settings]]:
    """Open a Spark session; yield the session, and the settings that the environment holds.

    Raises:
      RetryError: Spark is not installed, or a setting is wrong.
    """
    try:
        # Spark is an extra, and loading it takes a second that no other command should wait.
        from retry.analytics.spark_session import open_session
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from None

    settings = read_settings()
    with open_session(name, memory=memory, quick=quick, kafka=kafka) as started:
        yield started, settings


def _not_installed(missing: ModuleNotFoundError) -> RetryError:
    return RetryError(f"{missing.name} is not installed; {describe_extra('analytics')}")


def is_large(data: str | None) -> bool:
    """Whether a folder has so much to read that Java should be fast in the long run, not soon; False where it is not local."""
    size_bytes = 0
    for path in Path(data).rglob("*.parquet") if data and "://" not in data else ():
        # A file may be merged into another meanwhile.
        with suppress(FileNotFoundError):
            size_bytes += path.stat().st_size
        if size_bytes >= LARGE_BYTES:
            return True
    return False


def absolute(data: str) -> str:
    """Make a folder's path absolute, as Spark has another working directory; a URL, or a path on a cluster, stays as given."""
    return data if is_submitted() or "://" in data else str(Path(data).absolute())
