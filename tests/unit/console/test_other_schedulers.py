"""Other schedulers are asked all at once by their REST API; one that is away, or answers nonsense, says so and hides no other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from retry.console.acting import named_pages, other_entries
from retry.console.acting.other_entries import OtherScheduler, ask_schedulers, read
from retry.errors import SettingsInvalid
from retry.scheduling.messages.search import Query, parse_query, search
from tests.support.ports import free_port


@contextmanager
def scheduler(answer: Callable[[str], tuple[bytes, int]]) -> Iterator[str]:
    """One whose answer to an address is this, and says how many it found."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, total = answer(self.path)
            self.send_response(200)
            self.send_header("X-Total-Count", str(total))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def serve_scheduler(rows: list[dict[str, Any]]) -> AbstractContextManager[str]:
    """One that has these, and answers as ours do."""
    def answer(path: str) -> tuple[bytes, int]:
        found = search(rows, parse_query(dict(parse_qsl(urlsplit(path).query))))  # type: ignore[arg-type]
        return json.dumps(found.page).encode(), found.total

    return scheduler(answer)


def test_the_setting_names_schedulers_and_where_they_are() -> None:
    assert read("") == []
    assert read("eu=http://10.0.0.5:8000, us=https://s.example.com/api/") == [
        OtherScheduler("eu", "http://10.0.0.5:8000"), OtherScheduler("us", "https://s.example.com/api"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["http://10.0.0.5:8000", "eu=ftp://x", "eu=file:///etc/passwd", "eu=", "e u=http://x"])
def test_what_is_no_such_list_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="RETRY_CONSOLE_SCHEDULERS"):
        read(text)


ROW = {"id": "vid1", "epoch": 5, "timestamp": 4, "topic": "schedules", "target-topic": "online", "value": "c2VjcmV0"}


def test_each_answers_for_itself() -> None:
    paths: list[str] = []
    strange = (b"<html>", b'[{"id": 7}]', b'[{"id": "no epoch"}]')
    with ExitStack() as held:
        good = held.enter_context(scheduler(lambda path: (paths.append(path) or json.dumps([ROW]).encode(), 7)))  # type: ignore[func-returns-value]
        urls = [f"s{n}={held.enter_context(scheduler(lambda _, body=body: (body, 7)))}" for n, body in enumerate(strange)]
        urls.append(f"away=http://127.0.0.1:{free_port()}")
        query = parse_query({"schedule-id": "vid", "max": "5", "epoch-from": "3"})
        eu, *others = ask_schedulers(read(",".join([f"eu={good}", *urls])), "live", query)
    assert paths == ["/live/schedules?schedule-id=vid&epoch-from=3&sort-by=timestamp+desc&max=5"]
    assert (eu.scheduler, eu.total) == ("eu", 7)
    assert eu.schedules == [{**{name: value for name, value in ROW.items() if name != "value"}, "scheduler": "eu"}]
    assert len(others) == 4
    assert all(each.schedules == [] and "did not answer" in each.fault for each in others)


@pytest.mark.parametrize("given", [{}, {"sort-by": "epoch asc"}, {"sort-by": "id desc", "epoch-from": "40"}])
def test_pages_of_several_schedulers_follow_each_other_as_one_list(given: dict[str, str]) -> None:
    every = [{**ROW, "id": f"s{n * 37 % 101:03}", "epoch": n * 13 % 89, "timestamp": n * 7 % 97} for n in range(100)]
    own, eu, us = every[:30], every[30:75], every[75:]
    whole = search(every, parse_query(given))  # type: ignore[arg-type]
    with serve_scheduler(eu) as first, serve_scheduler(us) as second:
        schedulers, found = read(f"eu={first},us={second}"), list[str]()
        while True:
            query = parse_query({**given, "max": "9", "skip": str(len(found))})
            page = named_pages._search_rows(named_pages._Counted(own), query, ask_schedulers(schedulers, "live", query))
            assert (page.found.total, page.faults) == (whole.total, [])
            found += [row["id"] for row in page.found.page]
            if not page.found.page:
                break
    assert found == [row["id"] for row in whole.page]


def test_of_more_than_is_asked_of_one_it_is_said_that_not_all_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_entries, "MAX", 10)
    monkeypatch.setattr(other_entries, "_ROWS_MAX", 25)
    rows = [{**ROW, "id": f"s{n:03}", "epoch": n} for n in range(60)]
    with serve_scheduler(rows) as url:
        (near,) = ask_schedulers(read(f"eu={url}"), "live", Query(field="epoch", descending=False, rows_max=5, skip=15))
        (far,) = ask_schedulers(read(f"eu={url}"), "live", Query(field="epoch", descending=False, rows_max=5, skip=40))
    assert ([row["epoch"] for row in near.schedules], near.total, near.fault) == ([*range(20)], 60, "")
    assert (len(far.schedules), far.fault) == (30, "only the first 30 of its 60 are looked at")
