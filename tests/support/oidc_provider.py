"""A small OpenID Connect provider on loopback: the code flow with PKCE, and credentials of programs, with tokens that are signed.

It keeps to the rules that a client must be held to: a code is good once, for its client, its address and its verifier.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from retry import clock

CLIENT_ID, CLIENT_SECRET = "retry-console", "a-secret"
# So short that a program that is tested asks for another one meanwhile.
_PROGRAMS_S = 8


class OidcProvider:
    """Signs in whoever comes, as `person`.

    Attributes:
      person: claims of the next ID token besides those that every one has.
      twisted: claims that take the place of right ones, to see that they are refused.
      stranger: whether the token is signed with a key that the provider does not publish.
      redeemed: codes that were traded.
      programs: secrets of programs by their ids, and `issued` how many tokens each was given.
    """

    def __init__(self) -> None:
        self.person: dict[str, Any] = {"sub": "u-1", "email": "ada@example.com", "groups": ["payments-oncall"]}
        self.twisted: dict[str, Any] = {}
        self.stranger = False
        self.redeemed: list[str] = []
        self.programs: dict[str, str] = {}
        self.issued: Counter[str] = Counter()
        self._key = RSAKey.generate_key(2048, {"kid": "k1"})
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                given = {name: values[0] for name, values in parse_qs(parts.query).items()}
                if parts.path == "/.well-known/openid-configuration":
                    self._json(200, provider.description())
                elif parts.path == "/keys":
                    self._json(200, {"keys": [provider._key.as_dict(private=False)]})
                elif parts.path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.authorize(given))
                    self.end_headers()
                else:
                    self._json(404, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                given = {name: values[0] for name, values in parse_qs(body).items()}
                self._json(*provider.token(given, self.headers.get("authorization", "")))

            def _json(self, status: int, told: dict[str, Any]) -> None:
                raw = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                """Log nothing of what is asked."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="oidc provider", daemon=True).start()

    def description(self) -> dict[str, Any]:
        """Return what the provider says of itself."""
        return {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize", "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys", "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"], "code_challenge_methods_supported": ["S256"],
        }  # fmt: skip

    def authorize(self, given: dict[str, str]) -> str:
        """Return where a browser is sent back to, with a code."""
        assert given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256"
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = given
        return f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}"

    def token(self, given: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """The answer of the token endpoint."""
        if given.get("grant_type") == "client_credentials":
            return self._of_program(authorization)
        asked = self._codes.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if authorization != _basic(CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != given.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        self.redeemed.append(given["code"])
        now_s = clock.wall_ms() // 1_000
        claims = {
            "iss": self.issuer, "aud": CLIENT_ID, "iat": now_s, "exp": now_s + 300, "nonce": asked["nonce"], **self.person,
            **self.twisted,
        }  # fmt: skip
        key = RSAKey.generate_key(2048, {"kid": "k1"}) if self.stranger else self._key
        signed = jwt.encode({"alg": "RS256", "kid": "k1"}, {k: v for k, v in claims.items() if v is not None}, key)
        return 200, {"access_token": secrets.token_urlsafe(8), "token_type": "Bearer", "expires_in": 300, "id_token": signed}

    def _of_program(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """A token that a broker takes."""
        name = next((name for name, secret in self.programs.items() if _basic(name, secret) == authorization), None)
        if name is None:
            return 401, {"error": "invalid_client"}
        self.issued[name] += 1
        now_s = clock.wall_ms() // 1_000
        claims = {"iss": self.issuer, "aud": "kafka", "sub": name, "iat": now_s, "exp": now_s + _PROGRAMS_S}
        signed = jwt.encode({"alg": "RS256", "kid": "k1"}, claims, self._key)
        return 200, {"access_token": signed, "token_type": "Bearer", "expires_in": _PROGRAMS_S}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()
