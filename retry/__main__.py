"""argv → one command, and what it could not do → one line."""

from __future__ import annotations

from retry.distribution import NAME, demand_own_packages

# Before any other import: what stands here under these names may be another package.
demand_own_packages()

from pathlib import Path

import click

from retry.cli.act import act
from retry.cli.actions import actions, audit
from retry.cli.analytics import analytics
from retry.cli.analytics_advise import advise, what_if
from retry.cli.analytics_report import report
from retry.cli.contexts import apply_context, context
from retry.cli.erase import erase
from retry.cli.inspect import inspect, try_letters
from retry.cli.letters import explain, failures, letters
from retry.cli.migrate import migrate
from retry.cli.notifications import notifications
from retry.cli.output import WAITING, say
from retry.cli.pause import pause, pauses, reschedule, resume
from retry.cli.policies import discover, policies, size
from retry.cli.program import Program, completion
from retry.cli.provision import acls, keys, topics
from retry.cli.servers import api, broker, console, mcp, scheduler, worker
from retry.cli.tasks import tasks
from retry.cli.verify import doctor, verify
from retry.settings import list_unknown_variables, set_variables

# These run until they are stopped, and log.
_SERVERS = frozenset({"worker", "api", "scheduler", "console", "mcp", "broker"})


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=NAME)
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="The brokers, whatever the environment or a context says.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", envvar="RETRY_CONFIG", show_envvar=True,
    help="A file of contexts, in the place of ~/.config/dead-letter-retry/contexts.yaml.",
)  # fmt: skip
@click.option(
    "--context", "chosen", metavar="NAME", envvar="RETRY_CONTEXT", show_envvar=True,
    help="The context whose settings count where the environment has none, for this command.",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context, bootstrap_servers: str | None, config: Path | None, chosen: str | None) -> None:
    """Dead-letter retry for Kafka: every failed message comes back at the right time, exactly once.

    These options may stand anywhere. An option goes before the environment, and that before a context.
    """
    for told in list_unknown_variables():
        say(told, err=True)
    if ctx.invoked_subcommand in ("context", "completion"):
        return
    if bootstrap_servers is not None:
        # The scheduler has a name of its own for it.
        set_variables({"RETRY_BOOTSTRAP_SERVERS": bootstrap_servers, "BOOTSTRAP_SERVERS": bootstrap_servers}, over=True)
    apply_context(config, chosen)
    if ctx.invoked_subcommand not in _SERVERS:
        WAITING.tell_progress()


main.add_commands({
    "Attach": [discover, try_letters, inspect, policies, size, migrate],
    "Run": [worker, api, scheduler, console, mcp, broker],
    "Look": [letters, failures, explain, pauses, audit, verify],
    "Act": [act, actions, pause, resume, reschedule, tasks, erase],
    "Analyse": [analytics],
    "Keep": [doctor, topics, acls, keys, notifications, context, completion],
})
for question in (report, advise, what_if):
    analytics.add_command(question)

if __name__ == "__main__":
    main()
