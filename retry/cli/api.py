"""`retry api`: timers over HTTP."""

from __future__ import annotations

import logging.config
import re
import sys

import click


@click.group(invoke_without_command=True)
@click.pass_context
def api(ctx: click.Context) -> None:
    """Serve the HTTP API of timers until told to stop. Settings come from the environment, RETRY_*; see the README.

    Its tables are in `api` below RETRY_DATA_DIR, so that one machine may have a worker and an API. Workers make the calls.
    """
    if ctx.invoked_subcommand is not None:
        return
    from retry import settings as environment
    from retry.scheduling.timers import server
    from retry.worker.composition import claim
    from retry.worker.logs import LOGGING
    from retry.errors import RetryError

    try:
        settings = environment.from_environment()
        logging.config.dictConfig(LOGGING)
        claim(settings.data_dir / "api")
        server.run(settings)
    except RetryError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


@api.command()
@click.argument("team")
def token(team: str) -> None:
    """Make a token for TEAM: the token on standard error, its line for RETRY_API_TOKENS on standard output."""
    from retry.scheduling.timers.api_tokens import made

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", team):
        raise click.BadParameter(f"{team!r} is no name; use letters, digits, . _ -", param_hint="TEAM")
    secret, line = made(team)
    click.echo(secret, err=True)
    click.echo(line)
