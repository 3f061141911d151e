"""Who may use the API of timers: a file of tokens, whose names are those of teams; see `retry.http_server.token_file`."""

from __future__ import annotations

import re
from pathlib import Path

from retry.http_server import token_file
from retry.http_server.token_file import FileKind, TokenFile
from retry.http_server.token_file import make_token as make_token

TEAM = re.compile(r"[A-Za-z0-9._-]{1,100}")
Token = token_file.Token[None]


def _allow_everything(words: list[str]) -> None:
    """A team may do all that there is to its timers.

    Raises:
      ValueError: there is more in the line.
    """
    if words:
        raise ValueError(words)


_KIND = FileKind("RETRY_API_TOKENS", "retry api token", TEAM, _allow_everything)


class Tokens(TokenFile[None]):
    """The tokens of the file; raises as `TokenFile`."""

    def __init__(self, path: Path) -> None:
        super().__init__(_KIND, path)
