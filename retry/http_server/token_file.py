"""Who may ask: a file with a line for each token: a name, its SHA-256 in hexadecimal, what is granted, and when it ends, if ever.

    billing 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 2027-06-30T00:00:00.000+00:00

Two lines of one name are two valid tokens, so that one can take the place of the other. The file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from retry import clock
from retry.errors import SettingsInvalid
from retry.reloaded_file import ReloadedFile, number_lines

log = logging.getLogger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}")
_TOKEN_BYTES = 32
_ID_CHARACTERS = 8
_SOON_MS = 14 * 86_400_000
Grant = TypeVar("Grant")


class Token(NamedTuple, Generic[Grant]):
    """One line of a token file, without the token itself; `granted` is what its other words grant.

    Attributes:
      until_ms: when it ends; None for never.
    """

    name: str
    granted: Grant
    digest: str = ""
    until_ms: int | None = None

    @property
    def id(self) -> str:
        """Which of the tokens of this name it is; no secret."""
        return self.digest[:_ID_CHARACTERS]

    def has_ended(self, now_ms: int) -> bool:
        return self.until_ms is not None and now_ms >= self.until_ms


class FileKind(NamedTuple, Generic[Grant]):
    """The kind of a token file, and the form of its lines.

    Attributes:
      granted: reads what the words between digest and end grant; raises ValueError where they are not valid.
    """

    setting: str
    command: str
    name: re.Pattern[str]
    granted: Callable[[list[str]], Grant]


class TokenFile(Generic[Grant]):
    """The tokens of a file; raises SettingsInvalid where a line cannot be read. Later such a file is logged, and not used."""

    def __init__(self, kind: FileKind[Grant], path: Path) -> None:
        self._kind, self._told = kind, set[str]()
        self._file = ReloadedFile(kind.setting, path, partial(_parse_tokens, kind, path))

    def find(self, token: str) -> Token[Grant] | None:
        """Find the line of a token, or None; whether it has ended is for the caller to ask."""
        given, found = digest_of(token), None
        # All are compared, so that the time taken says nothing.
        for known in self._file.current():
            if hmac.compare_digest(known.digest, given):
                found = known
        if found is not None:
            self._tell_end(found)
        return found

    def of_digest(self, digest: str) -> Token[Grant] | None:
        """Find the token of this digest, as its line reads now; None where it is gone."""
        return next((known for known in self._file.current() if known.digest == digest), None)

    def why_ended(self, token: Token[Grant]) -> str:
        return f"this token has ended at {clock.iso(token.until_ms or 0)}; {self._kind.command} makes another"

    def _tell_end(self, token: Token[Grant]) -> None:
        """One line for each token in use that ends soon: whoever uses it cannot know."""
        if token.until_ms is None or token.digest in self._told or not token.has_ended(clock.wall_ms() + _SOON_MS):
            return
        self._told.add(token.digest)
        end, command = clock.iso(token.until_ms), self._kind.command
        log.warning("token %s of %s, which is in use, ends at %s; %s makes another", token.id, token.name, end, command)


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def make_token(name: str, granted: Sequence[str] = (), until_ms: int | None = None) -> tuple[str, str]:
    """Make a token, for ever or until a time; the token, and its line for the file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    end = [] if until_ms is None else [clock.iso(until_ms)]
    return token, " ".join([name, digest_of(token), *granted, *end])


def _parse_tokens(kind: FileKind[Grant], path: Path, text: str) -> list[Token[Grant]]:
    return [_token(kind, f"{path}:{n}", line.split()) for n, line in number_lines(text)]


def _token(kind: FileKind[Grant], place: str, words: list[str]) -> Token[Grant]:
    name, digest, *granted = words if len(words) > 1 else [*words, ""]
    until_ms = _moment_ms(granted[-1]) if granted else None
    try:
        if not kind.name.fullmatch(name) or not _DIGEST.fullmatch(digest):
            raise ValueError(place)
        return Token(name, kind.granted(granted if until_ms is None else granted[:-1]), digest, until_ms)
    except ValueError:
        raise SettingsInvalid(kind.setting, f"{place}: make the line with {kind.command}") from None


def _moment_ms(text: str) -> int | None:
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return int(moment.timestamp() * 1_000) if moment.tzinfo else None
    return None
