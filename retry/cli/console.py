"""`retry console`: the operators' pages."""

from __future__ import annotations

import logging.config

import click

from retry.cli.made_token import UNTIL, check_name_and_end, say_token
from retry.errors import SettingsInvalid

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
    from retry import settings as environment
    from retry.worker.data_directory import claim
    from retry.worker.logs import LOGGING

    try:
        from retry.console import server
    except ModuleNotFoundError as missing:
        raise SettingsInvalid("retry console", f"{_EXTRA} ({missing})") from None
    settings = environment.from_environment()
    logging.config.dictConfig(LOGGING)
    claim(settings.data_dir / "console")
    server.run(settings)


@console.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="TEAM:ROLE", help="viewer, operator or admin of a team; * is every team.")
@click.option("--reveal", "reveal", multiple=True, metavar="TEAM", help="May see payloads of a team; * is every team.")
@UNTIL
def token(name: str, roles: tuple[str, ...], reveal: tuple[str, ...], until: int | None) -> None:
    """Make a token for NAME. The token goes to standard error, its line for RETRY_CONSOLE_TOKENS to standard output."""
    from retry.console.web import granted_roles
    from retry.console.web.token_file import NAME, make_token

    check_name_and_end(NAME, name, "NAME", until)
    words = [",".join(roles), *([f"reveal:{','.join(reveal)}"] if reveal else [])]
    granted = granted_roles.read(words)
    if granted is None:
        raise click.UsageError("give roles as --role payments:operator, teams of payloads as --reveal payments")
    say_token(make_token(name, granted, until))
