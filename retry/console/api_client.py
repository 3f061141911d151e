"""Asks the console's API, with the token of somebody who may; see docs/reference/console-api.md."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from retry.errors import ConsoleUnusable

# A preview is worked out for up to 20 s before it is answered.
_ANSWER_S = 60.0


class ConsoleClient:
    """A client of one console; for several threads.

    Args:
      token: of `retry console token`; empty for a console on loopback that asks for none.
      authorities: file of the certificates that the console's is trusted by; else those of the system.

    Raises ConsoleUnusable where that file cannot be used.
    """

    def __init__(
        self, url: str, token: str, authorities: Path | None = None, transport: httpx2.BaseTransport | None = None
    ) -> None:
        self._url = url
        try:
            trusted = ssl.create_default_context(cafile=authorities)
        except OSError as error:
            raise ConsoleUnusable(f"{authorities}: certificates cannot be read: {error}") from None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(base_url=url, headers=headers, timeout=_ANSWER_S, verify=trusted, transport=transport)

    def get(self, path: str, name: str = "", **query: str | int) -> dict[str, Any]:
        """Read what there is; `name` ends the path. Raises ConsoleUnusable as `post`."""
        given = {field: value for field, value in query.items() if value not in ("", 0)}
        return self._ask("GET", path + quote(name), query=given)

    def post(self, path: str, body: dict[str, Any], name: str = "", end: str = "") -> dict[str, Any]:
        """Have something done; raises ConsoleUnusable where the console does not answer, or refuses, with what it says."""
        return self._ask("POST", path + quote(name, safe="") + end, body=body)

    def _ask(
        self, method: str, path: str, *, query: dict[str, Any] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            answer = self._client.request(method, path, params=query, json=body)
            told = answer.json() if answer.content else {}
        except (httpx2.HTTPError, ValueError) as error:
            raise ConsoleUnusable(f"no console answered at {self._url} ({error}); is the address right?") from None
        if not isinstance(told, dict) or answer.is_redirect:
            raise ConsoleUnusable(f"what answered at {self._url} is no console; is the address right?")
        if answer.is_error:
            raise ConsoleUnusable(f"the console refused it: {told.get('detail') or told.get('title') or answer.status_code}")
        return told
