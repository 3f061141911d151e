"""What may go just now, why the rest waits, and that nothing is counted which did not go."""

from __future__ import annotations

import logging

import pytest

from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause
from retry.delay_queue.entry_keys import Lane
from retry.delivery.admission import Admission
from retry.policies.policy_file import parse
from retry.telemetry.health import Reason
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
POLICIES = """
targets:
  orders.retry: {rate: 50/s}
  broken.retry: {breaker: {failures: 2, within: 1m, open_for: 30s}, rate: 1/m}
teams:
  orders:
    rate: 20/s
    budget: 100/1d
    topics:
      - {dead_letters: orders.DLT, retry_to: orders.retry, park_to: orders.parked}
  others:
    topics:
      - {dead_letters: others.DLT, retry_to: orders.retry, rules: [{exception: A, retry_to: broken.retry}]}
      - {dead_letters: o.DLT, retry_to: origin, allowed_targets: [o]}
"""
ORDERS, OTHERS = Lane("orders", "orders.DLT", "orders.retry"), Lane("others", "others.DLT", "orders.retry")
BROKEN, FREE = Lane("others", "others.DLT", "broken.retry"), Lane("others", "o.DLT", "o")
PARKED, OWN_PARKED = Lane("orders", "orders.DLT", "orders.parked"), Lane("orders", "orders.DLT", "parked")


class Around:
    """A gate, and what it asks others."""

    def __init__(self, text: str = POLICIES) -> None:
        self.closed: dict[str, str] = {}
        self.share = 1.0
        self.gate = Admission(registry_of(text), {"parked"}, self._closed, lambda: self.share)

    def _closed(self, topics: set[str]) -> dict[str, str]:
        return {topic: why for topic, why in self.closed.items() if topic in topics}

    def take(self, lane: Lane, wanted: int = 1_000, after_ms: int = 0, **standing: str) -> int:
        """How many may go; `standing` are pauses, name by scope."""
        pause = control_records.encode(Pause(NOW_MS))
        asked = {control_records.pause_key(scope, name): pause for scope, name in standing.items()}
        return self.gate.acquire_permits(lane, wanted, NOW_MS + after_ms, asked)

    def why(self, lane: Lane, after_ms: int = 0) -> str | None:
        return self.gate.list_blocked(NOW_MS + after_ms).get(lane)


@pytest.fixture
def around() -> Around:
    return Around()


def test_what_nothing_speaks_against_goes_whole(around: Around) -> None:
    assert (around.take(FREE, 700), around.gate.list_blocked(NOW_MS)) == (700, {})


@pytest.mark.parametrize(
    ("scope", "name", "stopped"),
    [
        ("all", "", {ORDERS, OTHERS, FREE, PARKED}),
        ("team", "orders", {ORDERS, PARKED}),
        ("topic", "others.DLT", {OTHERS}),
        ("target", "orders.retry", {ORDERS, OTHERS}),
        ("target", "orders.parked", {PARKED}),
    ],
)
def test_a_pause_stops_what_it_names_and_nothing_else(around: Around, scope: str, name: str, stopped: set[Lane]) -> None:
    lanes = (ORDERS, OTHERS, FREE, PARKED)
    assert {lane for lane in lanes if not around.take(lane, 1, **{scope: name})} == stopped
    assert around.gate.list_blocked(NOW_MS) == dict.fromkeys(stopped, f"paused by {scope} {name}".rstrip())
    assert [around.take(lane, 1) for lane in lanes] == [1, 1, 1, 1]
    assert around.gate.list_blocked(NOW_MS) == {}


def test_a_pause_with_an_end_lets_go_at_that_time(around: Around) -> None:
    ends = {control_records.pause_key("all", ""): control_records.encode(Pause(NOW_MS, until_ms=NOW_MS + 5_000))}
    permits = around.gate.acquire_permits(FREE, 1, NOW_MS + 4_999, ends)
    assert (permits, around.gate.why_not(FREE, ends, NOW_MS + 5_000)) == (0, None)
    assert "until" in (around.why(FREE) or "")
    assert (around.gate.acquire_permits(FREE, 1, NOW_MS + 5_000, ends), around.why(FREE)) == (1, None)


def test_what_is_paused_counts_for_no_limit(around: Around) -> None:
    assert around.take(ORDERS, team="orders") == 0
    assert around.take(ORDERS) == 20


@pytest.mark.parametrize("lane", [Lane("orders", "orders.DLT", "broken.retry"), Lane("others", "o.DLT", "o.x")])
def test_what_the_policy_file_does_not_allow_any_more_is_held(around: Around, lane: Lane) -> None:
    said = f"the policy file does not allow team {lane.team} to send to {lane.destination} any more"
    assert (around.take(lane), around.why(lane)) == (0, said)


def test_what_a_team_left_behind_that_is_gone_is_held(around: Around) -> None:
    lane = Lane("gone", "gone.DLT", "orders.retry")
    assert (around.take(lane), around.why(lane)) == (0, "team gone is not in the policy file")


@pytest.mark.parametrize("lane", [PARKED, OWN_PARKED, Lane("gone", "gone.DLT", "parked"), Lane("gone", "x", "orders.parked")])
def test_parking_topics_are_open_to_everybody(around: Around, lane: Lane) -> None:
    assert (around.take(lane), around.why(lane)) == (1_000, None)


def test_what_is_parked_counts_for_no_limit(around: Around) -> None:
    assert (around.take(PARKED, 5_000), around.take(OWN_PARKED, 5_000)) == (5_000, 5_000)
    assert around.take(ORDERS) == 20
    around.gate.give_back(PARKED, 5_000)
    assert around.take(ORDERS) == 0


def test_a_topic_that_cannot_be_reached_is_held_with_what_is_said_of_it(around: Around) -> None:
    around.closed = {"orders.retry": "there is no such topic", "orders.parked": "not authorised"}
    assert [around.take(lane, 1) for lane in (ORDERS, OTHERS, PARKED, FREE)] == [0, 0, 0, 1]
    assert (around.why(ORDERS), around.why(PARKED)) == ("there is no such topic", "not authorised")
    around.closed = {}
    assert (around.take(ORDERS, 1), around.why(ORDERS)) == (1, None)


def test_the_tightest_limit_counts_and_the_others_lose_nothing_by_it(around: Around) -> None:
    assert (around.take(ORDERS), around.take(OTHERS)) == (20, 30)
    assert (around.take(ORDERS), around.take(OTHERS)) == (0, 0)
    assert (around.why(ORDERS), around.why(OTHERS)) == ("the limit is used up for now", "the limit is used up for now")
    # The target's rate of 50/s fills at 50 a second, the team's at 20.
    assert [around.take(ORDERS, after_ms=1_000 * n) for n in range(1, 7)] == [20, 20, 20, 20, 0, 0]


def test_a_budget_is_that_of_the_whole_period(around: Around) -> None:
    assert sum(around.take(ORDERS, after_ms=1_000 * n) for n in range(60)) == 100
    assert around.take(ORDERS, after_ms=12 * 3_600_000) == 20


def test_what_is_given_back_may_go_again(around: Around) -> None:
    assert around.take(ORDERS) == 20
    around.gate.give_back(ORDERS, 15)
    assert (around.take(ORDERS), around.take(OTHERS)) == (15, 30)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.25, 5), (0.0, 1), (7.0, 20)])
def test_a_limit_is_that_of_all_workers_by_their_share_of_the_shards(around: Around, share: float, expected: int) -> None:
    around.share = share
    assert around.take(ORDERS) == expected
    assert around.take(ORDERS, after_ms=1_000) == (expected if share else 0)


def test_a_share_that_grows_fills_at_its_new_pace(around: Around) -> None:
    around.share = 0.5
    assert around.take(ORDERS) == 10
    around.share = 1.0
    assert (around.take(ORDERS), around.take(ORDERS, after_ms=500)) == (0, 10)


def test_a_topic_that_refuses_is_held_until_it_takes_a_probe(around: Around) -> None:
    around.gate.note_refused("orders.retry", "too many bytes", NOW_MS)
    assert (around.take(ORDERS), around.why(ORDERS)) == (0, "it refuses: too many bytes")
    assert (around.take(ORDERS, after_ms=5_000), around.why(ORDERS, 5_000)) == (1, None)
    around.gate.note_delivered({"orders.retry"})
    assert around.take(ORDERS, after_ms=5_000) == 19


def test_a_probe_that_found_nothing_to_send_is_still_to_be_sent(around: Around) -> None:
    around.gate.breakers.came_back("broken.retry", 2, NOW_MS)
    assert (around.take(BROKEN), around.why(BROKEN)) == (0, "its breaker is open: 2 letters came back within 60000 ms")
    assert around.take(BROKEN, after_ms=30_000) == 1
    around.gate.give_back(BROKEN, 1)
    assert around.take(BROKEN, after_ms=90_000) == 1


def test_a_probe_that_a_limit_kept_back_is_still_to_be_sent(around: Around) -> None:
    assert around.take(BROKEN) == 1
    around.gate.breakers.came_back("broken.retry", 2, NOW_MS)
    assert (around.take(BROKEN, after_ms=30_000), around.why(BROKEN, 30_000)) == (0, "the limit is used up for now")
    # Silence since then says nothing: one probe, not everything.
    assert around.take(BROKEN, after_ms=300_000) == 1
    assert around.take(BROKEN, after_ms=300_001) == 0


def test_what_an_open_breaker_holds_counts_for_no_limit(around: Around) -> None:
    around.gate.note_refused("orders.retry", "full", NOW_MS)
    assert [around.take(ORDERS) for _ in range(5)] == [0] * 5
    around.gate.note_delivered({"orders.retry"})
    assert around.take(ORDERS) == 20


def test_the_reason_is_the_latest_one(around: Around) -> None:
    around.take(ORDERS, all="")
    around.closed = {"orders.retry": "gone"}
    around.take(ORDERS)
    assert around.why(ORDERS) == "gone"


def test_a_lane_that_nobody_asks_for_any_more_is_not_held(around: Around) -> None:
    """Its entries were deleted, or their shard is another worker's now."""
    around.take(ORDERS, all="")
    assert (around.why(ORDERS, 29_999), around.why(ORDERS, 30_000)) == ("paused by all", None)


def test_a_lane_that_is_held_is_logged_once_and_a_limit_is_no_warning(
    around: Around, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        around.take(ORDERS, all="")
    assert caplog.messages == ["orders: letters of orders.DLT for orders.retry wait: paused by all"]
    for _ in range(3):
        around.take(OTHERS)
    assert len(caplog.messages) == 1


def test_another_policy_file_brings_other_limits_and_permissions(around: Around) -> None:
    assert around.take(ORDERS) == 20
    around.gate.note_refused("o", "full", NOW_MS)
    stricter = POLICIES.replace("20/s", "7/s").replace("orders.parked", "orders.rest").replace("[o]", "[p]")
    around.gate.use(parse(stricter, "p.yaml"))
    assert around.take(ORDERS) == 7
    assert [around.take(ORDERS._replace(destination=to), 1) for to in ("orders.rest", "orders.parked", "parked")] == [1, 0, 1]
    assert (around.take(FREE), around.take(FREE._replace(destination="p"))) == (0, 1_000)
    around.gate.use(parse(POLICIES.replace("rate: 20/s", "").replace("budget: 100/1d", ""), "p.yaml"))
    assert around.take(ORDERS) == 50


def test_whose_lanes_are_is_known_whatever_the_policy_file_says(around: Around) -> None:
    around.gate.lanes[b"lane"] = ORDERS
    around.gate.use(parse(POLICIES, "p.yaml"))
    assert around.gate.lanes == {b"lane": ORDERS}


def test_what_is_held_is_counted_by_reason(around: Around) -> None:
    around.closed["o"] = "no such topic"
    around.gate.note_refused("broken.retry", "full", NOW_MS)
    around.take(ORDERS, 20)
    assert [around.take(ORDERS), around.take(OTHERS, topic="others.DLT"), around.take(BROKEN), around.take(FREE)] == [0] * 4
    assert around.take(Lane("orders", "orders.DLT", "gone.retry")) == 0
    found = {Reason.RATE_LIMIT: 1, Reason.PAUSED: 1, Reason.CIRCUIT_BREAKER: 1, Reason.REFUSED: 1, Reason.NOT_ALLOWED: 1}
    assert around.gate.reasons(NOW_MS) == found
    assert around.gate.reasons(NOW_MS + 60_000) == {}
