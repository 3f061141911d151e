"""What strangers send to the API: numbers and nesting without end, too many requests, the wrong method, and no token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retry.scheduling.timers.callers import Tokens, make_token
from retry.testing.kafka import MemoryLog
from tests.integration.test_api_in_memory import SHARDS, URL, Process
from tests.support.process import await_that

DIGITS = "9" * 5_000
DEEP = "[" * 100_000 + "]" * 100_000
WISH = f'{{"url": "{URL}", "after": "1h"}}'.encode()


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create("changelog", SHARDS)
    log.create("calls", 1)
    return log


@pytest.fixture
def process(log: MemoryLog, tmp_path: Path) -> Iterator[Process]:
    process = Process(log, tmp_path, "one")
    yield process
    process.view.close()


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Tokens, dict[str, str]]:
    """The file of two teams, and the header that each sends."""
    kept = {team: make_token(team) for team in ("billing", "shipping")}
    file = tmp_path / "tokens"
    file.write_text("\n".join(line for _, line in kept.values()))
    return Tokens(file), {team: f"Bearer {token}" for team, (token, _) in kept.items()}


@pytest.mark.parametrize("limit", ["000000001999999999", "0500", DIGITS, "501", "0", "-1", "1_0", "\u0663"])
def test_a_limit_of_a_page_is_what_it_seems(process: Process, limit: str) -> None:
    assert process.send("GET", f"/timers?limit={limit}")[0] == 422


@pytest.mark.parametrize("moment", [DIGITS, "9" * 16, "99999999999999999999"])
@pytest.mark.parametrize("name", ["from", "to"])
def test_a_time_of_thousands_of_digits_is_refused(process: Process, name: str, moment: str) -> None:
    status, told, _ = process.send("GET", f"/timers?{name}={moment}")
    assert (status, told["detail"].startswith(f"{name}: ")) == (422, True)


@pytest.mark.parametrize("field", [
    f'"at": {DIGITS}', f'"at": "{DIGITS}"', f'"after": "{DIGITS}s"', f'"after": "1s", "timeout": "{DIGITS}s"',
    f'"after": "1s", "policy": {{"max_attempts": {DIGITS}}}', f'"after": "1s", "policy": {{"backoff": {DEEP}}}',
    f'"after": "1s", "policy": {DEEP}', f'"after": "1s", "body": {DEEP}', f'"after": "1s", "headers": {DEEP}',
    f'"after": "1s", "unknown": {DEEP}', '"after": "1s", "body": "\\ud800"', '"after": "1s", "idempotency_key": "\\ud800"',
], ids=lambda field: field[:40])  # fmt: skip
def test_numbers_and_nesting_without_end_are_refused_in_words(process: Process, field: str) -> None:
    status, told, headers = process.send("POST", "/timers", f'{{"url": "{URL}", {field}}}'.encode())
    assert (status, headers["content-type"], bool(told["detail"])) == (422, "application/problem+json", True)


def test_a_key_that_is_too_long_is_refused_though_another_one_counts(process: Process) -> None:
    wish = WISH.replace(b"{", b'{"idempotency_key": "' + b"k" * 256 + b'", ', 1)
    assert process.send("POST", "/timers", wish, idempotency_key="k")[0] == 422


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(process: Process) -> None:
    for path, allowed in (("/timers", {"GET", "HEAD", "POST"}), ("/timers/tmr_1", {"DELETE", "GET", "HEAD"})):
        status, _, headers = process.send("PUT", path)
        assert (status, {each.strip() for each in headers["allow"].split(",")}) == (405, allowed)


def test_metrics_are_for_those_who_have_a_token_where_there_are_tokens(
    log: MemoryLog, tmp_path: Path, tokens: tuple[Tokens, dict[str, str]]
) -> None:
    known, headers = tokens
    process = Process(log, tmp_path, "guarded", known)
    status, told, _ = process.send("GET", "/metrics")
    assert (status, "retry api token" in told["detail"]) == (401, True)
    status, told, _ = process.send("GET", "/metrics", authorization=headers["billing"])
    assert (status, "retry_api_requests_total" in told) == (200, True)
    process.view.close()
    opened = Process(log, tmp_path, "open", known, metrics_open=True)
    assert opened.send("GET", "/metrics")[0] == 200
    assert opened.send("GET", "/timers")[0] == 401
    opened.view.close()


def test_a_team_that_asks_without_end_is_told_to_wait_and_others_are_served(
    log: MemoryLog, tmp_path: Path, tokens: tuple[Tokens, dict[str, str]]
) -> None:
    known, headers = tokens
    process = Process(log, tmp_path, "limited", known, requests_per_s=1)
    answers = [process.send("GET", "/timers/tmr_1", authorization=headers["billing"]) for _ in range(1_000)]
    refused = [answer for answer in answers if answer[0] == 429]
    # However slow this machine is, it answers more than once in a second.
    assert len(refused) > 0
    assert {answer[0] for answer in answers} == {404, 429}
    assert (refused[0][2]["retry-after"], refused[0][2]["content-type"]) == ("1", "application/problem+json")
    assert process.send("GET", "/timers/tmr_1", authorization=headers["shipping"])[0] == 404
    process.view.close()


def test_a_team_has_as_many_timers_waiting_as_it_may_and_more_once_some_have_ended(
    log: MemoryLog, tmp_path: Path, tokens: tuple[Tokens, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, headers = tokens
    monkeypatch.setattr("retry.scheduling.timers.callers._RECOUNT_FULL_MS", 0)
    process = Process(log, tmp_path, "full", known, timers_max=3)
    make = {team: {"content_type": "application/json", "authorization": header} for team, header in headers.items()}
    ids = [process.send("POST", "/timers", WISH, **make["billing"])[1]["id"] for _ in range(3)]
    await_that("they are read", lambda: process.view.waiting_of("billing", 10) == 3)
    status, told, answered = process.send("POST", "/timers", WISH, **make["billing"])
    assert (status, "3 timers of this team wait" in told["detail"], "retry-after" in answered) == (429, True, True)
    assert process.send("POST", "/timers", WISH, **make["shipping"])[0] == 201
    assert process.send("DELETE", f"/timers/{ids[0]}", authorization=headers["billing"])[0] == 204
    await_that("there is room", lambda: process.send("POST", "/timers", WISH, **make["billing"])[0] == 201)
    process.view.close()


def test_a_timer_that_was_made_before_is_found_again_though_no_more_may_wait(log: MemoryLog, tmp_path: Path) -> None:
    process = Process(log, tmp_path, "again", timers_max=1)
    first = process.send("POST", "/timers", WISH, idempotency_key="k")
    assert [first[0], process.send("POST", "/timers", WISH, idempotency_key="k")[:2]] == [201, (200, first[1])]
    assert process.send("POST", "/timers", WISH, idempotency_key="other")[0] == 429
    process.view.close()
