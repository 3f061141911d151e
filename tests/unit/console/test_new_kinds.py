"""What the replica says is new: kinds that were not there before, with however few letters, and resolved ones that fail again."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry import clock
from retry.console.folding import notes
from retry.console.folding.notes import RESOLVED, Resolved
from retry.console.folding.regrouping import CHANGE, Change
from retry.console.reading import group_states, groups
from retry.console.reading.groups import GroupsCursor, Kind
from tests.support.replicas import NOW_MS, OWN, GivenReplica, entry, failure

DAY_MS = 86_400_000


@pytest.fixture
def replica(tmp_path: Path) -> GivenReplica:
    made = GivenReplica(tmp_path)
    made.finish()
    return made


def since(replica: GivenReplica, seen: GroupsCursor) -> tuple[GroupsCursor, list[Kind]]:
    with replica.readers.reading(0.0) as connection:
        return groups.find_new_kinds(connection, replica.file.id, seen)


def note(replica: GivenReplica, key: str, record: notes.Record | None) -> None:
    replica.fold(OWN.notes, (key.encode(), None if record is None else notes.encode_note(record)))


def test_only_what_came_since_is_looked_at_and_all_of_another_file(replica: GivenReplica, tmp_path: Path) -> None:
    replica.fold(OWN.changelog, *(entry(n, headers=failure("a.A")) for n in range(9)))
    seen, kinds = since(replica, GroupsCursor())
    (first,) = kinds
    assert since(replica, seen) == (seen, [])
    replica.fold(OWN.changelog, entry(10, headers=failure("a.A")), entry(11, headers=failure("b.B")))
    note(replica, f"{CHANGE}1", Change((first.fingerprint,), "ann", 1, by_what="topic"))
    seen, kinds = since(replica, seen)
    assert [kind.fingerprint == first.fingerprint for kind in kinds] == [False], "a part of a split is no new kind"
    other = GivenReplica(tmp_path / "other")
    other.finish()
    other.fold(OWN.changelog, entry(1, headers=failure("a.A")))
    assert since(other, seen)[1] == [first]


def test_no_number_is_used_again(replica: GivenReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = entry(1, headers=failure("a.A"))
    replica.fold(OWN.changelog, (key, value))
    seen, _ = since(replica, GroupsCursor())
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS + 40 * DAY_MS)
    monkeypatch.setattr("retry.console.folding.folds._PRUNE_EVERY", 1)
    replica.fold(OWN.changelog, (key, None))
    assert replica.connection.execute("SELECT count(*) FROM cells").fetchone() == (0,)
    replica.fold(OWN.changelog, entry(2, headers=failure("b.B")))
    assert len(since(replica, seen)[1]) == 1


def test_a_resolved_group_is_open_again_once_it_fails_later(replica: GivenReplica) -> None:
    def reopened() -> dict[str, int]:
        with replica.readers.reading(0.0) as connection:
            return group_states.read_resolutions(connection).failed_later

    replica.fold(OWN.changelog, entry(1, headers=failure("a.A")))
    ((_, group),) = since(replica, GroupsCursor())[1]
    assert reopened() == {}
    note(replica, RESOLVED + group, Resolved("ann", NOW_MS + 1))
    note(replica, f"{RESOLVED}unknown", Resolved("ann", 1))
    assert reopened() == {}
    note(replica, RESOLVED + group, Resolved("ann", NOW_MS - 1))
    assert reopened() == {group: NOW_MS - 1}
    note(replica, RESOLVED + group, None)
    assert reopened() == {}, "somebody opened it"
