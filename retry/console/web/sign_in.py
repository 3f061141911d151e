"""Who asks: by the cookie of a sign-in, by a token of the API, or, where no sign-in is configured, whoever is on this machine."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import Response

from backoff.rate_limit import Bucket, Limit
from retry.console.web.cookie_seal import CookieSeal
from retry.console.web.oidc import Pending, Person, Provider
from retry.console.web.proxy_sign_in import ProxySignIn
from retry.console.web.rights import LOCAL, Granted, Tokens, Viewer, viewer_of
from retry.console.web.sessions import Session, Sessions, ViewerNow
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


_STATE, _STATE_S = "state", 600
_FAILED = Limit(10, 60_000)
_ADDRESSES_MAX = 10_000


class SignIn:
    """The ways to sign in, and the viewers that cookies and tokens stand for.

    Args:
      tokens: those that may sign in, None where there is no such file.
      provider: where people may sign in, None where there is none.
      seal: with the key of all consoles behind one address; None has one of this process alone.
      proxy: believes a proxy that says who asks. With none of these ways in, everybody who gets here is the local admin.
    """

    def __init__(
        self, sessions: Sessions, tokens: Tokens | None, provider: Provider | None, origin: Origin, clock_ms: Callable[[], int],
        seal: CookieSeal | None = None, proxy: ProxySignIn | None = None,
    ) -> None:
        sessions.restore_by(self._restore_viewer)
        self._seal, self._proxy = seal or CookieSeal(), proxy
        self.sessions, self.tokens, self.provider, self.origin = sessions, tokens, provider, origin
        self._clock_ms = clock_ms
        self._failed: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()
        # Browsers take a cookie with the prefix __Host- over TLS alone, and then no other host can set it.
        self._cookie = "__Host-retry-console" if origin.secure else "retry-console"
        self._state_cookie = f"{self._cookie}-state"

    @property
    def is_open(self) -> bool:
        return self.tokens is None and self.provider is None and self._proxy is None

    def find_session(self, request: Request) -> tuple[Session, Viewer] | None:
        if self._proxy is not None and (found := self._proxy.find_session(request)) is not None:
            return found
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
        return self.sessions.begin_session(partial(self._holder, found.digest), {"token": found.digest})

    def by_provider(self, provider: Provider, person: Person) -> tuple[str, Session]:
        """Sign in who has come back from the provider: the secret of the cookie, and the sign-in."""
        said = {"name": person.name, "values": provider.list_telling(person)}
        return self.sessions.begin_session(partial(provider.find_viewer, person), said)

    def _restore_viewer(self, said: Mapping[str, Any]) -> ViewerNow | None:
        """Who a sealed cookie says it is, by the ways to sign in that this console has; None where it has that way no more."""
        if (digest := said.get("token")) is not None:
            return partial(self._holder, str(digest))
        if (name := said.get("name")) is not None:
            return None if self.provider is None else partial(self.provider.find_viewer, Person(str(name), tuple(said["values"])))
        return (lambda: LOCAL) if self.is_open else None

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
        return self.sessions.begin_session(lambda: LOCAL, {"local": True})

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

    def forget_cookie(self, response: Response) -> None:
        """Have the browser forget who it is: a cookie that is sealed would be known to other consoles."""
        response.delete_cookie(self._cookie, path="/", secure=self.origin.secure, httponly=True, samesite="lax")

    def set_pending(self, response: Response, pending: Pending) -> None:
        """Have the browser keep, sealed, with what it went to the provider."""
        kept, secure = self._seal.seal_content(_STATE, pending._asdict()), self.origin.secure
        response.set_cookie(self._state_cookie, kept, _STATE_S, path="/", secure=secure, httponly=True, samesite="lax")

    def pending_of(self, request: Request) -> Pending | None:
        """With what this browser went to the provider; None where it did not."""
        kept = self._seal.open_content(_STATE, request.cookies.get(self._state_cookie, ""))
        return None if kept is None else Pending(**kept)

    def forget_pending(self, response: Response) -> None:
        """Have the browser forget it: nobody comes back with the same twice."""
        response.delete_cookie(self._state_cookie, path="/", secure=self.origin.secure, httponly=True, samesite="lax")
