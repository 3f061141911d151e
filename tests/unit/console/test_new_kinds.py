"""What there is to tell, as the replica knows it: new failures, resolved ones that fail again, late and fading letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.console.folding import notes
from retry.console.folding.notes import RESOLVED, Resolved
from retry.console.reading import groups, urgent_failures
from retry.console.reading.groups import FailureTimes
from retry.console.reading.notes import ToldEvent, ToldEvents
from retry.console.reading.urgent_failures import FadingLetters, OverdueLetters
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause
from tests.support.replicas import NOW_MS, OWN, GivenReplica, entry, failure

DAY_MS = 86_400_000


@pytest.fixture
def replica(tmp_path: Path) -> GivenReplica:
    made = GivenReplica(tmp_path)
    made.finish()
    return made


def since(replica: GivenReplica, since_ms: int = 0) -> dict[str, FailureTimes]:
    with replica.readers.reading(0.0) as connection:
        times = groups.read_times(connection, None)
    return {group: each for group, each in times.items() if (each.first_ms or 0) >= since_ms}


def note(replica: GivenReplica, key: str, record: notes.Record | None) -> None:
    replica.fold(OWN.notes, (key.encode(), None if record is None else notes.encode_note(record)))


def test_kinds_are_new_by_when_they_failed_first(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, *(entry(n, headers=failure("a.A")) for n in range(9)))
    ((group, times),) = since(replica).items()
    assert times.first_ms is not None
    assert since(replica, times.first_ms) == {group: times}
    assert since(replica, times.first_ms + 1) == {}


def test_letters_are_overdue_by_team_unless_somebody_paused_them(replica: GivenReplica) -> None:
    def overdue(before_ms: int) -> list[OverdueLetters]:
        with replica.readers.reading(0.0) as connection:
            return urgent_failures.list_overdue(connection, before_ms, NOW_MS)

    def pause(scope: str, name: str) -> None:
        pause = Pause(NOW_MS - 1, "ann", None, "migration")
        replica.fold(OWN.changelog, (control_records.pause_key(scope, name), control_records.encode(pause)))

    replica.fold(OWN.changelog, *(entry(n, headers=failure("a.A")) for n in range(3)))
    with replica.readers.reading(0.0) as connection:
        (due_ms, team, topic), *_ = connection.execute(
            "SELECT min(due_ms), team, topic FROM letters JOIN cells ON cells.id = cell WHERE state = 'waiting'"
        ).fetchall()
    assert overdue(due_ms - 60_000) == []
    assert overdue(due_ms + 120_000) == [OverdueLetters(team or "", 3, due_ms)]
    pause("topic", topic)
    assert overdue(due_ms + 120_000) == []


def test_parked_letters_are_near_the_end_of_retention_and_discarded_ones_are_not(replica: GivenReplica) -> None:
    for topic in (OWN.parked, OWN.discarded):
        replica.fold(topic, (b"k", b"v", [("retry-source", b"orders.DLT/0/1"), ("retry-team", b"shop")]))
    with replica.readers.reading(0.0) as connection:
        ((team, failed_ms),) = connection.execute(
            "SELECT team, failed_ms FROM letters JOIN cells ON cells.id = cell WHERE state = 'parked'"
        ).fetchall()
        kept = dict.fromkeys((OWN.parked, OWN.discarded), 3 * DAY_MS)
        assert urgent_failures.list_fading(connection, kept, failed_ms + DAY_MS) == []
        fading = urgent_failures.list_fading(connection, kept, failed_ms + 2 * DAY_MS + 1)
        assert fading == [FadingLetters(team or "", OWN.parked, 1)]


def test_what_was_told_is_folded_and_taken_back(replica: GivenReplica) -> None:
    told = ToldEvents(
        lambda records: [note(replica, key, record) for key, record in records.items()] and None,
        lambda: replica.readers.reading(0.0),
    )  # fmt: skip
    event, other = ToldEvent("shop-chat", "near_retention/shop.parked/shop"), ToldEvent("pager", "new_failure/aa")
    told.write_told({event: notes.Told(5, "New failure: shop", "/failures/aa"), other: notes.Told(6)})
    told.write_beginnings({"f00d": notes.Telling(1, ("failed_again/aa/5",))})
    told.write_failing("pager", notes.FailingTarget(7, "said 500"))
    assert told.list_told() == {event: notes.Told(5, "New failure: shop", "/failures/aa"), other: notes.Told(6)}
    assert told.list_beginnings() == {"f00d": notes.Telling(1, ("failed_again/aa/5",))}
    assert told.list_failing() == {"pager": notes.FailingTarget(7, "said 500")}
    told.write_told({event: None})
    told.write_failing("pager", None)
    assert (list(told.list_told()), told.list_failing()) == ([other], {})
    before = replica.unreadable
    replica.fold(OWN.notes, (b"told/pager/x", b"junk"))
    assert (list(told.list_told()), replica.unreadable - before) == ([other], 1)


def test_a_resolved_group_is_open_again_once_it_fails_later(replica: GivenReplica) -> None:
    def read_reopened() -> dict[str, int]:
        with replica.readers.reading(0.0) as connection:
            return groups.read_resolutions(connection).failed_later

    replica.fold(OWN.changelog, entry(1, headers=failure("a.A")))
    (group,) = since(replica)
    assert read_reopened() == {}
    note(replica, RESOLVED + group, Resolved("ann", NOW_MS + 1))
    note(replica, f"{RESOLVED}unknown", Resolved("ann", 1))
    assert read_reopened() == {}
    note(replica, RESOLVED + group, Resolved("ann", NOW_MS - 1))
    assert read_reopened() == {group: NOW_MS - 1}
    note(replica, RESOLVED + group, None)
    assert read_reopened() == {}, "somebody opened it"
