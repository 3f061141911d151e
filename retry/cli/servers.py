"""`retry worker`, `scheduler`, `broker`, `api`, `console` and `mcp`, which run until told to end; tokens and keys for them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from retry.cli.options import Moment
from retry.cli.output import say
from retry.clock import wall_ms
from retry.distribution import describe_extra
from retry.errors import BrokerNotStarted, SettingsInvalid
from retry.settings import read_settings, split_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retry.intake.entry_source import EntrySource, MakeSources, QueueLimits
    from retry.policies.registry import Registry
    from retry.settings import Settings

# What the commands that make tokens have in common: until when one is valid, and how it is said.

UNTIL = click.option("--until", type=Moment(), help="Until when it is valid: a time, or so long from now, as 90d; else for ever.")


def check_name_and_end(pattern: re.Pattern[str], name: str, hint: str, until: int | None) -> None:
    """Go on only with a name that is one, and an end that is not past; raises BadParameter otherwise."""
    if not pattern.fullmatch(name):
        others = "@ " if "@" in pattern.pattern else ""
        raise click.BadParameter(f"{name!r} is no name; use letters, digits, . _ {others}-", param_hint=hint)
    if until is not None and until <= wall_ms():
        raise click.BadParameter("it is past", param_hint="--until")


def say_token(made: tuple[str, str]) -> None:
    """Print a new secret to standard error, and the line that its file needs to standard output."""
    secret, line = made
    say(secret, err=True)
    say(line)


@click.group(invoke_without_command=True)
@click.pass_context
def api(ctx: click.Context) -> None:
    """Serve the HTTP API of timers until stopped. Settings come from RETRY_* variables; see docs/reference/settings.md.

    Its tables are in `api` below RETRY_DATA_DIR, so that one machine may have a worker and an API. Workers make the calls.
    """
    if ctx.invoked_subcommand is not None:
        return
    from retry.process.logs import build_logging, configure_logs
    from retry.process.start import claim_directory
    from retry.scheduling.timers import server

    settings = read_settings()
    configure_logs(build_logging(settings.log_format, settings.log_level))
    claim_directory(settings.data_dir / "api")
    server.run(settings)


@api.command("token")
@click.argument("team")
@UNTIL
def api_token(team: str, until: int | None) -> None:
    """Make a token for TEAM. The token goes to standard error, its line for RETRY_API_TOKENS to standard output."""
    from retry.scheduling.timers.callers import TEAM, make_token

    check_name_and_end(TEAM, team, "TEAM", until)
    say_token(make_token(team, until_ms=until))


@api.command("secret")
@click.argument("team")
@click.option("--asymmetric", is_flag=True, help="Make an Ed25519 key (v1a): receivers can verify with it, and not sign.")
def api_secret(team: str, *, asymmetric: bool) -> None:
    """Make a key that signs webhooks of TEAM, or of @TARGET of notifications.

    What receivers verify with goes to standard error, the line for RETRY_WEBHOOK_SECRETS to standard output.
    """
    from retry.http_client.signatures import NAME, make_key

    check_name_and_end(NAME, team, "TEAM", None)
    for_receivers, key = make_key(asymmetric=asymmetric)
    say_token((for_receivers, f"{team} {key}"))


@click.group(invoke_without_command=True)
@click.pass_context
def console(ctx: click.Context) -> None:
    """Serve the operators' pages until stopped: what failed and why, acting on it, and how it recovers.

    Settings come from RETRY_* variables; see docs/reference/settings.md. What is shown is a copy in `console` below
    RETRY_DATA_DIR, which may be deleted at any time. Bound beyond loopback it needs a sign-in and TLS. No worker waits for it.
    """
    if ctx.invoked_subcommand is not None:
        return
    from retry.process.logs import build_logging, configure_logs
    from retry.process.start import claim_directory

    try:
        from retry.console import server
    except ModuleNotFoundError as missing:
        extra = f"authlib, jinja2 and joserfc are not installed ({missing}); {describe_extra('console')}"
        raise SettingsInvalid("retry console", extra) from None
    settings = read_settings()
    configure_logs(build_logging(settings.log_format, settings.log_level))
    claim_directory(settings.data_dir / "console")
    server.run(settings)


@console.command("token")
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="TEAM:ROLE", help="viewer, operator or admin of a team; * is every team.")
@click.option("--reveal", "reveal", multiple=True, metavar="TEAM", help="May see payloads of a team; * is every team.")
@UNTIL
def console_token(name: str, roles: tuple[str, ...], reveal: tuple[str, ...], until: int | None) -> None:
    """Make a token for NAME. The token goes to standard error, its line for RETRY_CONSOLE_TOKENS to standard output."""
    from retry.console.web import rights

    check_name_and_end(rights.TOKEN_NAME, name, "NAME", until)
    words = [",".join(roles), *([f"reveal:{','.join(reveal)}"] if reveal else [])]
    granted = rights.read_roles(words)
    if granted is None:
        raise click.UsageError("give roles as --role payments:operator, teams of payloads as --reveal payments")
    say_token(rights.make_token(name, granted, until))


_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--console", "url", default="http://127.0.0.1:8082", show_default=True, help="Address of the console.")
@click.option("--token-file", type=_FILE, help="File with a token of `retry console token`; a console on loopback may need none.")
@click.option("--authorities", type=_FILE, help="File of the certificates that the console's is trusted by.")
@click.option("--read-only", is_flag=True, help="Offer no actions, although the token's role allows them.")
@click.option("--reveal", is_flag=True, help="Offer payloads, where the token may reveal them. Each look is in the audit.")
def mcp(*, url: str, token_file: Path | None, authorities: Path | None, read_only: bool, reveal: bool) -> None:
    """Serve an assistant the console's data and actions by the Model Context Protocol, on standard input and output.

    It may what the token may: it reads, and where the role is operator, previews and starts actions.
    """
    try:
        from retry.console import mcp_server
        from retry.console.mcp_server import ConsoleClient
    except ModuleNotFoundError as missing:
        needed = f"mcp and httpx2 are not installed ({missing}); {describe_extra('mcp')}"
        raise SettingsInvalid("retry mcp", needed) from None
    client = ConsoleClient(url, _read_token(token_file) if token_file else "", authorities)
    version = metadata.version("dead-letter-retry")
    mcp_server.build_server(client, version, acts=not read_only, reveals=reveal).run("stdio")


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}", param_hint="--token-file") from None
    if not (token.isascii() and token.isprintable() and token and " " not in token):
        raise click.BadParameter(f"{path} is not a token in one line", param_hint="--token-file")
    return token


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
    from retry.process.logs import build_logging, configure_logs
    from retry.worker.composition import build, demand_startable
    from retry.worker.supervisor import end_with_supervisor

    settings = read_settings()
    configure_logs(build_logging(settings.log_format, settings.log_level))
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
            engine = build(settings, adopt=adopt, make_sources=_entry_source_factory(settings), allow_empty=allow_empty)
        register_gauges(certificate, engine.metrics.registry)
        shell.result().run(engine, settings, own)


def _entry_source_factory(settings: Settings) -> MakeSources:
    """Return the function that makes the entry sources anew under each policy file; schemas are kept.

    Raises:
      SettingsInvalid: the registry's client cannot be used as it is; or, when the entry sources are made, there is none.
    """
    from retry.kafka.schema_registry import Schemas
    from retry.kafka.topics import build_topic_names
    from retry.scheduling.tasks.entry_source import TasksSource
    from retry.scheduling.tasks.formats import CONFLUENT, Reader
    from retry.scheduling.timers.entry_source import TimersSource

    reader = Reader(Schemas(settings.registry))

    def sources(registry: Registry, limits: QueueLimits) -> Sequence[EntrySource]:
        if registry.tasks is None:
            return [TimersSource()]
        if registry.tasks.format == CONFLUENT and not settings.registry:
            raise SettingsInvalid("RETRY_REGISTRY_URL", "not set, but tasks.format of the policy file is confluent")
        return [TasksSource(registry.tasks, reader, build_topic_names(settings.app_id).parked, limits), TimersSource()]

    return sources


def _run_processes(processes: int, *, adopt: bool, timers_only: bool, allow_empty: bool) -> int:
    from retry.process.logs import build_logging, configure_logs
    from retry.process.self_restart import ONCE
    from retry.worker.supervisor import Supervisor

    settings = read_settings()
    configure_logs(build_logging(settings.log_format, settings.log_level))
    options = ["--timers-only"] * timers_only + ["--allow-empty"] * allow_empty
    supervisor = Supervisor(split_environment(settings, processes), options, [ONCE] * adopt)
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

    settings = environment.read_scheduler_settings()
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
