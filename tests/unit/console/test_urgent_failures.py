"""What is new, what came again, what is growing, and whose it is, as the replica says."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from retry import clock
from retry.console.folding import notes
from retry.console.folding.notes import NOTE, RESOLVED, Note, Resolved
from retry.console.reading.urgent_failures import Rates, UrgentFailures, load_urgent_failures
from retry.console.rows import Scope
from retry.telemetry import outcomes
from retry.telemetry.outcomes import LetterRows, SharedFields
from tests.support.plans import registry_of
from tests.support.replicas import HOUR_MS, OWN, GivenReplica

POLICIES = """
teams:
  payments: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}
  refunds: {topics: [{dead_letters: refunds.DLT, retry_to: refunds.retry}]}
"""
DAY_MS = 24 * HOUR_MS
# A quarter past an hour: what is recent is 75 minutes long.
NOW_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS + HOUR_MS // 4
RECENT_MS = HOUR_MS + HOUR_MS // 4
A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GivenReplica:
    monkeypatch.setattr(clock, "wall_ms", lambda: NOW_MS)
    made = GivenReplica(tmp_path, registry_of(POLICIES))
    made.finish()
    return made


def fail(replica: GivenReplica, kind: str, *failed_ms: int, team: str = "payments") -> None:
    """Tell by outcomes of letters of a kind that failed then, and were parked."""
    shared = SharedFields(team, f"{team}.DLT", 0, "p", 1, "x.X", "park", "max_attempts", "parked", "x.Y", kind, "g")
    rows: LetterRows = [(f"{kind}{n}".encode(), n, at, at, None) for n, at in enumerate(failed_ms)]
    (value,) = outcomes.encode_outcomes(defaultdict(list, {shared: rows}), NOW_MS)
    replica.fold(OWN.outcomes, (None, value))


def write(replica: GivenReplica, key: str, record: notes.Record) -> None:
    replica.fold(OWN.notes, (key.encode(), notes.encode_note(record)))


def urgent(replica: GivenReplica, scope: Scope = None, as_of_ms: int = NOW_MS) -> UrgentFailures:
    with replica.readers.reading(0.0) as connection:
        return load_urgent_failures(connection, scope, NOW_MS, as_of_ms)


def spread(count: int, from_ms: int, to_ms: int) -> list[int]:
    return [from_ms + (to_ms - from_ms) * n // count for n in range(count)]


def test_what_was_first_seen_within_a_day_is_new_and_what_failed_after_it_was_resolved_came_again(replica: GivenReplica) -> None:
    fail(replica, A, NOW_MS - 2 * HOUR_MS)
    fail(replica, B, NOW_MS - 2 * DAY_MS, NOW_MS - HOUR_MS)
    fail(replica, C, NOW_MS - 3 * HOUR_MS, team="refunds")
    found = urgent(replica)
    assert ([each.id for each in found.new], found.new_count, found.again) == ([A, C], 2, ())
    write(replica, RESOLVED + A, Resolved("ann", NOW_MS - HOUR_MS))
    write(replica, RESOLVED + B, Resolved("ann", NOW_MS - DAY_MS))
    found = urgent(replica)
    assert ([each.id for each in found.new], found.new_count) == ([C], 1)
    assert [(each.id, until_ms) for each, until_ms in found.again] == [(B, NOW_MS - DAY_MS)]
    of_team = urgent(replica, frozenset({"refunds"}))
    assert ([each.id for each in of_team.new], of_team.again) == ([C], ())
    assert urgent(replica, frozenset()) == UrgentFailures()


def test_what_comes_several_times_as_often_is_growing_and_both_rates_are_told(replica: GivenReplica) -> None:
    before_ms = NOW_MS - RECENT_MS - 20 * HOUR_MS, NOW_MS - RECENT_MS
    fail(replica, A, *spread(40, *before_ms), *spread(50, NOW_MS - RECENT_MS, NOW_MS))
    fail(replica, B, *spread(400, *before_ms), *spread(30, NOW_MS - RECENT_MS, NOW_MS))
    fail(replica, C, *spread(60, NOW_MS - RECENT_MS - HOUR_MS // 2, NOW_MS))
    ((group, rates),) = urgent(replica).growing
    assert (group.id, rates) == (A, Rates(50, RECENT_MS, 40, 20 * HOUR_MS)), "the others are steady, and too new to compare"
    assert (round(rates.recent_per_hour), round(rates.before_per_hour)) == (40, 2)
    assert urgent(replica, frozenset({"refunds"})).growing == ()
    write(replica, RESOLVED + A, Resolved("ann", NOW_MS + 1))
    assert urgent(replica).growing == (), "somebody knows what it is, and that it is done with"


def test_a_replica_that_is_behind_does_not_take_what_it_has_not_read_for_silence(replica: GivenReplica) -> None:
    fail(replica, A, *spread(40, NOW_MS - 20 * HOUR_MS, NOW_MS - 2 * HOUR_MS))
    fail(replica, A, *spread(40, NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS))
    ((_, rates),) = urgent(replica, as_of_ms=NOW_MS - HOUR_MS).growing
    assert rates.recent_ms == RECENT_MS, "it ends when the replica was last up to date"


def test_chance_alone_is_not_growth() -> None:
    hour = HOUR_MS
    assert not Rates(9, hour, 0, 20 * hour).are_growing(), "too few to say anything"
    assert Rates(10, hour, 0, 20 * hour).are_growing()
    assert not Rates(19, hour, 200, 20 * hour).are_growing(), "less than twice as often"
    assert not Rates(12, hour, 100, 20 * hour).are_growing(), "twice as often, and within what chance makes of it"
    assert Rates(120, hour, 1_000, 20 * hour).are_growing()
    assert not Rates(500, hour, 0, hour // 2).are_growing(), "no rate is known of before"


def test_who_has_written_a_name_is_on_it_as_far_as_the_viewer_may_see(replica: GivenReplica) -> None:
    fail(replica, A, NOW_MS - HOUR_MS)
    fail(replica, B, NOW_MS - HOUR_MS)
    write(replica, NOTE + A, Note("ann", "", "", "ann", NOW_MS, ("payments",)))
    found = urgent(replica)
    assert {each.id: each.owner for each in found.new} == {A: "ann", B: ""}
    assert [each.id for each in found.list_without_owner()] == [B]
    assert found.owned == (), "none of its letters waits or is parked"
