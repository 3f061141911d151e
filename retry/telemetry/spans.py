"""What spans tell that is known also where none are sent: their ids, and requests with their answers.

Ids are made of what a letter says of itself, so that each worker makes the same, without a library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest


def make_span_ids(lineage: bytes, attempt: int) -> tuple[int, int]:
    """Make trace and span ids of one attempt, neither of them 0."""
    return xxh3_128_intdigest(lineage) or 1, xxh3_64_intdigest(b"%b/%d" % (lineage, attempt)) or 1


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
    """Find the value of the header that names a trace, in upper or lower case; empty where there is none."""
    return next((value for name, value in headers.items() if name.lower() == "traceparent"), "")
