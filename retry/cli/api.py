"""`retry api`: timers over HTTP."""

from __future__ import annotations

import logging.config

import click

from retry.cli.made_token import UNTIL, check_name_and_end, say_token


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
@UNTIL
def token(team: str, until: int | None) -> None:
    """Make a token for TEAM. The token goes to standard error, its line for RETRY_API_TOKENS to standard output."""
    from retry.scheduling.timers.api_tokens import TEAM, make_token

    check_name_and_end(TEAM, team, "TEAM", until)
    say_token(make_token(team, until_ms=until))
