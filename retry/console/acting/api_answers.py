"""What is common to answers of the API: how bodies and fields are read, and how JSON is sent."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from retry.console.web.app import body_of

_LIMIT, _LIMIT_MAX = 100, 1_000
Body = TypeVar("Body", bound=msgspec.Struct)
# Written into the changelog, where every worker keeps it.
Words = Annotated[str, msgspec.Meta(max_length=1_000)]


def read(request: Request, decode: Callable[[bytes], Body]) -> Body:
    """The JSON that was sent; nothing at all is an empty object.

    Raises:
      HTTPException: 400, it is no such object.
    """
    try:
        return decode(body_of(request) or b"{}")
    except msgspec.MsgspecError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from None


def limit_of(given: dict[str, str]) -> int:
    """How many rows a page is to have.

    Raises:
      HTTPException: 400, it is no number from 1 to 1,000.
    """
    text = given.get("limit", str(_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _LIMIT_MAX):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"limit: it is not from 1 to {_LIMIT_MAX:,}")
    return int(text)


def none(what: str) -> HTTPException:
    """The refusal of what is not there, or is another team's."""
    return HTTPException(HTTPStatus.NOT_FOUND, f"there is no such {what}, or it is no more")


def respond_json(body: Any, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(orjson.dumps(body), status, headers, "application/json")
