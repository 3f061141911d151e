"""Signing in at a proxy in front of the console, which says in headers who asks: for companies whose people are in LDAP, say.

Off unless the settings name the proxy's addresses, a file with a secret that it sends, and a file of roles. A request is believed
only where it comes from one of these addresses and has the secret; of any other the headers mean nothing.

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
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

from starlette.requests import Request

from retry.console.web.oidc import Person, RolesOfClaims
from retry.console.web.rights import Viewer
from retry.console.web.sessions import SESSIONS_MAX, Session
from retry.errors import SettingsInvalid
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
        """The sign-in of who asks through the proxy; None where it did not come through there, or has no role here."""
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
