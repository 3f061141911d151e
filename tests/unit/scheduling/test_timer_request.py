"""What is asked for when a timer is made: read, or refused with what to change."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.scheduling.timers.callers import Problem
from retry.scheduling.timers.timer_request import AHEAD_MS_MAX, BODY_BYTES_MAX, TimerRequest, parse_moment_ms, read

NOW_MS = 1_700_000_000_000
URL = "https://example.com/hook"


def make_request(**wish: Any) -> TimerRequest:
    return read(json.dumps({"url": URL, "after": "1m", **wish}).encode(), None, NOW_MS)


def test_the_least_that_can_be_asked_for() -> None:
    found = make_request()
    assert (found.due_at_ms, found.host) == (NOW_MS + 60_000, "https://example.com:443")
    assert (found.call.method, found.call.url, found.call.policy, found.body, found.headers) == ("POST", URL, "{}", b"", [])


@pytest.mark.parametrize(
    ("at", "due_ms"),
    [
        ("2023-11-14T22:13:21Z", NOW_MS + 1_000), ("2023-11-15T00:13:21+02:00", NOW_MS + 1_000), (NOW_MS + 5, NOW_MS + 5),
        (str(NOW_MS + 5), NOW_MS + 5), (NOW_MS - 5, NOW_MS - 5),
    ],
)  # fmt: skip
def test_a_time_is_iso_or_milliseconds(at: Any, due_ms: int) -> None:
    assert make_request(after=None, at=at).due_at_ms == due_ms


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ("text", b"text", b"text/plain; charset=utf-8"), ({"a": [1, None]}, b'{"a": [1, null]}', b"application/json"),
        (0, b"0", b"application/json"), (False, b"false", b"application/json"),
    ],
)  # fmt: skip
def test_a_body_is_text_or_json(body: Any, sent: bytes, kind: bytes) -> None:
    assert make_request(body=body)[3:5] == ([("Content-Type", kind)], sent)
    assert make_request(body=body, headers={"content-type": "x/y"}).headers == [("content-type", b"x/y")]


def test_a_body_may_be_bytes() -> None:
    assert make_request(body_base64="AP8=")[3:5] == ([], b"\0\xff")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"url": None}, "url"),
    ({"url": "ftp://example.com/"}, "url: it is not one like"),
    ({"url": "https://user@example.com/"}, "user name"),
    ({"after": None}, "either at"),
    ({"at": NOW_MS}, "either at"),
    ({"after": "5"}, "not a duration"),
    ({"after": None, "at": "tomorrow"}, "no time"),
    ({"after": None, "at": "2026-01-01"}, "no offset"),
    ({"after": None, "at": NOW_MS * 1_000}, "milliseconds"),
    ({"after": None, "at": -1}, "before 1970"),
    ({"after": None, "at": NOW_MS + AHEAD_MS_MAX + 1}, "ten years"),
    ({"method": "CONNECT"}, "method"),
    ({"method": "GET\r\n"}, "method"),
    ({"headers": {"Host": "x"}}, "leave it out"),
    ({"headers": {"Content-Length": "5"}}, "leave it out"),
    ({"headers": {"Webhook-Id": "x"}}, "leave it out"),
    ({"headers": {"X": "a\r\nY: b"}}, "no header may have"),
    ({"headers": {"X\n": "a"}}, "no header may have"),
    ({"headers": {"X": "\u0100"}}, "no header may have"),
    ({"headers": {f"X-{n}": "" for n in range(100)}}, "more than 64"),
    ({"headers": {"X": "a" * 10_000}}, "8,192"),
    ({"headers": {"X": 1}}, "headers"),
    ({"body": "a", "body_base64": "AA=="}, "either body"),
    ({"body_base64": "?"}, "base64"),
    ({"body": "a" * (BODY_BYTES_MAX + 1)}, "larger"),
    ({"policy": {"max_attempts": -1}}, "policy: max_attempts"),
    ({"policy": {"nothing": 1}}, "policy: nothing"),
    ({"timeout": "1h"}, "timeout"),
    ({"idempotency_key": ""}, "idempotency"),
    ({"idempotency_key": "a" * 256}, "idempotency"),
    ({"unknown": 1}, "unknown"),
]


@pytest.mark.parametrize(("wish", "said"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_is_refused_with_what_to_change(wish: dict[str, Any], said: str) -> None:
    with pytest.raises(Problem) as refused:
        make_request(**wish)
    assert refused.value.status == 422
    assert said in refused.value.detail


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{", b"\xff", b'{"url": 1}', b'"' + b"[" * 10_000])
def test_what_is_no_timer_is_refused(raw: bytes) -> None:
    with pytest.raises(Problem):
        read(raw, None, NOW_MS)


NAMES = ["url", "at", "after", "body", "headers", "policy", "method", "timeout", "max_attempts", "backoff", "kind"]
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**30) | st.just("\ud800")


@given(st.recursive(PLAIN, lambda of: st.lists(of) | st.dictionaries(st.sampled_from(NAMES), of)))
def test_whatever_is_sent_is_a_timer_or_a_refusal(told: Any) -> None:
    good = {"url": URL, "after": "1s"}
    fields = "body", "policy", "url", "after", "headers", "timeout"
    for wish in (told, {"url": URL, "at": told}, *({**good, name: told} for name in fields)):
        with suppress(Problem):
            assert isinstance(read(json.dumps(wish).encode(), None, NOW_MS), TimerRequest)


def test_the_same_wish_has_the_same_mark_and_another_another() -> None:
    others: list[dict[str, Any]] = [{}, {"body": 1}, {"after": "2m"}, {"method": "PUT"}, {"headers": {"X": "1"}}]
    assert make_request().mark == make_request(idempotency_key="other").mark
    assert len({make_request(**each).mark for each in others}) == 5


def test_the_header_goes_before_the_field() -> None:
    raw = json.dumps({"url": URL, "after": "1s", "idempotency_key": "field"}).encode()
    assert [read(raw, header, NOW_MS).idempotency_key for header in ("header", None)] == ["header", "field"]


def test_a_moment_of_a_list_is_told_by_its_name() -> None:
    with pytest.raises(Problem, match="from: 'x' is no time"):
        parse_moment_ms("x", "from")
