"""argv → one command, and what it could not do → one line."""

from __future__ import annotations

from retry.distribution import NAME, demand_own_packages

# Before any other import: what stands here under these names may be another package.
demand_own_packages()

import errno
import os
import sys
from typing import Any

import click

from retry.cli.act import act
from retry.cli.actions import actions, audit
from retry.cli.analytics import analytics
from retry.cli.analytics_advise import advise, what_if
from retry.cli.analytics_report import report
from retry.cli.erase import erase
from retry.cli.inspect import inspect, try_letters
from retry.cli.letters import explain, failures, letters
from retry.cli.migrate import migrate
from retry.cli.notifications import notifications
from retry.cli.output import discard_output, say
from retry.cli.pause import pause, pauses, reschedule, resume
from retry.cli.policies import discover, policies, size
from retry.cli.provision import acls, keys, topics
from retry.cli.servers import api, broker, console, scheduler, worker
from retry.cli.tasks import tasks
from retry.cli.verify import verify
from retry.errors import RetryError
from retry.printable import is_text

# What the system says of a file or a terminal that takes no more.
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


class _Commands(click.Group):
    """Whatever a command could not do is told in one line."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in _NOT_WRITTEN:
                raise
            discard_output()
            where = f" to {error.filename}" if error.filename else ""
            say(f"what this command says could not be written{where}: {error.strerror}; write it elsewhere", err=True)
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for place, text in enumerate(args, 1):
            if not is_text(text):
                raise click.UsageError(f"argument {place} is not UTF-8 text: {os.fsencode(text)!r:.60}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except RetryError as error:
            say(str(error), err=True)
        except Exception as error:
            if not (told := _of_brokers(error)):
                raise
            say(told, err=True)
        finally:
            _tell_unreadable()
        sys.exit(1)


def _tell_unreadable() -> None:
    """Say which records of the service's own topics a command has passed over."""
    # Not imported here: most commands read none.
    if read := sys.modules.get("retry.telemetry.unreadable_records"):
        for each in read.UNREADABLE.list_topics():
            say(each.sentence, err=True)


def _of_brokers(error: Exception) -> str:
    """Describe in one sentence what brokers answered, or that none did; empty where the error is of another kind."""
    if isinstance(error, TimeoutError):
        return "no broker answered in time; look at the brokers, then try again"
    # Not imported here: most commands begin sooner without it.
    kafka = sys.modules.get("confluent_kafka")
    if kafka is None or not isinstance(error, kafka.KafkaException):
        return ""
    return f"the brokers answered: {error.args[0].str()}; look at them and at this user's rights, then try again"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=NAME)
def main() -> None:
    """Dead-letter retry for Kafka: every failed message comes back at the right time, exactly once."""


for command in (
    worker, api, scheduler, console, topics, acls, policies, discover, try_letters, size, migrate, inspect, letters, failures,
    explain, pause, resume, pauses, reschedule, act, actions, audit, erase, keys, tasks, notifications, analytics, verify, broker,
):  # fmt: skip
    main.add_command(command)
for question in (report, advise, what_if):
    analytics.add_command(question)

if __name__ == "__main__":
    main()
