"""Payloads are sealed once every worker says that it reads what is sealed, and never before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retry import format_versions
from retry.delay_queue.envelope_codec import PLAIN
from retry.errors import RightMissing, SettingsInvalid
from retry.kafka import consumer_groups
from retry.process import start
from retry.settings import Settings
from tests.support.sealed import NEW

NOW, BEFORE = format_versions.announce_instance("a"), "b.reads.key-4.envelope-1.block-1.control-1.action-1"
NOBODY: Any = None


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "keys"
    file.write_text(NEW)
    return Settings(encryption_keys=file)


def members(monkeypatch: pytest.MonkeyPatch, *ids: str) -> None:
    monkeypatch.setattr(consumer_groups, "list_members", lambda _admin, group: list(ids) if group == "retry-table" else None)


def test_without_keys_nobody_is_asked() -> None:
    assert start.make_codec(Settings(), NOBODY) is PLAIN


@pytest.mark.parametrize("ids", [(), (NOW,), (NOW, format_versions.announce_instance("c"))])
def test_where_all_workers_read_it_it_is_written(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, ids: tuple[str, ...]
) -> None:
    members(monkeypatch, *ids)
    assert start.make_codec(settings, NOBODY) is not PLAIN


@pytest.mark.parametrize("older", [BEFORE, "of-a-version-that-says-nothing"])
def test_a_worker_that_does_not_is_named_and_nothing_begins(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, older: str
) -> None:
    members(monkeypatch, NOW, older)
    with pytest.raises(SettingsInvalid, match=f"RETRY_ENCRYPTION_KEYS: set, but 1 of 2 workers .* would stop: {older}. Upgrade"):
        start.make_codec(settings, NOBODY)
    # A worker that is upgraded in place finds itself there, as it was called before.
    assert start.make_codec(settings, NOBODY, older.partition(".")[0]) is not PLAIN


def test_whoever_may_not_know_the_workers_does_not_begin(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "list_members", lambda *_: None)
    with pytest.raises(RightMissing, match="retry-table"):
        start.make_codec(settings, NOBODY)


def test_a_file_that_cannot_be_used_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members(monkeypatch)
    for text in (None, "", "k AAAA"):
        file = tmp_path / "other"
        if text is not None:
            file.write_text(text)
        with pytest.raises(SettingsInvalid, match="RETRY_ENCRYPTION_KEYS"):
            start.make_codec(Settings(encryption_keys=file), NOBODY)
