"""Who may use the API: a file with a line for each token, its team and its SHA-256 in hexadecimal.

    billing 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

Two lines of one team are two valid tokens, so that one can take the place of the other. The file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from pathlib import Path

from retry import clock
from retry.errors import SettingsInvalid

log = logging.getLogger(__name__)

_LINE = re.compile(r"([A-Za-z0-9._-]{1,100})\s+([0-9a-f]{64})")
_LOOK_EVERY_S = 5.0
_TOKEN_BYTES = 32


class Tokens:
    """The tokens that are valid.

    Raises:
      SettingsInvalid: the file cannot be read, or a line is not such a one. Later a file like that is not used.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._told = path, ""
        self._known = self._read()
        self._look_at_s = clock.monotonic_s() + _LOOK_EVERY_S

    def team(self, token: str) -> str | None:
        """Whose token it is; None where it is nobody's. All are compared, whichever fits."""
        self._look()
        given, found = hashlib.sha256(token.encode()).hexdigest(), None
        for team, digest in self._known:
            if hmac.compare_digest(digest, given):
                found = team
        return found

    def _look(self) -> None:
        if clock.monotonic_s() < self._look_at_s:
            return
        self._look_at_s = clock.monotonic_s() + _LOOK_EVERY_S
        try:
            self._known, self._told = self._read(), ""
        except SettingsInvalid as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("%s; tokens are those of before", error)

    def _read(self) -> list[tuple[str, str]]:
        try:
            lines = [line.strip() for line in self._path.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsInvalid("RETRY_API_TOKENS", f"{self._path} cannot be read: {error}") from error
        found = [(n, _LINE.fullmatch(line)) for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
        for n, match in found:
            if match is None:
                raise SettingsInvalid("RETRY_API_TOKENS", f"{self._path}:{n}: make the line with retry api token")
        return [(match[1], match[2]) for _, match in found if match]


def made(team: str) -> tuple[str, str]:
    """A new token, and its line for the file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return token, f"{team} {hashlib.sha256(token.encode()).hexdigest()}"
