"""What answers mean, and how long hosts ask to wait."""

from __future__ import annotations

import pytest

from retry.http_client.client import RETRY_AFTER_MS_MAX, Answer, Verdict, retry_after_ms


@pytest.mark.parametrize(
    ("status", "verdict", "blames"),
    [
        (200, Verdict.DELIVERED, False), (204, Verdict.DELIVERED, False), (299, Verdict.DELIVERED, False),
        (301, Verdict.FAILED, False), (302, Verdict.FAILED, False), (304, Verdict.FAILED, False),
        (400, Verdict.FAILED, False), (401, Verdict.FAILED, False), (404, Verdict.FAILED, False),
        (410, Verdict.GONE, False),
        (429, Verdict.FAILED, True), (502, Verdict.FAILED, True), (503, Verdict.FAILED, True), (504, Verdict.FAILED, True),
        (500, Verdict.FAILED, False),
    ],
)  # fmt: skip
def test_what_follows_from_a_status(status: int, verdict: Verdict, blames: bool) -> None:
    answer = Answer(status, None if 200 <= status < 300 else str(status))
    assert answer.verdict is verdict
    assert answer.blames_host is blames


@pytest.mark.parametrize("error", ["timeout", "unreachable", "tls", "reset", "bad_answer"])
def test_no_answer_is_the_hosts_fault(error: str) -> None:
    assert Answer(None, error).verdict is Verdict.FAILED
    assert Answer(None, error).blames_host


def test_what_the_guard_refuses_is_not() -> None:
    assert not Answer(None, "not_allowed").blames_host


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        (None, None), ("", None), ("-1", None), ("1.5", None), ("soon", None), ("٣", None),
        ("0", 0), ("120", 120_000), (" 7 ", 7_000), ("9" * 400, RETRY_AFTER_MS_MAX),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50_000), ("Thu, 01 Jan 1970 00:00:01 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_MS_MAX), ("Thu, 99 Foo 1970", None),
    ],
)  # fmt: skip
def test_retry_after(text: str | None, wait_ms: int | None) -> None:
    assert retry_after_ms(text, 10_000) == wait_ms
