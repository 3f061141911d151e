"""What a span tells of a request and its answer; known also where no spans are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class HttpExchange(NamedTuple):
    """A request and its answer, of a timer's call or of the API.

    Attributes:
      route: of the API: the path with its parameters' names; empty of a call.
      url: of a call; its host and port alone are told.
      status: None where there was no answer; `error` says in a word why.
      traceparent: that came with the request or goes with the call; empty where there is none.
      began_ms, ended_ms: since 1970.
      timer: id of the timer; empty where the request is about none.
    """

    method: str
    status: int | None
    error: str | None
    team: str
    traceparent: str
    began_ms: int
    ended_ms: int
    route: str = ""
    url: str = ""
    timer: str = ""


def find_traceparent(headers: Mapping[str, str]) -> str:
    """The header that names a trace, however it is written; empty where there is none."""
    return next((value for name, value in headers.items() if name.lower() == "traceparent"), "")
