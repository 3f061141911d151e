"""The main pages of the console, each asked alone: what they weigh, what they cost the server, and when a browser shows them."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple
from urllib.parse import quote, urlencode

from tests.support.browser import browsing

from . import console_letters as made
from . import machine
from .figures import Figure
from .letters import Incorrect, producer
from .service import Service

WIRE_KIB, FIRST_CONTENT_MS, LIVE_S = 40, 300, 2
# The times of a process are told in hundredths of a second.
_ASKED, _OPENED, _SHOWN = 20, 5, 10
_COMMIT_S, _SHOWN_WITHIN_S, _WAIT_MS = 60.0, 60.0, 60_000
_FIRST_CONTENT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class Answer(NamedTuple):
    """An answer: its body, how long it took at the server, and its bytes with headers, compressed where that was asked for."""

    status: int
    body: bytes
    server_ms: float
    wire_bytes: int


def ask_page(client: http.client.HTTPConnection, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Ask for one page."""
    client.request("GET", path, headers=dict(headers or {}))
    answer = client.getresponse()
    body, timing = answer.read(), answer.getheader("Server-Timing") or "dur=0"
    size = len(body) + len(answer.headers.as_bytes())
    plain = gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body
    return Answer(answer.status, plain, float(timing.rpartition("dur=")[2]), size)


def find_pages(client: http.client.HTTPConnection) -> dict[str, str]:
    """The main pages: of a failure, the letters and the letter those that come first."""
    failure = json.loads(ask_page(client, "/api/groups?limit=1").body)["groups"][0]["id"]
    letter = json.loads(ask_page(client, "/api/letters?limit=1").body)["letters"][0]["name"]
    return {
        "Now": "/", "Failures": "/failures", "a failure": f"/failures/{quote(failure, safe='')}",
        "letters of it": "/letters?" + urlencode({"q": f"group:{failure}"}), "all letters": "/letters",
        "a letter": f"/letters/{quote(letter)}", "Actions": "/actions", "Audit": "/audit", "Workers": "/workers",
    }  # fmt: skip


def measure_pages(client: http.client.HTTPConnection, pid: int) -> Iterator[Figure]:
    """Bytes, time and processor time of each page; `pid` is of the process that answers.

    Raises:
      Incorrect: a page was not answered.
    """
    pages = find_pages(client)
    for name, path in pages.items():
        first = ask_page(client, path, {"Accept-Encoding": "gzip"})
        if first.status != http.client.OK:
            raise Incorrect(f"{path}: {first.status} {first.body[:200]!r}")
        began_s = machine.cpu_s(pid)
        took_ms = [ask_page(client, path, {"Accept-Encoding": "gzip"}).server_ms for _ in range(_ASKED)]
        cpu_ms = (machine.cpu_s(pid) - began_s) * 1e3 / _ASKED
        yield Figure(f"{name}: on the wire", first.wire_bytes / 1024, "KiB", most=WIRE_KIB)
        yield Figure(f"{name}: at the server, median", median(took_ms), "ms")
        yield Figure(f"{name}: CPU of the server", cpu_ms, "ms")
    yield from _measure_first_content(f"http://{client.host}:{client.port}", pages)


def _measure_first_content(origin: str, pages: Mapping[str, str]) -> Iterator[Figure]:
    """When Chromium shows the first content of each page, from the click on: of a browser that knows styles and scripts."""
    with browsing() as browser:
        page = browser.new_page()
        page.goto(f"{origin}/workers")
        for name, path in pages.items():
            shown_ms = []
            for _ in range(_OPENED):
                page.goto(origin + path, timeout=_WAIT_MS)
                shown_ms.append(page.wait_for_function(_FIRST_CONTENT, timeout=_WAIT_MS).json_value())
            yield Figure(f"{name}: first content, median", median(shown_ms), "ms", most=FIRST_CONTENT_MS)


def measure_live(client: http.client.HTTPConnection, service: Service, first: int) -> Iterator[Figure]:
    """How long after its commit a letter is found: of ten, from this number on, with nothing else that comes or goes.

    Raises:
      Incorrect: one was not found in a minute.
    """
    took_s = []
    to = producer(service.bootstrap, **{"transactional.id": f"{service.names.intake_group}-shown"})
    to.init_transactions(_COMMIT_S)
    for number in range(first, first + _SHOWN):
        to.begin_transaction()
        made.write(to, service, range(number, number + 1))
        to.commit_transaction(_COMMIT_S)
        began_s = time.monotonic()
        question = "/api/letters?" + urlencode({"q": f"key:order-{number:09d}"})
        while not json.loads(ask_page(client, question).body)["letters"]:
            if time.monotonic() - began_s > _SHOWN_WITHIN_S:
                raise Incorrect(f"letter {number} is not shown")
            time.sleep(0.02)
        took_s.append(time.monotonic() - began_s)
    yield Figure("shown after its commit, median", median(took_s), "s")
    yield Figure("shown after its commit, at most", max(took_s), "s", most=LIVE_S)
