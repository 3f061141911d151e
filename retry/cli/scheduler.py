"""`retry scheduler`: scheduled messages, in place of the Go kafka-message-scheduler."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--adopt-empty-changelog",
    "adopt",
    is_flag=True,
    help="Start although the changelog was deleted and created again: what waited in the old one is lost. Give it once.",
)
@click.option("--mini", is_flag=True, help="Run without Kafka: three schedules in memory and the REST API, for tests.")
def scheduler(*, adopt: bool, mini: bool) -> None:
    """Send messages of schedules topics at their time, until stopped.

    Settings come from the environment; see docs/reference/scheduled-messages.md.
    """
    from retry.scheduling.messages import mini as without_kafka
    from retry.scheduling.messages import run
    from retry.scheduling.messages.settings import from_environment
    from retry.worker import process_tuning

    settings = from_environment()
    if mini:
        without_kafka.run(settings)
    else:
        process_tuning.tune()
        run.run(settings, adopt=adopt)
