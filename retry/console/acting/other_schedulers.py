"""Schedules of other schedulers, asked by their REST API: each has a changelog of its own, which this console does not follow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec

from retry.errors import SettingsInvalid

_SETTING = "RETRY_CONSOLE_SCHEDULERS"
_ENTRY = re.compile(r"(?P<name>[\w.-]{1,60})=(?P<url>https?://[^\s/,]+(?:/[^\s,]*)?)", re.ASCII)
_WITHIN_S = 5.0
_BYTES_MAX = 32 << 20
_AT_ONCE = 8


class OtherScheduler(NamedTuple):
    """One that is asked.

    Attributes:
      url: of its REST API, without a slash at the end.
    """

    name: str
    url: str


class Answer(NamedTuple):
    """What a scheduler answered.

    Attributes:
      fault: why there is no answer; empty where there is one.
    """

    scheduler: str
    schedules: list[dict[str, Any]]
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


def asked(schedulers: Sequence[OtherScheduler], place: str, query: Mapping[str, str]) -> list[Answer]:
    """What each of them answers, all asked at once; one that does not answer says so and keeps nobody waiting for long.

    Args:
      place: `live` or `history`.
      query: as `retry.scheduling.messages.search` reads it; without what is empty.
    """
    if not schedulers:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(schedulers)), "schedulers") as pool:
        return list(pool.map(lambda each: _ask(each, place, query), schedulers))


def _ask(scheduler: OtherScheduler, place: str, query: Mapping[str, str]) -> Answer:
    url = f"{scheduler.url}/{place}/schedules?{urlencode({'max': '1000', **query})}"
    try:
        with urlopen(url, timeout=_WITHIN_S) as answer:  # noqa: S310 - the setting allows http and https alone
            body = answer.read(_BYTES_MAX + 1)
            if len(body) > _BYTES_MAX:
                return Answer(scheduler.name, [], 0, "its answer is too large; search for less")
            found = msgspec.json.decode(body, type=list[dict[str, Any]])
            total = answer.headers.get("X-Total-Count", "")
    except (OSError, HTTPException, msgspec.MsgspecError, ValueError) as error:
        return Answer(scheduler.name, [], 0, f"it did not answer: {error}")
    # Payloads are shown to nobody here: nothing tells whose they are.
    rows = [{**{name: value for name, value in row.items() if name != "value"}, "scheduler": scheduler.name} for row in found]
    return Answer(scheduler.name, rows, int(total) if total.isdigit() else len(rows))
