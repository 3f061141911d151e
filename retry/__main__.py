"""argv → one command."""

from __future__ import annotations

import click

from retry.cli.analytics_advise import advise, what_if
from retry.cli.analytics import analytics
from retry.cli.api import api
from retry.cli.broker import broker
from retry.cli.entries import entries
from retry.cli.explain import explain
from retry.cli.inspect import inspect
from retry.cli.analytics_report import page
from retry.cli.pause import pause, pauses, resume
from retry.cli.policies import policies
from retry.cli.report import report
from retry.cli.reschedule import reschedule
from retry.cli.scheduler import scheduler
from retry.cli.tasks import tasks
from retry.cli.topics import topics
from retry.cli.verify import verify
from retry.cli.worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dead-letter-retry")
def main() -> None:
    """Dead-letter retry for Kafka: every failed message comes back at the right time, exactly once."""


for command in (
    worker, api, scheduler, topics, policies, inspect, entries, explain, pause, resume, pauses, reschedule, tasks, report,
    analytics, verify, broker,
):  # fmt: skip
    main.add_command(command)
for question in (page, advise, what_if):
    analytics.add_command(question)

if __name__ == "__main__":
    main()
