"""Who is signed in: kept here, and in the browser as a random name of it that says nothing.

Where consoles share a key, it is sealed in the browser, so that each of them knows who it is, also after a restart; nobody else
can read or make it. The key is a line of a file that all of these consoles read, of 32 characters at least. Of several lines the
first seals, and all open: a new key is put first, and the old one is removed when the sign-ins that it sealed have ended.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from retry.console.web.rights import Viewer
from retry.errors import SettingsInvalid
from retry.reloaded_file import ReloadedFile, number_lines

_SETTING = "RETRY_CONSOLE_SESSION_KEY"
_KEY_CHARS_MIN, _MAKES = 32, "openssl rand -hex 32 makes one"
# Browsers keep no cookie that is larger.
_COOKIE_BYTES_MAX = 4_000
_HEADER = {"alg": "dir", "enc": "A256GCM"}
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, Any]).decode


class CookieSeal:
    """Seals and opens contents of cookies; raises SettingsInvalid where the file cannot be used.

    Args:
      path: of the file of keys; None has a key of this process alone, with which nothing outlives it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.is_shared = path is not None
        self._file = None if path is None else ReloadedFile(_SETTING, path, partial(_parse_keys, path))
        self._own = [_make_key(secrets.token_urlsafe(_KEY_CHARS_MIN))]

    def seal_content(self, purpose: str, content: Mapping[str, Any]) -> str:
        """Return the text of a cookie, which only `open_content` with the same purpose reads."""
        return jwe.encrypt_compact({**_HEADER, "typ": purpose}, _encode(content), self._keys()[0])

    def open_content(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return what was sealed for a purpose; None where no console with one of these keys has sealed it."""
        if not text.isascii() or len(text) > _COOKIE_BYTES_MAX:
            return None
        for key in self._keys():
            try:
                opened = jwe.decrypt_compact(text, key, algorithms=list(_HEADER.values()))
                return _decode(opened.plaintext or b"") if opened.headers().get("typ") == purpose else None
            except (JoseError, ValueError):
                continue
        return None

    def _keys(self) -> list[OctKey]:
        return self._own if self._file is None else self._file.current()


def _parse_keys(path: Path, text: str) -> list[OctKey]:
    lines = list(number_lines(text))
    for n, line in lines:
        if len(line) < _KEY_CHARS_MIN:
            raise SettingsInvalid(_SETTING, f"{path}:{n}: a key has {_KEY_CHARS_MIN} characters at least; {_MAKES}")
    if not lines:
        raise SettingsInvalid(_SETTING, f"{path} has no key; {_MAKES}")
    return [_make_key(line) for _, line in lines]


def _make_key(text: str) -> OctKey:
    return OctKey.import_key(hashlib.sha256(text.encode()).digest())


SESSIONS_MAX = 10_000
_SECRET_BYTES = 32
_SESSION = "session"
ViewerNow = Callable[[], Viewer | None]


@dataclass(slots=True)
class Session:
    """The sign-in of one person in one browser.

    Attributes:
      viewer: returns the viewer with the rights of now; None where there are none any more, which ends the sign-in.
      until_ms: when the sign-in ends.
      csrf: the token that every form of this sign-in has; on a page it is masked.
    """

    viewer: Callable[[], Viewer | None]
    until_ms: int
    csrf: bytes = field(default_factory=lambda: secrets.token_bytes(_SECRET_BYTES))

    def mask_csrf(self) -> str:
        """Write the token as a form has it: each time otherwise, so that the length of compressed pages tells nothing of it."""
        pad = secrets.token_bytes(_SECRET_BYTES)
        return urlsafe_b64encode(pad + _combine_bytes(pad, self.csrf)).decode()

    def accepts_csrf(self, masked: str) -> bool:
        try:
            both = urlsafe_b64decode(masked)
        except ValueError:
            return False
        return hmac.compare_digest(_combine_bytes(both[:_SECRET_BYTES], both[_SECRET_BYTES:]), self.csrf)


class Sessions:
    """All sign-ins of this process, at most 10,000: one more ends the one that was not seen for longest. Safe from any thread.

    Args:
      seal: with a key that other consoles have, too, cookies say who it is, and are known to all of them.
    """

    def __init__(
        self, lasts_ms: int, clock_ms: Callable[[], int], sessions_max: int = SESSIONS_MAX, seal: CookieSeal | None = None
    ) -> None:
        self._lasts_ms, self._clock_ms, self._max = lasts_ms, clock_ms, sessions_max
        self._seal = seal if seal is not None and seal.is_shared else None
        self._by_digest: OrderedDict[str, Session] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._restore: Callable[[Mapping[str, Any]], ViewerNow | None] = lambda _said: None

    def restore_by(self, restore: Callable[[Mapping[str, Any]], ViewerNow | None]) -> None:
        """Set the function that restores sign-ins of other consoles, and of before a restart.

        The function gets what `begin_session` was given as `said`.
        """
        self._restore = restore

    def begin_session(self, viewer: ViewerNow, said: Mapping[str, Any] | None = None) -> tuple[str, Session]:
        """Sign somebody in; returns the secret of the cookie, and the sign-in. `said` tells another console who it is."""
        session = Session(viewer, self._clock_ms() + self._lasts_ms)
        if self._seal is None or said is None:
            secret = secrets.token_urlsafe(_SECRET_BYTES)
        else:
            secret = self._seal.seal_content(_SESSION, {**said, "csrf": session.csrf.hex(), "until_ms": session.until_ms})
        self._keep_session(_hash_secret(secret), session)
        return secret, session

    def _keep_session(self, digest: str, session: Session) -> Session:
        with self._lock:
            kept = self._by_digest.setdefault(digest, session)
            while len(self._by_digest) > self._max:
                self._by_digest.popitem(last=False)
        return kept

    def _restore_session(self, secret: str, digest: str) -> Session | None:
        """The sign-in of a cookie that another console has given, or this one before it was started again."""
        if self._seal is None or digest in self._ended or (said := self._seal.open_content(_SESSION, secret)) is None:
            return None
        viewer = self._restore(said)
        if viewer is None:
            return None
        return self._keep_session(digest, Session(viewer, int(said["until_ms"]), bytes.fromhex(said["csrf"])))

    def find(self, secret: str) -> tuple[Session, Viewer] | None:
        """Find the sign-in of a cookie and the viewer who signed in; None where the sign-in has ended."""
        digest = _hash_secret(secret)
        with self._lock:
            session = self._by_digest.get(digest)
            if session is not None:
                self._by_digest.move_to_end(digest)
        session = session or self._restore_session(secret, digest)
        viewer = session.viewer() if session is not None and session.until_ms > self._clock_ms() else None
        if session is None or viewer is None:
            self.end_session(secret)
            return None
        return session, viewer

    def end_session(self, secret: str) -> None:
        """End the sign-in of a cookie, and its streams; another console goes by what the browser sends, which has it no more."""
        digest = _hash_secret(secret)
        with self._lock:
            if self._seal is not None:
                self._ended[digest] = None
                while len(self._ended) > self._max:
                    self._ended.popitem(last=False)
            if session := self._by_digest.pop(digest, None):
                # A stream of pages that it holds ends too.
                session.until_ms = 0


def _hash_secret(secret: str) -> str:
    # A dump of the memory has no cookie that could be sent.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _combine_bytes(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))
