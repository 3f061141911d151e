"""Who may use the API: a file with a line for each token, its team and its SHA-256 in hexadecimal.

    billing 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

Two lines of one team are two valid tokens, so that one can take the place of the other. The file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import partial
from pathlib import Path

from retry.errors import SettingsInvalid
from retry.settings import ReloadedFile

_LINE = re.compile(r"([A-Za-z0-9._-]{1,100})\s+([0-9a-f]{64})")
_TOKEN_BYTES = 32


class Tokens:
    """The tokens that are valid.

    Raises:
      SettingsInvalid: the file cannot be read, or a line has another form. Later such a file is logged, not used.
    """

    def __init__(self, path: Path) -> None:
        self._file = ReloadedFile("RETRY_API_TOKENS", path, partial(_teams_and_digests, path))

    def team(self, token: str) -> str | None:
        """The team whose token it is, or None. All are compared, so that the time taken says nothing."""
        given, owner = hashlib.sha256(token.encode()).hexdigest(), None
        for team, digest in self._file.current():
            if hmac.compare_digest(digest, given):
                owner = team
        return owner


def _teams_and_digests(path: Path, text: str) -> list[tuple[str, str]]:
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1)]
    matches = [(n, _LINE.fullmatch(line)) for n, line in lines if line and not line.startswith("#")]
    for n, match in matches:
        if match is None:
            raise SettingsInvalid("RETRY_API_TOKENS", f"{path}:{n}: make the line with retry api token")
    return [(match[1], match[2]) for _, match in matches if match]


def make_token(team: str) -> tuple[str, str]:
    """Make a token; the token, and its line for the file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return token, f"{team} {hashlib.sha256(token.encode()).hexdigest()}"
