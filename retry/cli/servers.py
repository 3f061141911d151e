"""`retry api` and `retry console`: what answers over HTTP, and the tokens for it."""

from __future__ import annotations

import logging.config
import re

import click

from retry.cli.options import Moment
from retry.cli.output import say
from retry.clock import wall_ms
from retry.errors import SettingsInvalid
from retry.settings import from_environment

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
    """The token to standard error, its line to standard output."""
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
    from retry.process.logs import LOGGING
    from retry.process.start import claim_directory
    from retry.scheduling.timers import server

    settings = from_environment()
    logging.config.dictConfig(LOGGING)
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


_EXTRA = "authlib, jinja2 and joserfc are not installed; pip install 'dead-letter-retry[console]'"


@click.group(invoke_without_command=True)
@click.pass_context
def console(ctx: click.Context) -> None:
    """Serve the operators' pages until stopped: what failed and why, acting on it, and how it recovers.

    Settings come from RETRY_* variables; see docs/reference/settings.md. What is shown is a copy in `console` below
    RETRY_DATA_DIR, which may be deleted at any time. Bound beyond loopback it needs a sign-in and TLS. No worker waits for it.
    """
    if ctx.invoked_subcommand is not None:
        return
    from retry.process.logs import LOGGING
    from retry.process.start import claim_directory

    try:
        from retry.console import server
    except ModuleNotFoundError as missing:
        raise SettingsInvalid("retry console", f"{_EXTRA} ({missing})") from None
    settings = from_environment()
    logging.config.dictConfig(LOGGING)
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
