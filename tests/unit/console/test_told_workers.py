"""What the replica makes of what workers say of themselves: who is silent since when, and which breakers are not closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.console.reading import now as reading_now
from retry.console.reading.now import NowQuery
from retry.console.rows import BreakerState, Now, Scope
from retry.policies.registry import Registry
from retry.telemetry.worker_records import BreakerRecord, WorkerRecord, to_json
from tests.support.plans import registry_of
from tests.support.replicas import HOUR_MS, NOW_MS, OWN, GivenReplica, entry

POLICIES = """
teams:
  payments: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}
  refunds: {topics: [{dead_letters: refunds.DLT, retry_to: refunds.retry}]}
targets:
  refunds.retry: {breaker: {failures: 5, within: 1m, open_for: 1m}}
"""
EVERY_MS = 30_000


@pytest.fixture
def replica(tmp_path: Path) -> GivenReplica:
    made = GivenReplica(tmp_path)
    made.finish()
    return made


def say(
    replica: GivenReplica, name: str, at_ms: int, *breakers: tuple[str, str, int], ended: bool = False
) -> None:
    told = [BreakerRecord(target, state, f"why of {name}", since_ms) for target, state, since_ms in breakers]
    record = WorkerRecord(f"host {name}", NOW_MS - HOUR_MS, at_ms, EVERY_MS, [0, 1], told, ended)
    replica.fold(OWN.notes, (f"worker/{name}".encode(), to_json(record)))


def now(replica: GivenReplica, scope: Scope = None, as_of_ms: int = NOW_MS, registry: Registry | None = None) -> Now:
    with replica.readers.reading(0.0) as connection:
        return NowQuery(connection, scope, registry or registry_of(POLICIES), {}, NOW_MS, as_of_ms).load_now([])


def silent(found: Now) -> dict[str, bool]:
    return {each.name: each.is_silent for each in found.workers}


def test_who_misses_two_records_is_silent_unless_he_said_that_he_ends(replica: GivenReplica) -> None:
    say(replica, "runs", NOW_MS - EVERY_MS)
    say(replica, "killed", NOW_MS - 2 * EVERY_MS - 15_001)
    say(replica, "ended", NOW_MS - HOUR_MS, ended=True)
    say(replica, "long ago", NOW_MS - 8 * 24 * HOUR_MS)
    found = now(replica)
    assert silent(found) == {"killed": True, "runs": False, "ended": False}
    assert [each.has_ended for each in found.workers] == [False, False, True]
    assert (found.workers[0].host, found.workers[0].shards, found.workers[0].at_ms) == ("host killed", 2, NOW_MS - 75_001)
    assert not any(silent(now(replica, as_of_ms=NOW_MS - 60_000)).values()), "a replica that is behind does not know"
    hidden = now(replica, frozenset({"payments"})).workers
    assert [(each.name, each.host, each.is_silent) for each in hidden] == [("", "", True), ("", "", False), ("", "", False)]
    say(replica, "killed", NOW_MS)
    assert silent(now(replica)) == {"killed": False, "runs": False, "ended": False}
    assert replica.unreadable == 0


def test_breakers_that_a_worker_says_are_shown_to_the_teams_that_send_there(replica: GivenReplica) -> None:
    replica.fold(OWN.changelog, *(entry(n) for n in range(3)))
    say(replica, "a", NOW_MS, ("orders.retry", "half-open", NOW_MS - 9), ("other.retry", "open", NOW_MS - 1))
    say(replica, "b", NOW_MS, ("orders.retry", "open", NOW_MS - 5))
    say(replica, "killed", NOW_MS - HOUR_MS, ("refunds.retry", "open", NOW_MS - HOUR_MS))
    orders = BreakerState("orders.retry", "open", "why of b", NOW_MS - 9, 2, 3)
    refunds = BreakerState("refunds.retry", "closed", "", None, 0, 0)
    other = BreakerState("other.retry", "open", "why of a", NOW_MS - 1, 1, 0)
    assert now(replica).breakers == (orders, other, refunds), "what a silent worker said last is of no use"
    assert now(replica, frozenset({"payments"})).breakers == (orders,)
    assert now(replica, frozenset({"refunds"})).breakers == (refunds,)
    with replica.readers.reading(0.0) as connection:
        assert reading_now.list_open_breakers(connection, NOW_MS).keys() == {"orders.retry", "other.retry"}
    say(replica, "a", NOW_MS + 1)
    say(replica, "b", NOW_MS + 1, ended=True)
    assert now(replica).breakers == (refunds,)
    assert now(replica, registry=Registry()).breakers == ()
