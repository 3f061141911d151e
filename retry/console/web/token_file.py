"""Who may sign in with a token: a file with a line for each, as `retry console token` makes it.

    ada 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 payments:operator,orders:viewer reveal:payments

Two lines of one name are two valid tokens, so that one can take the place of the other. The file is read again when it changes,
and who has signed in with a token that is gone from it is signed out.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import partial
from pathlib import Path
from typing import NamedTuple

from retry.console.web import granted_roles
from retry.console.web.granted_roles import Granted
from retry.console.web.rights import Viewer
from retry.errors import SettingsInvalid
from retry.reloaded_file import ReloadedFile

_SETTING = "RETRY_CONSOLE_TOKENS"
NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TOKEN_BYTES = 32


class TokenLine(NamedTuple):
    """One token that is valid."""

    name: str
    digest: str
    granted: Granted

    def viewer(self) -> Viewer:
        """Who has it."""
        return Viewer(self.name, self.granted.roles, self.granted.reveal)


class Tokens:
    """The tokens that are valid.

    Raises:
      SettingsInvalid: the file cannot be read, or a line has another form. Later such a file is logged, not used.
    """

    def __init__(self, path: Path) -> None:
        self._file = ReloadedFile(_SETTING, path, partial(_lines, path))

    def find(self, token: str) -> TokenLine | None:
        """The line of a token, or None. All are compared, so that the time taken says nothing."""
        given, found = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest(), None
        for line in self._file.current():
            if hmac.compare_digest(line.digest, given):
                found = line
        return found

    def of_digest(self, digest: str) -> TokenLine | None:
        """The line of a token that somebody has signed in with, as it reads now; None where it is gone."""
        return next((line for line in self._file.current() if line.digest == digest), None)


def _lines(path: Path, text: str) -> list[TokenLine]:
    numbered = [(n, line.split()) for n, line in enumerate(text.splitlines(), 1)]
    return [_line(path, n, words) for n, words in numbered if words and not words[0].startswith("#")]


def _line(path: Path, n: int, words: list[str]) -> TokenLine:
    granted = granted_roles.read(words[2:])
    if granted is None or not NAME.fullmatch(words[0]) or not _DIGEST.fullmatch(words[1]):
        raise SettingsInvalid(_SETTING, f"{path}:{n}: make the line with retry console token")
    return TokenLine(words[0], words[1], granted)


def make_token(name: str, granted: Granted) -> tuple[str, str]:
    """Make a token; the token, and its line for the file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return token, f"{name} {hashlib.sha256(token.encode()).hexdigest()} {granted.text()}"
