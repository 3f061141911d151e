"""What is compressed and what is not, and that the length of what is tells nothing of the token of forms."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

from retry.console.rows import LetterRow
from retry.console.web.application import Assets, Compression
from retry.console.web.rights import Granted, Role, make_token
from tests.support.console import ORIGIN, FakeReplica, csrf_of, group, letter, record, serve_console

TOKEN, LINE = make_token("ada", Granted({"payments": Role.OPERATOR}, frozenset({"payments"})))
OWN = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}


def letters(count: int = 100) -> list[LetterRow]:
    return [letter(n, message=f"order {n * 7919} failed with code {n * 31}") for n in range(count)]


def is_compressed(headers: Any) -> bool:
    return headers.get("content-encoding") == "gzip"


@pytest.mark.parametrize("path", ["/", "/failures", "/letters"])
def test_a_page_that_its_reader_asked_for_has_a_quarter_of_its_size_on_the_wire(path: str) -> None:
    browser = serve_console(FakeReplica(letters(), [group(f"f00d{n:04}") for n in range(50)])).browser()
    browser.get("/")
    for site in ("same-origin", "none"):
        answer = browser.get(path, headers={"Sec-Fetch-Site": site})
        assert (answer.status_code, is_compressed(answer.headers), answer.headers["vary"]) == (200, True, "Accept-Encoding")
        on_the_wire = int(answer.headers["content-length"])
        assert on_the_wire < 40 << 10
        assert on_the_wire < len(answer.content) / 2.5
    assert not is_compressed(browser.get(path, headers={"Sec-Fetch-Site": "none", "Accept-Encoding": "identity"}).headers)


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
def test_what_another_site_may_have_asked_for_tells_nothing_by_its_length(site: str | None) -> None:
    browser = serve_console(FakeReplica(letters())).browser()
    asked = {} if site is None else {"Sec-Fetch-Site": site}
    assert is_compressed(browser.get("/letters").headers), "nobody is signed in yet: a program"
    answer = browser.get("/letters?q=message:guess", headers=asked)
    assert (answer.status_code, is_compressed(answer.headers)) == (200, False)


def test_static_files_are_compressed_and_kept_for_ever_under_their_hash() -> None:
    browser, assets = serve_console().browser(), Assets()
    for name in ("console.js", "console.css", "vendor/htmx.min.js", "vendor/uPlot.iife.min.js"):
        answer = browser.get(assets.address(name), headers={"Sec-Fetch-Site": "same-origin"})
        assert is_compressed(answer.headers)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        old = assets.address(name).replace("/static/", "/static/0")
        assert browser.get(old).status_code == 404


def test_events_are_not_compressed() -> None:
    browser = serve_console(streams_max=0).browser()
    browser.get("/")
    answer = browser.get("/live?part=now&of=", headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert not is_compressed(answer.headers)


def test_each_part_of_an_answer_that_is_sent_in_parts_is_there_at_once() -> None:
    sent: list[dict[str, Any]] = []
    seen: list[bytes] = []
    unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS)

    async def send(message: Any) -> None:
        sent.append(message)

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        for n in range(3):
            await send({"type": "http.response.body", "body": b"part %d" % n, "more_body": n < 2})
            seen.append(unpacked.decompress(sent[-1]["body"]))

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "headers": [(b"accept-encoding", b"gzip")]}
    asyncio.run(Compression(answer)(scope, receive, send))
    assert seen == [b"part 0", b"part 1", b"part 2"]


def test_the_token_of_forms_is_written_otherwise_each_time_and_holds_each_time() -> None:
    replica = FakeReplica([letter()], [group()])
    replica.payloads.records["parked/0/1"] = record("parked/0/1", b"{}")
    browser = serve_console(replica, tokens=LINE).browser()
    browser.post("/sign-in", data={"token": TOKEN}, headers=OWN)
    tokens = [csrf_of(browser.get("/failures/f00d").text) for _ in range(20)]
    assert len(set(tokens)) == 20
    # No eight letters in a row are the same in two of them.
    parts = [{token[n : n + 8] for n in range(len(token) - 7)} for token in tokens]
    assert all(not one & other for n, one in enumerate(parts) for other in parts[:n])
    post = lambda token: browser.post("/letters/parked/0/1/reveal", data={"csrf": token}, headers=OWN)  # noqa: E731
    for wrong in ("", "é", "AAAA", tokens[0][:-4], tokens[0][4:], "B" * len(tokens[0])):
        assert "token of your sign-in is missing" in post(wrong).text, wrong
    assert [post(token).status_code for token in tokens[:2]] == [200, 200]
