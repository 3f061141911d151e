"""argv → one command."""

from __future__ import annotations

import click

from retry.commands.advise import advise, what_if
from retry.commands.analytics import analytics
from retry.commands.api import api
from retry.commands.broker import broker
from retry.commands.entries import entries
from retry.commands.explain import explain
from retry.commands.inspect import inspect
from retry.commands.page import page
from retry.commands.pause import pause, pauses, resume
from retry.commands.policies import policies
from retry.commands.report import report
from retry.commands.reschedule import reschedule
from retry.commands.scheduler import scheduler
from retry.commands.tasks import tasks
from retry.commands.topics import topics
from retry.commands.verify import verify
from retry.commands.worker import worker


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
