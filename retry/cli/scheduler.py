"""`retry scheduler`: scheduled messages, in place of the Go kafka-message-scheduler."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option(
    "--adopt-empty-changelog",
    "adopt",
    is_flag=True,
    help="Begin with a changelog that was deleted and made anew; what waited in the old one is gone. Once, not for good.",
)
@click.option("--mini", is_flag=True, help="Without Kafka: three schedules in memory and the REST API, for tests that ask it.")
def scheduler(*, adopt: bool, mini: bool) -> None:
    """Send messages of schedules topics at their time, until told to stop. Settings come from the environment; see
    docs/scheduler.md."""
    from retry.worker import malloc_tuning
    from retry.errors import RetryError
    from retry.scheduling.messages import mini as without_kafka
    from retry.scheduling.messages import run
    from retry.scheduling.messages.settings import from_environment

    try:
        settings = from_environment()
        if mini:
            without_kafka.run(settings)
        else:
            malloc_tuning.settle()
            run.run(settings, adopt=adopt)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
