"""Who may sign in with a token: a file with a line for each, of `retry console token`; see `retry.http_server.token_file`.

    ada 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 payments:operator,orders:viewer reveal:payments

Whoever has signed in with a token that is gone from the file, or has ended, is signed out.
"""

from __future__ import annotations

import re
from pathlib import Path

from retry.console.web import granted_roles
from retry.console.web.granted_roles import Granted
from retry.console.web.rights import Viewer
from retry.http_server import token_file
from retry.http_server.token_file import FileKind, Token, TokenFile

NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


def _parse_grants(words: list[str]) -> Granted:
    """The roles that a line gives.

    Raises:
      ValueError: they are none.
    """
    if (found := granted_roles.read(words)) is None:
        raise ValueError(words)
    return found


_KIND = FileKind("RETRY_CONSOLE_TOKENS", "retry console token", NAME, _parse_grants)


class Tokens(TokenFile[Granted]):
    """The tokens that may sign in; raises as `TokenFile`."""

    def __init__(self, path: Path) -> None:
        super().__init__(_KIND, path)


def viewer_of(token: Token[Granted]) -> Viewer:
    """Who has a token."""
    return Viewer(token.name, token.granted.roles, token.granted.reveal)


def make_token(name: str, granted: Granted, until_ms: int | None = None) -> tuple[str, str]:
    """Make a token, for ever or until a time; the token, and its line for the file."""
    return token_file.make_token(name, granted.format_grant().split(), until_ms)
