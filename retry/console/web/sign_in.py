"""Who asks: by the cookie of a sign-in, by a token of the API, as a proxy says, or, without any of these, who is on this machine.

A proxy in front of the console is for companies whose people are in LDAP, say. It is not believed unless the settings name its
addresses, a file with a secret that it sends, and a file of roles. A request is believed only where it comes from one of these
addresses and has the secret; of any other the headers mean nothing.

| header | what the proxy says |
| --- | --- |
| `X-Retry-Proxy-Secret` | the secret: that the proxy itself wrote these headers |
| `X-Forwarded-User` | who it is, as audit and notes have it |
| `X-Forwarded-Groups` | the groups that lines of the file of roles are about, by commas |
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import Response

from backoff.rate_limit import Bucket, Limit
from retry.console.web.oidc import Pending, Person, Provider, RolesOfClaims
from retry.console.web.rights import LOCAL, Granted, Tokens, Viewer, viewer_of
from retry.console.web.sessions import SESSIONS_MAX, CookieSeal, Session, Sessions, ViewerNow
from retry.errors import SettingsInvalid
from retry.http_server.token_file import Token
from retry.printable import escape_unprintable
from retry.reloaded_file import ReloadedFile

SECRET, USER, GROUPS = "x-retry-proxy-secret", "x-forwarded-user", "x-forwarded-groups"
_SECRET_CHARS_MIN = 32
Network = IPv4Network | IPv6Network


class ProxySignIn:
    """Who a proxy says it is; raises SettingsInvalid where the file of its secret cannot be used. Safe from any thread.

    Args:
      networks: where the proxy's connections come from.
      lasts_ms: how long a page stays open that asks no more: the proxy is not heard of it.
    """

    def __init__(
        self, networks: Sequence[Network], secret: Path, roles: RolesOfClaims, lasts_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        self._networks, self._roles, self._lasts_ms, self._clock_ms = networks, roles, lasts_ms, clock_ms
        self._secret = ReloadedFile("RETRY_CONSOLE_PROXY_SECRET", secret, partial(_parse_secret, secret))
        self._sessions: OrderedDict[Person, Session] = OrderedDict()
        self._lock = threading.Lock()

    def find_session(self, request: Request) -> tuple[Session, Viewer] | None:
        """Find the sign-in of a request through the proxy; None for a request not from there, or a person without a role."""
        person = self._find_person(request)
        viewer = None if person is None else self._find_viewer(person)
        return None if person is None or viewer is None else (self._session_of(person), viewer)

    def _find_person(self, request: Request) -> Person | None:
        secrets, users = request.headers.getlist(SECRET), request.headers.getlist(USER)
        if not self._is_proxy(request) or len(secrets) != 1 or len(users) != 1:
            return None
        if not hmac.compare_digest(secrets[0].encode(), self._secret.current().encode()):
            return None
        groups = (group.strip() for said in request.headers.getlist(GROUPS) for group in said.split(","))
        name = escape_unprintable(users[0].strip(), 100)
        return Person(name, tuple(filter(None, groups))) if name else None

    def _is_proxy(self, request: Request) -> bool:
        try:
            address = ip_address(request.client.host if request.client else "")
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def _find_viewer(self, person: Person) -> Viewer | None:
        granted = self._roles.find_grants(person.values)
        return Viewer(person.name, granted.roles, granted.reveal) if granted.roles else None

    def _session_of(self, person: Person) -> Session:
        """One for all that this person asks, with a token for forms that every console behind this proxy makes alike."""
        until_ms = self._clock_ms() + self._lasts_ms
        token = hmac.new(self._secret.current().encode(), f"forms of {person.name}".encode(), hashlib.sha256).digest()
        with self._lock:
            session = self._sessions.get(person)
            if session is None or session.csrf != token:
                session = self._sessions[person] = Session(partial(self._find_viewer, person), until_ms, token)
            session.until_ms = until_ms
            self._sessions.move_to_end(person)
            while len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
        return session


def parse_networks(text: str) -> list[Network]:
    """Parse addresses and networks by commas, as `10.0.0.5,10.1.0.0/24`; raises SettingsInvalid."""
    try:
        return [ip_network(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise SettingsInvalid("RETRY_CONSOLE_PROXY_FROM", f"{error}; write addresses as 10.0.0.5,10.1.0.0/24") from None


def _parse_secret(path: Path, text: str) -> str:
    secret = text.strip()
    if len(secret) < _SECRET_CHARS_MIN or not secret.isascii() or not secret.isprintable() or " " in secret:
        reason = f"{path} has no secret of {_SECRET_CHARS_MIN} ASCII characters at least; openssl rand -hex 32 makes one"
        raise SettingsInvalid("RETRY_CONSOLE_PROXY_SECRET", reason)
    return secret


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
        """Return the client address of a request as far as known, else empty; anybody can forge the rest of the header."""
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
        """Find the viewer who has a token; None where the token is not valid. Call `take_attempt` before."""
        return self._viewer(self.tokens.find(token) if self.tokens else None)

    def begin_with_token(self, token: str) -> tuple[str, Session] | None:
        """Sign in with a token: the secret of the cookie, and the sign-in; None where it is not valid."""
        found = self.tokens.find(token) if self.tokens else None
        if found is None or self._viewer(found) is None:
            return None
        return self.sessions.begin_session(partial(self._holder, found.digest), {"token": found.digest})

    def begin_with_provider(self, provider: Provider, person: Person) -> tuple[str, Session]:
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

    def explain_refusal(self, token: str) -> str:
        """Explain to the holder of a token why the token cannot sign in."""
        found = self.tokens.find(token) if self.tokens else None
        if self.tokens is None or found is None:
            return "this token is not valid; retry console token makes one"
        return self.tokens.why_ended(found)

    def _holder(self, digest: str) -> Viewer | None:
        return self._viewer(self.tokens.of_digest(digest) if self.tokens else None)

    def _viewer(self, token: Token[Granted] | None) -> Viewer | None:
        """Who has a token; None where it has ended, which ends what was begun with it."""
        return None if token is None or token.has_ended(self._clock_ms()) else viewer_of(token)

    def begin_locally(self) -> tuple[str, Session]:
        return self.sessions.begin_session(lambda: LOCAL, {"local": True})

    def sign_out(self, request: Request) -> None:
        if secret := request.cookies.get(self._cookie):
            self.sessions.end_session(secret)

    def take_attempt(self, request: Request) -> bool:
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
        """Set the cookie of a sign-in, which the browser keeps until it is closed, or the sign-in ends here."""
        # Without TLS, which is on loopback alone, browsers would not keep a cookie that is Secure.
        response.set_cookie(self._cookie, secret, path="/", secure=self.origin.secure, httponly=True, samesite="lax")

    def forget_cookie(self, response: Response) -> None:
        """Delete the cookie of a sign-in from the browser: other consoles would still know a sealed cookie."""
        response.delete_cookie(self._cookie, path="/", secure=self.origin.secure, httponly=True, samesite="lax")

    def set_pending(self, response: Response, pending: Pending) -> None:
        """Set a sealed cookie with the sign-in that the browser has begun at the identity provider."""
        kept, secure = self._seal.seal_content(_STATE, pending._asdict()), self.origin.secure
        response.set_cookie(self._state_cookie, kept, _STATE_S, path="/", secure=secure, httponly=True, samesite="lax")

    def pending_of(self, request: Request) -> Pending | None:
        """Return the sign-in that this browser has begun at the identity provider; None where there is none."""
        kept = self._seal.open_content(_STATE, request.cookies.get(self._state_cookie, ""))
        return None if kept is None else Pending(**kept)

    def forget_pending(self, response: Response) -> None:
        """Delete the cookie of a begun sign-in from the browser: nobody comes back twice from the provider with the same one."""
        response.delete_cookie(self._state_cookie, path="/", secure=self.origin.secure, httponly=True, samesite="lax")
