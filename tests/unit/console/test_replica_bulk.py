"""Whoever is far behind reads on in one transaction: it comes to the same, and nobody is told of what cannot be seen yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retry import clock
from retry.console.folding import follower as following
from retry.console.folding.folding_process import CATCHING_UP, LIVE, FoldingProcess
from retry.console.folding.follower import Follower
from retry.console.folding.reports import Report
from retry.console.rows import Freshness
from retry.policies.registry import Registry
from retry.settings import Settings
from tests.support.replicas import OWN, GivenMessage, GivenReplica, entry, failure, make_parked_record

LETTERS = 60


def live(folder: Path) -> GivenReplica:
    """A replica that is live, with one letter."""
    folder.mkdir()
    replica = GivenReplica(folder)
    replica.fold(OWN.changelog, entry(1_000, headers=failure(message="was there before")))
    replica.finish()
    return replica


def take_in(replica: GivenReplica, offset: int) -> None:
    """A letter that comes, one that comes and goes again, and one that rests."""
    replica.fold(OWN.changelog, entry(offset, headers=failure(message=f"stays {offset}")))
    key, envelope = entry(offset + 500, headers=failure(message=f"goes {offset}"))
    replica.fold(OWN.changelog, (key, envelope))
    replica.fold(OWN.parked, make_parked_record(offset, headers=failure(message=f"rests {offset}")))
    replica.fold(OWN.changelog, (key, None))


def test_what_is_taken_in_in_bulk_is_what_is_taken_in_one_by_one(tmp_path: Path) -> None:
    one_by_one, in_bulk = live(tmp_path / "one"), live(tmp_path / "bulk")
    before = one_by_one.folds._batches
    for offset in range(LETTERS):
        take_in(one_by_one, offset)
    with in_bulk.folds.in_bulk():
        for offset in range(LETTERS):
            take_in(in_bulk, offset)
        in_bulk.fold(OWN.changelog, (entry(1_000)[0], None))
    one_by_one.fold(OWN.changelog, (entry(1_000)[0], None))
    assert in_bulk.names() == one_by_one.names()
    assert len(in_bulk.names()) == 2 * LETTERS
    for words, count in (("stays", LETTERS), ("rests", LETTERS), ("goes", 0), ("was there", 0), ("stays 17", 1)):
        found = {each.letters(f'message:"{words}"').count for each in (one_by_one, in_bulk)}
        assert found == {count}, words
    assert [group.id for group in in_bulk.groups()] == [group.id for group in one_by_one.groups()]
    assert in_bulk.counts_hold()
    in_bulk.connection.execute("INSERT INTO message_text (message_text) VALUES ('integrity-check')")
    assert in_bulk.folds._batches - before == 1
    assert one_by_one.folds._batches - before > LETTERS
    # And it goes on as before.
    take_in(in_bulk, 300)
    assert in_bulk.letters('message:"stays 300"').count == 1


def test_what_goes_wrong_in_bulk_leaves_what_was_there_before(tmp_path: Path) -> None:
    replica = live(tmp_path / "one")
    with pytest.raises(ZeroDivisionError), replica.folds.in_bulk():
        take_in(replica, 1)
        raise ZeroDivisionError
    assert len(replica.names()) == 1
    assert replica.connection.execute("SELECT sum(next_offset) FROM positions").fetchone() == (1,)


class Reader:
    """Gives letters of one partition, so many at a time, and sets `closing` behind the last one."""

    def __init__(self, letters: int, closing: threading.Event) -> None:
        self._left = [
            GivenMessage(OWN.changelog, 0, offset, *entry(offset), None, 0)
            for offset in range(1, letters + 1)  # type: ignore[misc]
        ]
        self._closing, self.reads = closing, 0

    def read(self, records_max: int, _wait_s: float) -> list[Any]:
        """Read the next records, as a reader has them."""
        self.reads += 1
        given, self._left = self._left[:10], self._left[10:]
        if not given:
            self._closing.set()
        return given


def follow(replica: GivenReplica, letters: int, tell: Callable[[Report], None]) -> None:
    """Fold so many letters, all of which were there at the start."""
    closing = threading.Event()
    follower = Follower(Settings(), Registry, replica.file, tell, closing)
    place = OWN.changelog, 0
    follower._positions, follower._begun, follower._ends = {place: 1}, {place: 1}, {place: letters + 1}
    follower._read(Reader(letters, closing), replica.folds, replica.sources, None)  # type: ignore[arg-type]


@pytest.fixture
def _of_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is behind by a hundred letters reads in bulk, and asks brokers for nothing but letters."""
    monkeypatch.setattr(following, "_BULK_RECORDS_MIN", 100)
    monkeypatch.setattr(Follower, "_topics_changed", lambda *_: False)
    monkeypatch.setattr(Follower, "_refresh_ends", lambda *_: None)
    monkeypatch.setattr(Follower, "_is_stale", lambda _: False)


@pytest.mark.usefixtures("_of_a_hundred")
@pytest.mark.parametrize(("letters", "transactions"), [(100, 1), (90, 9)])
def test_who_is_far_behind_tells_only_what_readers_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int, transactions: int
) -> None:
    monkeypatch.setattr(following, "_HEARD_EVERY_S", 0.0)
    replica = live(tmp_path / "one")
    told: list[tuple[int, int]] = []

    def tell(report: Report) -> None:
        told.append((sum(place.next_offset for place in report.places), len(replica.letters(limit=1_000).rows)))

    before = replica.folds._batches
    follow(replica, letters, tell)
    assert all(folded == seen for folded, seen in told)
    assert told[-1] == (letters + 1, letters + 1)
    assert replica.folds._batches - before == transactions


@pytest.mark.usefixtures("_of_a_hundred")
@pytest.mark.parametrize("letters", [100, 90])
def test_brokers_that_answer_are_not_called_silent_however_long_a_starved_core_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    replica, now_s, states = live(tmp_path / "one"), [0.0], list[Freshness]()
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    process = FoldingProcess(Settings(), tmp_path / "replica.sqlite", lambda _: None)
    project = replica.folds.project_partitions

    def project_slowly(*records: Any) -> None:
        project(*records)
        now_s[0] += 10
        states.append(process.freshness())

    monkeypatch.setattr(replica.folds, "project_partitions", project_slowly)
    follow(replica, letters, process._accept_report)
    assert (len(states), {each.trouble for each in states}) == (letters // 10, {""})
    assert {each.state for each in states} <= {LIVE, CATCHING_UP}
