"""Other schedulers are asked all at once by their REST API; one that is away, or answers nonsense, says so and hides no other."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from retry.console.acting.other_schedulers import OtherScheduler, asked, read
from retry.errors import SettingsInvalid
from tests.support.ports import free_port


@contextmanager
def scheduler(body: bytes, asked_for: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_for.append(self.path)
            self.send_response(200)
            self.send_header("X-Total-Count", "7")
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


def test_the_setting_names_schedulers_and_where_they_are() -> None:
    assert read("") == []
    assert read("eu=http://10.0.0.5:8000, us=https://s.example.com/api/") == [
        OtherScheduler("eu", "http://10.0.0.5:8000"), OtherScheduler("us", "https://s.example.com/api"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["http://10.0.0.5:8000", "eu=ftp://x", "eu=file:///etc/passwd", "eu=", "e u=http://x"])
def test_what_is_no_such_list_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="RETRY_CONSOLE_SCHEDULERS"):
        read(text)


def test_each_answers_for_itself() -> None:
    row = {"id": "vid1", "epoch": 5, "timestamp": 4, "topic": "schedules", "target-topic": "online", "value": "c2VjcmV0"}
    paths: list[str] = []
    with scheduler(json.dumps([row]).encode(), paths) as good, scheduler(b"<html>", []) as strange:
        away = f"http://127.0.0.1:{free_port()}"
        found = asked(read(f"eu={good},us={strange},away={away}"), "live", {"schedule-id": "vid"})
    assert paths == ["/live/schedules?max=1000&schedule-id=vid"]
    eu, us, gone = found
    assert (eu.scheduler, eu.total, eu.fault) == ("eu", 7, "")
    assert eu.schedules == [{**{name: value for name, value in row.items() if name != "value"}, "scheduler": "eu"}]
    assert all(each.schedules == [] and "did not answer" in each.fault for each in (us, gone))
