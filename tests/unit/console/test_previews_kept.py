"""Previews are kept for 50 minutes, for who asked for them, and never more than memory has room for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from retry.console.acting import previews
from retry.console.acting.previews import KeptPreview, Previews
from retry.errors import ActionRefused, TopicsInvalid


def make_preview(count: int = 1) -> Any:
    return SimpleNamespace(chosen=SimpleNamespace(count=count))


class Store:
    """Previews under a clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.previews = Previews(lambda: self.now_ms)

    def kept(self, action_id: str, by: str = "ann", count: int = 1) -> KeptPreview:
        kept = self.previews.begin_preview(action_id, by, "retry", "team:shop", lambda _: make_preview(count))
        assert kept.done.wait(30)
        return kept


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.previews.close()


def test_a_preview_is_there_for_who_asked_for_it_alone(store: Store) -> None:
    kept = store.kept("0a")
    assert store.previews.find_preview("0a", "ann") is kept
    assert (store.previews.find_preview("0a", "bob"), store.previews.find_preview("0b", "ann")) == (None, None)
    assert not store.previews.was("0a", "ann")


def test_a_preview_is_forgotten_after_fifty_minutes_and_its_owner_can_be_told_so(store: Store) -> None:
    store.kept("0a")
    store.now_ms += 3_000_000
    assert store.previews.find_preview("0a", "ann") is not None
    store.now_ms += 1
    assert store.previews.find_preview("0a", "ann") is None
    assert (store.previews.was("0a", "ann"), store.previews.was("0a", "bob")) == (True, False)


def test_the_oldest_are_forgotten_where_one_person_has_many_or_all_hold_too_many_letters(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(previews._OF_ONE_MAX + 1):
        store.kept(f"{n:02x}")
    store.kept("ff", "bob")
    assert (store.previews.find_preview("00", "ann"), store.previews.find_preview("01", "ann") is None) == (None, False)
    monkeypatch.setattr(previews, "_MEMBERS_MAX", 100)
    store.kept("aa", "bob", 99)
    store.kept("bb", "bob", 60)
    assert [store.previews.find_preview(each, "bob") is None for each in ("aa", "bb")] == [True, False]
    # The last one stays, however large.
    store.kept("cc", "bob", 500)
    assert store.previews.find_preview("cc", "bob") is not None


def test_one_that_is_started_holds_no_letters_any_more(store: Store) -> None:
    kept = store.kept("0a", count=9)
    assert kept.members == 9
    store.previews.release(kept)
    assert (kept.members, store.previews.find_preview("0a", "ann")) == (0, kept)
    store.previews.drop_preview(kept)
    assert store.previews.find_preview("0a", "ann") is None


def test_what_goes_wrong_is_kept_as_the_answer(store: Store) -> None:
    def refuses(_kept: KeptPreview) -> Any:
        raise TopicsInvalid(["app-audit is missing"], "retry topics create")

    def fails(_kept: KeptPreview) -> Any:
        raise KeyError("a fault of ours")

    for action_id, make, told in (("0a", refuses, "app-audit is missing"), ("0b", fails, "the log of the console has")):
        kept = store.previews.begin_preview(action_id, "ann", "retry", "", make)
        assert kept.done.wait(30)
        assert told in str(kept.fault)


def test_no_more_are_worked_out_than_may_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "_WAITING_MAX", 3)
    go_on = threading.Event()

    def slow(_kept: KeptPreview) -> Any:
        assert go_on.wait(30)
        return make_preview()

    begun = [store.previews.begin_preview(f"0{n}", "ann", "retry", "", slow) for n in range(3)]
    with pytest.raises(ActionRefused, match="3 previews are being worked out"):
        store.previews.begin_preview("0f", "ann", "retry", "", slow)
    monkeypatch.setattr(previews, "_WAITING_MAX", 20)
    monkeypatch.setattr(previews, "_WAITING_OF_ONE_MAX", 3)
    with pytest.raises(ActionRefused, match="3 previews are being worked out"):
        store.previews.begin_preview("0f", "ann", "retry", "", slow)
    begun.append(store.previews.begin_preview("0e", "bob", "retry", "", slow))
    go_on.set()
    assert all(kept.done.wait(30) for kept in begun)
    store.kept("0f")
