"""`retry worker`: one process of the service, or several under one."""

from __future__ import annotations

import asyncio
import logging.config
import socket
import sys

import click

_PROCESSES_MAX = 64


@click.command()
@click.option(
    "--adopt-empty-changelog",
    "adopt",
    is_flag=True,
    help="Begin with a changelog that was deleted and made anew; what waited in the old one is gone. Once, not for good.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, _PROCESSES_MAX),
    default=1,
    show_default=True,
    help="So many workers on this machine under one supervisor: one for each core or two. Each has a directory of its own "
    "in RETRY_DATA_DIR; health and metrics of all are at RETRY_HTTP_ADDR.",
)
@click.option(
    "--timers-only", is_flag=True,
    help="Run without a policy file: HTTP timers are called, no dead letters and no tasks are taken in. For all workers or none.",
)
@click.option("--supervised", type=int, hidden=True, help="Inherited socket for health and metrics.")
def worker(*, adopt: bool, processes: int, timers_only: bool, supervised: int | None) -> None:
    """Run one worker until it is told to stop. Settings come from the environment, RETRY_*; see the README."""
    from retry.errors import RetryError

    try:
        if processes > 1:
            sys.exit(_together(processes, adopt=adopt, timers_only=timers_only))
        _alone(adopt=adopt, timers_only=timers_only, listening=supervised)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _alone(*, adopt: bool, timers_only: bool, listening: int | None) -> None:
    from retry.worker import malloc_tuning
    from retry import settings as environment
    from retry.worker import faust_app as shell
    from retry.worker.composition import build
    from retry.scheduling.entry_sources import opened
    from retry.errors import SettingsInvalid
    from retry.worker.supervisor import end_with_supervisor

    settings = environment.from_environment()
    if listening is not None:
        end_with_supervisor()
    malloc_tuning.settle()
    if (settings.policies is None) != timers_only:
        # Whoever forgets the file must not run a fleet that takes in nothing.
        fault = "set, but --timers-only is for no policy file: leave one out" if timers_only else (
            "not set; give the path of the policy file, or --timers-only to call HTTP timers and nothing else"
        )
        raise SettingsInvalid("RETRY_POLICIES", fault)
    engine = build(settings, adopt=adopt, opened=opened(settings))
    shell.run(engine, settings, socket.socket(fileno=listening) if listening is not None else None)


def _together(processes: int, *, adopt: bool, timers_only: bool) -> int:
    from retry import settings as environment
    from retry.worker.logs import LOGGING
    from retry.worker.supervisor import Processes

    settings = environment.from_environment()
    logging.config.dictConfig(LOGGING)
    options = ["--adopt-empty-changelog"] * adopt + ["--timers-only"] * timers_only
    supervisor = Processes(environment.environments(settings, processes), options)
    return asyncio.run(supervisor.run(*settings.http_host_port()))
