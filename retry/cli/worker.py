"""`retry worker`, `retry scheduler` and `retry broker`: processes that run until they are told to end."""

from __future__ import annotations

import asyncio
import logging.config
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

import click

from retry.cli.output import say
from retry.errors import BrokerNotStarted, SettingsInvalid
from retry.settings import environments, from_environment

_PROCESSES_MAX = 64
_ADOPT = click.option(
    "--adopt-empty-changelog", "adopt", is_flag=True,
    help="Start although the changelog was deleted and created again: what waited in the old one is lost. Give it once.",
)  # fmt: skip


@click.command()
@_ADOPT
@click.option(
    "--processes", type=click.IntRange(1, _PROCESSES_MAX), default=1, show_default=True,
    help="Number of workers on this machine under one supervisor, one for each core or two. Each has a directory of its own "
    "in RETRY_DATA_DIR; health and metrics of all are served at RETRY_HTTP_ADDR.",
)
@click.option(
    "--timers-only", is_flag=True,
    help="Run without a policy file: only HTTP timers are called. Give it to all workers of an app id, or to none.",
)
@click.option(
    "--allow-empty", is_flag=True,
    help="Let a policy file without teams and tasks take the place of one that has some; it is refused otherwise.",
)
@click.option("--supervised", type=int, hidden=True, help="Inherited socket for health and metrics.")
def worker(*, adopt: bool, processes: int, timers_only: bool, allow_empty: bool, supervised: int | None) -> None:
    """Run one worker, or several, until stopped. Settings come from RETRY_* variables; see docs/reference/settings.md."""

    if processes > 1:
        sys.exit(_run_processes(processes, adopt=adopt, timers_only=timers_only, allow_empty=allow_empty))
    _alone(adopt=adopt, timers_only=timers_only, allow_empty=allow_empty, listening=supervised)


def _alone(*, adopt: bool, timers_only: bool, allow_empty: bool, listening: int | None) -> None:
    from retry.process import start
    from retry.process.certificates import register_gauges, renew_on_change
    from retry.scheduling.entry_sources import entry_source_factory
    from retry.worker.composition import build, demand_startable
    from retry.worker.supervisor import end_with_supervisor

    settings = from_environment()
    if listening is not None:
        end_with_supervisor()
    start.tune_process()
    # Before the policy file is read, which may have thousands of teams; what comes of it is frozen once it is all there.
    start.calm_collector()
    if (settings.policies is None) != timers_only:
        # Whoever forgets the file must not run a fleet that takes in nothing.
        fault = "set, but --timers-only is for no policy file: leave one out" if timers_only else (
            "not set; give the path of the policy file, or --timers-only to call HTTP timers and nothing else"
        )
        raise SettingsInvalid("RETRY_POLICIES", fault)
    # A copy: the file itself stays open for this process begun anew.
    own = socket.socket(fileno=os.dup(listening)) if listening is not None else None
    with renew_on_change(settings, partial(demand_startable, settings)) as certificate:
        with ThreadPoolExecutor(1) as beside:
            # Faust takes as long to import as the brokers take to answer what is asked of them here.
            shell = beside.submit(import_module, "retry.worker.faust_app")
            engine = build(settings, adopt=adopt, make_sources=entry_source_factory(settings), allow_empty=allow_empty)
        register_gauges(certificate, engine.metrics.registry)
        shell.result().run(engine, settings, own)


def _run_processes(processes: int, *, adopt: bool, timers_only: bool, allow_empty: bool) -> int:
    from retry.process.logs import LOGGING
    from retry.process.self_restart import ONCE
    from retry.worker.supervisor import Supervisor

    settings = from_environment()
    logging.config.dictConfig(LOGGING)
    options = ["--timers-only"] * timers_only + ["--allow-empty"] * allow_empty
    supervisor = Supervisor(environments(settings, processes), options, [ONCE] * adopt)
    return asyncio.run(supervisor.run(*settings.http_host_port(), settings.http_hosts))


@click.command()
@_ADOPT
@click.option("--mini", is_flag=True, help="Run without Kafka: three schedules in memory and the REST API, for tests.")
def scheduler(*, adopt: bool, mini: bool) -> None:
    """Send messages of schedules topics at their time, until stopped.

    Settings come from the environment; see docs/reference/scheduled-messages.md.
    """
    from retry.process import start
    from retry.scheduling.messages import mini as without_kafka
    from retry.scheduling.messages import run
    from retry.scheduling.messages import settings as environment

    settings = environment.from_environment()
    if mini:
        without_kafka.run(settings)
    else:
        start.tune_process()
        run.run(settings, adopt=adopt)


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), default=9092, show_default=True, help="Port; 0 picks a free one.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("retry-broker"), show_default=True,
    help="Directory for its data.",
)  # fmt: skip
@click.option("--heap-mb", type=click.IntRange(128), default=512, show_default=True, help="Heap of the broker's JVM.")
def broker(port: int, data_dir: Path, heap_mb: int) -> None:
    """Run a real one-node Kafka broker on 127.0.0.1 for development, until stopped."""
    from retry.kafka.local_broker import LocalBroker

    local = LocalBroker(data_dir, port, heap_mb, brief=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with local:
            say(f"broker ready on {local.bootstrap_servers}, data in {local.data_dir}")
            code = local.wait()
            raise BrokerNotStarted(f"the broker's process ended by itself with code {code}; read {local.log_file}")
    except KeyboardInterrupt:
        say("broker stopped")
