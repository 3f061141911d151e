"""`retry api`: timers over HTTP."""

from __future__ import annotations

import logging.config
import re

import click

from retry.cli.moment import Moment
from retry.cli.output import say


@click.group(invoke_without_command=True)
@click.pass_context
def api(ctx: click.Context) -> None:
    """Serve the HTTP API of timers until stopped. Settings come from RETRY_* variables; see docs/reference/settings.md.

    Its tables are in `api` below RETRY_DATA_DIR, so that one machine may have a worker and an API. Workers make the calls.
    """
    if ctx.invoked_subcommand is not None:
        return
    from retry import settings as environment
    from retry.scheduling.timers import server
    from retry.worker.data_directory import claim
    from retry.worker.logs import LOGGING

    settings = environment.from_environment()
    logging.config.dictConfig(LOGGING)
    claim(settings.data_dir / "api")
    server.run(settings)


@api.command()
@click.argument("team")
@click.option("--until", type=Moment(), help="Until when it is valid: a time, or so long from now, as 90d; else for ever.")
def token(team: str, until: int | None) -> None:
    """Make a token for TEAM. The token goes to standard error, its line for RETRY_API_TOKENS to standard output."""
    from retry.clock import wall_ms
    from retry.scheduling.timers.api_tokens import make_token

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", team):
        raise click.BadParameter(f"{team!r} is no name; use letters, digits, . _ -", param_hint="TEAM")
    if until is not None and until <= wall_ms():
        raise click.BadParameter("it is past", param_hint="--until")
    secret, line = make_token(team, until)
    say(secret, err=True)
    say(line)
