"""`retry mcp`: lets an assistant ask the console, over standard input and output."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import click

from retry.errors import SettingsInvalid

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
        from retry.console.api_client import ConsoleClient
    except ModuleNotFoundError as missing:
        needed = f"mcp and httpx2 are not installed; pip install 'dead-letter-retry[mcp]' ({missing})"
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
