"""Answers compressed by gzip, where nobody else can have asked for them: the length of an answer tells what it repeats.

Who reads the length of an encrypted answer, and can have a browser ask for a page with texts of their own choice in its address,
finds out letter by letter what else stands on the page (BREACH). So an answer is compressed where a page of this console asked
for it, or somebody who typed its address; browsers say so in `Sec-Fetch-Site`, which no script can set. What another site leads
to is sent as it is, once. Programs come without a cookie, and no other site can have them ask.

Event streams stay as they are: what is small gains nothing, and no event waits for the next one. Of an answer that is sent in
parts each part is sent at once.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_BYTES_MIN = 1_000
# Beyond 6 a page takes twice as long, for one byte in a hundred.
_LEVEL = 6
_ASKED_BY_OURSELVES = ("same-origin", "none")


class Compression:
    """An application whose answers are compressed for those who may be told how well they compress."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, _BYTES_MIN, _LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_safe = scope["type"] == "http" and _is_asked_by_ourselves(Headers(scope=scope))
        await (self._compressed if is_safe else self._plain)(scope, receive, send)


def _is_asked_by_ourselves(headers: Headers) -> bool:
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in _ASKED_BY_OURSELVES
    return "cookie" not in headers
