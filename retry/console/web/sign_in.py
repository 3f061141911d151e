"""Who asks: by the cookie of a sign-in, by a token of the API, or, where no sign-in is configured, whoever is on this machine."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import Response

from backoff.rate_limit import Bucket, Limit
from retry.console.web.oidc import Provider
from retry.console.web.rights import LOCAL, Granted, Tokens, Viewer, viewer_of
from retry.http_server.token_file import Token

# Whether a request comes from a page of this console: its address, as browsers write it in `Origin`.
#
# A browser sends a form of another site with the cookies of this one; what it cannot do is to send it under our origin.

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Origin(NamedTuple):
    """The address of the console, as browsers see it.

    Attributes:
      secure: whether browsers speak TLS, with the console or with a proxy in front of it.
      url: as the settings say; empty where they do not.
      behind_proxy: whether a proxy that the settings declare is in front, which says whom it asks for.
    """

    secure: bool
    url: str = ""
    behind_proxy: bool = False

    def asker(self, request: Request) -> str:
        """The address of who asks, as far as it is known: what else stands in the header, anybody can have written."""
        forwarded = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip() if self.behind_proxy else ""
        return forwarded or (request.client.host if request.client else "")

    def is_own(self, request: Request) -> bool:
        """Whether a page of this console sent it. Browsers always say where a post comes from."""
        said = request.headers.get("origin", "")
        return bool(said) and said in {f"{'https' if self.secure else 'http'}://{request.headers.get('host', '')}", self.url}


def names_loopback(request: Request) -> bool:
    """Whether it was asked for under a name of loopback: another site can make a name of its own point there."""
    host = request.headers.get("host", "")
    return URL(scope={"path": "/", "headers": [(b"host", host.encode("latin-1"))]}).hostname in _LOOPBACK_NAMES if host else True


# Who is signed in: kept here, and in the browser as a random name of it that says nothing.

SESSIONS_MAX = 10_000
_SECRET_BYTES = 32


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
    """All sign-ins of this process, at most 10,000: one more ends the one that was not seen for longest. Safe from any thread."""

    def __init__(self, lasts_ms: int, clock_ms: Callable[[], int], sessions_max: int = SESSIONS_MAX) -> None:
        self._lasts_ms, self._clock_ms, self._max = lasts_ms, clock_ms, sessions_max
        self._by_digest: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def begin_session(self, viewer: Callable[[], Viewer | None]) -> tuple[str, Session]:
        """Sign somebody in; returns the secret of the cookie, and the sign-in."""
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


def _combine_bytes(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))


def _hash_secret(secret: str) -> str:
    # A dump of the memory has no cookie that could be sent.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


_STATE_S = 600
_FAILED = Limit(10, 60_000)
_ADDRESSES_MAX = 10_000


class SignIn:
    """The ways to sign in, and the viewers that cookies and tokens stand for.

    Args:
      tokens: those that may sign in, None where there is no such file.
      provider: where people may sign in, None where there is none. With neither, everybody who gets here is the local admin.
    """

    def __init__(
        self, sessions: Sessions, tokens: Tokens | None, provider: Provider | None, origin: Origin, clock_ms: Callable[[], int]
    ) -> None:
        self.sessions, self.tokens, self.provider, self.origin = sessions, tokens, provider, origin
        self._clock_ms = clock_ms
        self._failed: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()
        # Browsers take a cookie with the prefix __Host- over TLS alone, and then no other host can set it.
        self._cookie = "__Host-retry-console" if origin.secure else "retry-console"
        self._state_cookie = f"{self._cookie}-state"

    @property
    def is_open(self) -> bool:
        return self.tokens is None and self.provider is None

    def find_session(self, request: Request) -> tuple[Session, Viewer] | None:
        secret = request.cookies.get(self._cookie)
        return self.sessions.find(secret) if secret else None

    def bearer(self, token: str) -> Viewer | None:
        """Who has a token; ask `may_try` before."""
        return self._viewer(self.tokens.find(token) if self.tokens else None)

    def by_token(self, token: str) -> tuple[str, Session] | None:
        """Sign in with a token: the secret of the cookie, and the sign-in; None where it is not valid."""
        found = self.tokens.find(token) if self.tokens else None
        if found is None or self._viewer(found) is None:
            return None
        return self.sessions.begin_session(partial(self._holder, found.digest))

    def why_not(self, token: str) -> str:
        """Why a token cannot sign in, for whoever has it."""
        found = self.tokens.find(token) if self.tokens else None
        if self.tokens is None or found is None:
            return "this token is not valid; retry console token makes one"
        return self.tokens.why_ended(found)

    def _holder(self, digest: str) -> Viewer | None:
        return self._viewer(self.tokens.of_digest(digest) if self.tokens else None)

    def _viewer(self, token: Token[Granted] | None) -> Viewer | None:
        """Who has a token; None where it has ended, which ends what was begun with it."""
        return None if token is None or token.has_ended(self._clock_ms()) else viewer_of(token)

    def local(self) -> tuple[str, Session]:
        return self.sessions.begin_session(lambda: LOCAL)

    def sign_out(self, request: Request) -> None:
        if secret := request.cookies.get(self._cookie):
            self.sessions.end_session(secret)

    def may_try(self, request: Request) -> bool:
        """Whether this address may try to sign in now: ten attempts may fail at once, then one each six seconds. An attempt
        counts as one that failed until `note_success` is called."""
        with self._lock:
            bucket = self._failed.setdefault(self.origin.asker(request), Bucket(_FAILED))
            self._failed.move_to_end(self.origin.asker(request))
            while len(self._failed) > _ADDRESSES_MAX:
                self._failed.popitem(last=False)
            return bucket.take_tokens(1, self._clock_ms()) == 1

    def note_success(self, request: Request) -> None:
        """Note that the address of a request has signed in, so this attempt does not count as failed."""
        with self._lock:
            if bucket := self._failed.get(self.origin.asker(request)):
                bucket.give_back(1)

    def set_cookie(self, response: Response, secret: str) -> None:
        """Have the browser keep who it is until it is closed, or the sign-in ends here."""
        # Without TLS, which is on loopback alone, browsers would not keep a cookie that is Secure.
        response.set_cookie(self._cookie, secret, path="/", secure=self.origin.secure, httponly=True, samesite="lax")

    def set_state(self, response: Response, state: str) -> None:
        """Have the browser keep that it is this one which went to the provider."""
        secure = self.origin.secure
        response.set_cookie(self._state_cookie, state, _STATE_S, path="/", secure=secure, httponly=True, samesite="lax")

    def state_of(self, request: Request) -> str:
        """The state that this browser went to the provider with; empty where it did not."""
        return request.cookies.get(self._state_cookie, "")
