"""Schedules of other schedulers, asked by their REST API: each has a changelog of its own, which this console does not follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec

from retry.clock import Deadline
from retry.errors import SettingsInvalid
from retry.scheduling.messages.search import MAX, Query

_SETTING = "RETRY_CONSOLE_SCHEDULERS"
_ENTRY = re.compile(r"(?P<name>[\w.-]{1,60})=(?P<url>https?://[^\s/,]+(?:/[^\s,]*)?)", re.ASCII)
_WITHIN_S = 5.0
_BYTES_MAX = 32 << 20
# Of one; ten questions.
_ROWS_MAX = 10 * MAX
_AT_ONCE = 8


# What is shown of one, and it tells what to sort by. Payloads are shown to nobody here: nothing tells whose they are.
Schedule = TypedDict("Schedule", {"id": str, "epoch": int, "timestamp": int, "topic": str, "target-topic": str})
_decode = msgspec.json.Decoder(list[Schedule]).decode


class OtherScheduler(NamedTuple):
    """One that is asked.

    Attributes:
      url: of its REST API, without a slash at the end.
    """

    name: str
    url: str


class Answer(NamedTuple):
    """The schedules that one scheduler answered with, or why there are none.

    Attributes:
      schedules: the first ones that match, in the order of the query.
      total: how many match.
      fault: why there is no answer, or which part of it is missing; empty where it is complete.
    """

    scheduler: str
    schedules: list[Any]
    total: int
    fault: str = ""


def read(text: str) -> list[OtherScheduler]:
    """The setting as operators write it: `eu=http://10.0.0.5:8000,us=http://10.1.0.5:8000`.

    Raises:
      SettingsInvalid: a part is no name with a URL.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise SettingsInvalid(_SETTING, f"{part!r} is not name=http://host:port")
        found.append(OtherScheduler(match["name"], match["url"].rstrip("/")))
    return found


def ask_schedulers(schedulers: Sequence[OtherScheduler], place: str, query: Query) -> list[Answer]:
    """Ask all schedulers at once, each for its rows up to the end of this page: the rows of all are sorted together.

    A scheduler that does not answer has a `fault` in its answer, and keeps nobody waiting for long.

    Args:
      place: `live` or `history`.
    """
    if not schedulers:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(schedulers)), "schedulers") as pool:
        return list(pool.map(lambda each: _fetch_schedules(each, place, query), schedulers))


def _fetch_schedules(scheduler: OtherScheduler, place: str, query: Query) -> Answer:
    wanted, deadline = query.skip + query.rows_max, Deadline(_WITHIN_S)
    rows: list[Schedule] = []
    total, bytes_left = 0, _BYTES_MAX
    try:
        while len(rows) < min(wanted, _ROWS_MAX):
            most = min(wanted - len(rows), MAX)
            url = f"{scheduler.url}/{place}/schedules?{urlencode(_parameters(query, most, len(rows)))}"
            with urlopen(url, timeout=max(0.1, deadline.remaining_s())) as answer:  # noqa: S310 the setting allows http and https alone
                body = answer.read(bytes_left + 1)
                bytes_left -= len(body)
                if bytes_left < 0:
                    return Answer(scheduler.name, [], 0, "its answer is too large; search for less")
                found = _decode(body)
                counted = answer.headers.get("X-Total-Count", "")
            rows += found
            total = int(counted) if counted.isdigit() else len(rows)
            if len(found) < most or len(rows) >= total:
                break
    except (OSError, HTTPException, msgspec.MsgspecError, ValueError) as error:
        return Answer(scheduler.name, [], 0, f"it did not answer: {error}")
    fault = f"only the first {len(rows):,} of its {total:,} are looked at" if len(rows) < min(wanted, total) else ""
    return Answer(scheduler.name, [{**row, "scheduler": scheduler.name} for row in rows], total, fault)


def _parameters(query: Query, most: int, skip: int) -> dict[str, str]:
    """Build the query parameters of a scheduler's REST API; `retry.scheduling.messages.search` reads them there."""
    given = {
        "schedule-id": query.part, "epoch-from": query.from_s, "epoch-to": query.to_s,
        "sort-by": f"{query.field} {'desc' if query.descending else 'asc'}", "max": most, "skip": skip or None,
    }  # fmt: skip
    return {name: str(value) for name, value in given.items() if value not in (None, "")}
