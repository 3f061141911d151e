"""Who is signed in: kept here, and in the browser as a random name of it that says nothing."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from retry.console.web.rights import Viewer

SESSIONS_MAX = 10_000
_SECRET_BYTES = 32


@dataclass(slots=True)
class Session:
    """The sign-in of one person in one browser.

    Attributes:
      viewer: returns the viewer with the rights of now; None where there are none any more, which ends the sign-in.
      csrf: the token that every form of this sign-in has.
      until_ms: when the sign-in ends.
    """

    viewer: Callable[[], Viewer | None]
    until_ms: int
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_SECRET_BYTES))


class Sessions:
    """All sign-ins of this process, at most 10,000: one more ends the one that was not seen for longest. Safe from any thread.

    Args:
      lasts_ms: how long each lasts.
    """

    def __init__(self, lasts_ms: int, clock_ms: Callable[[], int], sessions_max: int = SESSIONS_MAX) -> None:
        self._lasts_ms, self._clock_ms, self._max = lasts_ms, clock_ms, sessions_max
        self._by_digest: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def begin_session(self, viewer: Callable[[], Viewer | None]) -> tuple[str, Session]:
        """Sign somebody in; the secret of the cookie, and the sign-in."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        session = Session(viewer, self._clock_ms() + self._lasts_ms)
        with self._lock:
            self._by_digest[_hash_secret(secret)] = session
            while len(self._by_digest) > self._max:
                self._by_digest.popitem(last=False)
        return secret, session

    def find(self, secret: str) -> tuple[Session, Viewer] | None:
        """The sign-in of a cookie and who it is; None where it has ended."""
        digest = _hash_secret(secret)
        with self._lock:
            session = self._by_digest.get(digest)
            if session is not None:
                self._by_digest.move_to_end(digest)
        viewer = session.viewer() if session is not None and session.until_ms > self._clock_ms() else None
        if session is None or viewer is None:
            self.end_session(secret)
            return None
        return session, viewer

    def end_session(self, secret: str) -> None:
        """End the sign-in of a cookie, and its streams."""
        with self._lock:
            if session := self._by_digest.pop(_hash_secret(secret), None):
                # A stream of pages that it holds ends too.
                session.until_ms = 0


def _hash_secret(secret: str) -> str:
    # A dump of the memory has no cookie that could be sent.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
