"""Who may use the API: a file with a line for each token: its team, its SHA-256 in hexadecimal, and until when, if not for ever.

    billing 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 2027-06-30T00:00:00.000+00:00

Two lines of one team are two valid tokens, so that one can take the place of the other. The file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from retry import clock
from retry.errors import SettingsInvalid
from retry.reloaded_file import ReloadedFile

log = logging.getLogger(__name__)

_LINE = re.compile(r"([A-Za-z0-9._-]{1,100})\s+([0-9a-f]{64})(?:\s+(\S+))?")
_TOKEN_BYTES = 32
_ID_CHARACTERS = 8
_SOON_MS = 14 * 86_400_000


class Token(NamedTuple):
    """What is known of a token, which is not the token itself.

    Attributes:
      digest: its SHA-256 in hexadecimal.
      until_ms: when it ends; None for never.
    """

    team: str
    digest: str = ""
    until_ms: int | None = None

    @property
    def id(self) -> str:
        """Which of a team's tokens it is; no secret."""
        return self.digest[:_ID_CHARACTERS]

    def has_ended(self, now_ms: int) -> bool:
        """Whether it is valid no longer."""
        return self.until_ms is not None and now_ms >= self.until_ms


class Tokens:
    """The tokens of the file.

    Raises:
      SettingsInvalid: the file cannot be read, or a line has another form. Later such a file is logged, not used.
    """

    def __init__(self, path: Path) -> None:
        self._file = ReloadedFile("RETRY_API_TOKENS", path, partial(_tokens, path))
        self._told: set[str] = set()

    def find(self, token: str) -> Token | None:
        """Whose token it is, or None; whether it has ended is for the caller to ask. All are compared, so that the time taken
        says nothing."""
        given, found = hashlib.sha256(token.encode()).hexdigest(), None
        for known in self._file.current():
            if hmac.compare_digest(known.digest, given):
                found = known
        if found is not None:
            self._tell_end(found)
        return found

    def _tell_end(self, token: Token) -> None:
        """One line for each token in use that ends soon: whoever uses it cannot know."""
        if token.until_ms is None or token.digest in self._told or not token.has_ended(clock.wall_ms() + _SOON_MS):
            return
        self._told.add(token.digest)
        end = clock.iso(token.until_ms)
        log.warning("token %s of team %s, which is in use, ends at %s; retry api token makes another", token.id, token.team, end)


def _tokens(path: Path, text: str) -> list[Token]:
    return [_token(path, n, line) for n, line in _lines(text)]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for n, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            yield n, line.strip()


def _token(path: Path, n: int, line: str) -> Token:
    match = _LINE.fullmatch(line)
    try:
        if match is None:
            raise ValueError(line)
        return Token(match[1], match[2], None if match[3] is None else _moment_ms(match[3]))
    except ValueError:
        raise SettingsInvalid("RETRY_API_TOKENS", f"{path}:{n}: make the line with retry api token") from None


def _moment_ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return int(moment.timestamp() * 1_000)


def make_token(team: str, until_ms: int | None = None) -> tuple[str, str]:
    """Make a token, for ever or until a time; the token, and its line for the file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    parts = [team, hashlib.sha256(token.encode()).hexdigest()]
    return token, " ".join(parts if until_ms is None else [*parts, clock.iso(until_ms)])
