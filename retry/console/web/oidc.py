"""Signing in at a company's OpenID Connect provider: the code flow with PKCE.

1. `begin_sign_in` makes the address to send the browser to; the browser keeps state, nonce and code verifier, sealed in a cookie.
2. The provider sends the browser back with a code and that state.
3. `finish_sign_in` trades the code for an ID token at the provider's token endpoint; signature, issuer, audience, times and nonce
   are checked.

Who the person is, is the claim `email`, `preferred_username` or `sub`, the first of them that is there; what the person may do is
said by the lines of RETRY_CONSOLE_OIDC_ROLES for the values of one claim.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from retry.console.web.rights import Granted, Viewer, combine_grants, read_roles
from retry.errors import SettingsInvalid
from retry.printable import escape_unprintable
from retry.reloaded_file import ReloadedFile, number_lines

_WAIT_S, _SKEW_S = 10.0, 60
_PENDING_MS = 600_000
# In a cookie, which is small.
_TOLD_CHARS_MAX = 1_500
# None of these takes a secret that both sides know: who knows the client's secret could make tokens.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
_NAMES = ("email", "preferred_username", "sub")


class SignInFailed(Exception):
    """The provider did not say who it is, in a sentence for the person who tried."""


class Client(NamedTuple):
    """The console as a client of the provider `issuer`, as its tokens name it, which sends browsers back to `redirect_uri`."""

    issuer: str
    client_id: str
    client_secret: str | None
    redirect_uri: str


class Pending(NamedTuple):
    """A sign-in that was begun, as the browser keeps it until it comes back from the provider."""

    state: str
    nonce: str
    verifier: str
    since_ms: int


class Person(NamedTuple):
    """Who has signed in at the provider, with all values of the claim that gives roles."""

    name: str
    values: tuple[str, ...]


class RolesOfClaims:
    """Which roles values of a claim give: lines such as `payments-oncall payments:operator reveal:payments`. Raises
    SettingsInvalid where the file cannot be used; later such a file is logged, not used."""

    def __init__(self, path: Path, claim: str, setting: str = "RETRY_CONSOLE_OIDC_ROLES") -> None:
        self._file, self._claim = ReloadedFile(setting, path, partial(_parse_roles, setting, path)), claim

    def list_values(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        said = claims.get(self._claim)
        return tuple(value for value in (said if isinstance(said, list) else [said]) if isinstance(value, str))

    def find_grants(self, values: Sequence[str]) -> Granted:
        lines = self._file.current()
        return combine_grants(lines[value] for value in values if value in lines)

    def gives_any(self, value: str) -> bool:
        return value in self._file.current()


class Provider:
    """One provider, of whose claims `roles` says what they allow. Its own description is fetched when somebody signs in first."""

    def __init__(self, client: Client, roles: RolesOfClaims, clock_ms: Callable[[], int]) -> None:
        self._client, self._roles, self._clock_ms = client, roles, clock_ms
        self._described: dict[str, Any] | None = None

    def begin_sign_in(self) -> tuple[str, Pending]:
        """Return the URL to send the browser to, and what it is to bring back; raises SignInFailed where nobody answers."""
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        with self._session() as session:
            url, state = session.create_authorization_url(
                self._description()["authorization_endpoint"], code_verifier=verifier, nonce=nonce
            )
        return url, Pending(state, nonce, verifier, self._clock_ms())

    def finish_sign_in(self, pending: Pending, code: str) -> Person:
        """Return who the browser has come back as; raises SignInFailed, also where the file gives this person no role."""
        if self._clock_ms() - pending.since_ms > _PENDING_MS:
            raise SignInFailed("This sign-in was begun more than ten minutes ago; sign in again.")
        claims = self._claims(self._id_token(code, pending.verifier), pending.nonce)
        # An address that the provider has not seen to be the person's own may be anybody's.
        known = _NAMES if claims.get("email_verified", True) is True else _NAMES[1:]
        said = next((claims[each] for each in known if isinstance(claims.get(each), str) and claims[each]), "")
        person = Person(escape_unprintable(said, 100), self._roles.list_values(claims))
        if self.find_viewer(person) is None:
            raise SignInFailed(f"{person.name} has signed in, and has no role here; ask who runs this console for one.")
        return person

    def find_viewer(self, person: Person) -> Viewer | None:
        """Build the viewer for a person, with the rights that the roles file gives now; None where it gives none."""
        granted = self._roles.find_grants(person.values)
        return Viewer(person.name, granted.roles, granted.reveal) if granted.roles else None

    def list_telling(self, person: Person) -> list[str]:
        """List as many values of a person as a cookie takes, those first that give roles: people have hundreds of groups."""
        ranked, left, telling = sorted(person.values, key=lambda value: not self._roles.gives_any(value)), _TOLD_CHARS_MAX, []
        for value in ranked:
            left -= len(value.encode()) + 3
            if left >= 0:
                telling.append(value)
        return telling

    def _id_token(self, code: str, verifier: str) -> str:
        try:
            with self._session() as session:
                told = session.fetch_token(self._description()["token_endpoint"], code=code, code_verifier=verifier)
        except (OAuthError, httpx2.HTTPError, ValueError) as error:
            raise SignInFailed(f"The provider refused this sign-in: {escape_unprintable(str(error), 300)}") from error
        if not isinstance(token := told.get("id_token"), str):
            raise SignInFailed("The provider gave no ID token; the client there needs the scope openid.")
        return token

    def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        try:
            claims = jwt.decode(token, self._fetch_key_set(), algorithms=_ALGORITHMS).claims
            jwt.JWTClaimsRegistry(
                leeway=_SKEW_S, iss={"essential": True, "value": self._client.issuer}, sub={"essential": True},
                aud={"essential": True, "value": self._client.client_id}, exp={"essential": True},
                iat={"essential": True}, nonce={"essential": True, "value": nonce},
            ).validate(claims)  # fmt: skip
        except (JoseError, ValueError) as error:
            raise SignInFailed(f"What the provider says cannot be trusted: {escape_unprintable(str(error), 300)}") from error
        if claims.get("azp", self._client.client_id) != self._client.client_id:
            raise SignInFailed("What the provider says was made for another client.")
        return claims

    def _fetch_key_set(self) -> KeySet:
        # Asked for each time: providers change their keys, and people do not sign in often.
        found: Any = self._get(self._description()["jwks_uri"])
        return KeySet.import_key_set(found)

    def _description(self) -> dict[str, Any]:
        if self._described is None:
            described = self._get(f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration")
            if described.get("issuer") != self._client.issuer:
                named = f"The provider calls itself {described.get('issuer')!r:.200}"
                raise SignInFailed(f"{named}; set RETRY_CONSOLE_OIDC_ISSUER so.")
            if missing := [each for each in _ENDPOINTS if not isinstance(described.get(each), str)]:
                raise SignInFailed(f"The provider's description has no {missing[0]}.")
            self._described = described
        return self._described

    def _get(self, url: str) -> dict[str, Any]:
        try:
            answer = httpx2.get(url, timeout=_WAIT_S)
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise SignInFailed(f"The provider does not answer as it should: {escape_unprintable(str(error), 300)}") from error
        if not isinstance(found, dict):
            raise SignInFailed("The provider does not answer as it should.")
        return found

    def _session(self) -> OAuth2Client:
        client = self._client
        return OAuth2Client(
            client.client_id, client.client_secret, scope="openid profile email", redirect_uri=client.redirect_uri,
            code_challenge_method="S256", timeout=_WAIT_S,
        )  # fmt: skip


_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


def _parse_roles(setting: str, path: Path, text: str) -> dict[str, Granted]:
    lines: dict[str, list[Granted]] = {}
    for n, line in number_lines(text):
        value, *words = line.split()
        granted = read_roles(words)
        if granted is None:
            fault = f"{path}:{n}: write the claim's value and what it may do, as oncall payments:operator reveal:payments"
            raise SettingsInvalid(setting, fault)
        lines.setdefault(value, []).append(granted)
    return {value: combine_grants(parts) for value, parts in lines.items()}
