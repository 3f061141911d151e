"""What folds outlives whatever goes wrong in it, says so, and builds the replica anew where that was a mistake."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from retry.console.folding import folds
from retry.console.folding import follower as following
from retry.console.folding.folds import Sources
from retry.console.folding.follower import Follower
from retry.console.folding.replica_file import ReplicaFile
from retry.console.folding.reports import Report
from retry.console.rows import Freshness
from retry.errors import TopicsInvalid
from retry.kafka import client_config
from retry.policies.registry import Registry
from retry.settings import Settings
from tests.support.console import FakeReplica, serve_console
from tests.support.process import await_that

FAULT = "a fault of the console (KeyError), which its log has: everything is read anew"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors that looks at topics raise, one after another; the last one again and again."""
    raised: list[Exception] = []

    def look(*_: object) -> Sources:
        raise raised.pop(0) if len(raised) > 1 else raised[0]

    monkeypatch.setattr(client_config, "connect_admin", lambda _settings: None)
    monkeypatch.setattr(folds, "find_sources", look)
    monkeypatch.setattr(following, "_AGAIN_S", 0.01)
    return raised


@pytest.fixture
def told_reports(looks: list[Exception], tmp_path: Path) -> Iterator[list[Report]]:
    """The reports of one that runs, once it is known what goes wrong."""
    reports, closing = list[Report](), threading.Event()
    follower = Follower(Settings(), Registry, ReplicaFile(tmp_path / "replica.sqlite"), reports.append, closing)
    running = threading.Thread(target=lambda: (await_that("it is known", lambda: looks), follower.run()))
    running.start()
    yield reports
    closing.set()
    running.join()


def test_a_mistake_does_not_end_it_and_is_told_without_what_a_record_said(
    looks: list[Exception], told_reports: list[Report], caplog: pytest.LogCaptureFixture
) -> None:
    looks += [KeyError("secret"), TopicsInvalid(["the changelog is missing"], "make it")]
    await_that("it goes on", lambda: told_reports and "the changelog is missing" in told_reports[-1].trouble)
    found = told_reports[-1]
    assert (found.file_id, found.is_stopped) == (None, True), "nothing is known of the file that is there"
    assert found.trouble.startswith(f"{FAULT}; ")
    assert "secret" not in found.trouble
    (logged,) = [record for record in caplog.records if record.exc_info]
    assert logged.exc_info is not None and isinstance(logged.exc_info[1], KeyError)


def test_pages_and_health_say_what_went_wrong_while_everything_is_read_anew(
    looks: list[Exception], told_reports: list[Report]
) -> None:
    looks.append(KeyError("secret"))
    await_that("it has failed", lambda: told_reports)
    browser = serve_console(FakeReplica(state=Freshness("rebuilding", 0.0, None, 0, told_reports[-1].trouble))).browser()
    assert FAULT in browser.get("/").text
    ready = browser.get("/health/ready")
    assert (ready.status_code, ready.json()["error"]) == (503, "the log of the console says what")
