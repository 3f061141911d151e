"""What the API logs of calls: who asked for what and when, never a token or what a timer holds; and tokens that have ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from retry import clock
from retry.scheduling.timers import callers
from retry.scheduling.timers.callers import Tokens, make_token
from retry.testing.kafka import MemoryLog
from tests.integration.test_api_in_memory import SHARDS, URL, Process

WISH = f'{{"url": "{URL}?canary=1", "after": "1h", "body": "canary", "headers": {{"x-secret": "canary"}}}}'.encode()
JSON = "application/json"


class Audited:
    """An API of one team with two tokens, of which one has ended, and what it logs of calls."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture, audit: int) -> None:
        self._caplog = caplog
        self.token, line = make_token("billing")
        self.ended, ended_line = make_token("billing", until_ms=clock.wall_ms() - 1)
        (folder / "tokens").write_text(f"{line}\n{ended_line}\n")
        self.id, self.ended_id = (each.split()[1][:8] for each in (line, ended_line))
        log = MemoryLog()
        log.create("changelog", SHARDS)
        log.create("calls", 1)
        self.process = Process(log, folder, "audited", Tokens(folder / "tokens"), audit=audit)

    def ask(self, method: str, target: str, body: bytes = b"", token: str | None = None) -> tuple[int, Any, dict[str, str]]:
        return self.process.send(method, target, body, authorization=f"Bearer {token or self.token}", content_type=JSON)

    def lines(self) -> list[dict[str, Any]]:
        """List what was logged since this was asked last."""
        logged = [record for record in self._caplog.records if record.name == callers.__name__]
        self._caplog.clear()
        assert {record.levelno for record in logged} <= {logging.INFO}
        return [orjson.loads(record.getMessage()) for record in logged]


@pytest.fixture
def audit(request: pytest.FixtureRequest) -> int:
    return getattr(request, "param", callers.CHANGES)


@pytest.fixture
def api(tmp_path: Path, caplog: pytest.LogCaptureFixture, audit: int) -> Iterator[Audited]:
    caplog.set_level(logging.INFO)
    made = Audited(tmp_path, caplog, audit)
    yield made
    made.process.view.close()


def test_a_change_is_logged_with_who_made_it(api: Audited) -> None:
    began = clock.iso(clock.wall_ms())
    _, made, _ = api.ask("POST", "/timers", WISH)
    (line,) = api.lines()
    assert began <= line.pop("at") <= clock.iso(clock.wall_ms())
    assert line == {
        "team": "billing", "token": api.id, "from": "", "method": "POST", "path": "/timers", "timer": made["id"], "status": 201,
    }  # fmt: skip
    assert api.ask("DELETE", f"/timers/{made['id']}")[0] == 204
    (line,) = api.lines()
    assert (line["method"], line["path"], line["status"]) == ("DELETE", f"/timers/{made['id']}", 204)
    assert api.ask("POST", "/timers", b"{}")[0] == 422
    assert [line["status"] for line in api.lines()] == [422]


def test_neither_tokens_nor_what_timers_hold_are_logged(api: Audited, caplog: pytest.LogCaptureFixture) -> None:
    api.ask("POST", "/timers", WISH)
    api.ask("POST", "/timers", WISH, "canary-token")
    api.ask("GET", "/timers?from=canary")
    api.ask("POST", "/timers", WISH, api.ended)
    assert len(caplog.records) >= 3
    for hidden in ("canary", api.token, api.ended):
        assert hidden not in caplog.text


def test_a_token_that_has_ended_is_refused_and_its_use_is_logged(api: Audited) -> None:
    status, told, headers = api.ask("POST", "/timers", WISH, api.ended)
    assert (status, headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
    assert "has ended at" in told["detail"]
    (line,) = api.lines()
    assert (line["status"], line["team"]) == (401, "")
    assert api.ask("POST", "/timers", WISH)[0] == 201


@pytest.mark.parametrize(
    ("audit", "logged"), [(0, []), (callers.CHANGES, [201]), (callers.ALL, [201, 200])], indirect=["audit"]
)
def test_it_logs_as_much_as_is_asked_for(api: Audited, logged: list[int]) -> None:
    api.ask("POST", "/timers", WISH)
    assert api.ask("GET", "/timers")[0] == 200
    assert [line["status"] for line in api.lines()] == logged


def test_who_asks_without_end_with_no_token_does_not_fill_the_log(api: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = clock.wall_ms()
    monkeypatch.setattr(clock, "wall_ms", lambda: now_ms)
    for _ in range(200):
        assert api.ask("POST", "/timers", WISH, "none")[0] == 401
    assert len(api.lines()) == 10
    now_ms += 1_000
    api.ask("POST", "/timers", WISH, "none")
    (line,) = api.lines()
    assert line["left_out"] == 190
    api.ask("POST", "/timers", WISH, "none")
    assert "left_out" not in api.lines()[0]


def test_a_fault_of_the_service_is_logged_as_one(api: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("retry.scheduling.timers.routes.read", fails)
    with pytest.raises(ValueError, match="a mistake of ours"):
        api.ask("POST", "/timers", WISH)
    assert [line["status"] for line in api.lines()] == [500]


def test_a_path_without_end_is_cut(api: Audited) -> None:
    api.ask("DELETE", "/timers/" + "x" * 10_000)
    (line,) = api.lines()
    assert len(line["path"]) == 100
