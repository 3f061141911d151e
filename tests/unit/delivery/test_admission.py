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


class Bench:
    """An admission, and what it asks others."""

    def __init__(self, text: str = POLICIES) -> None:
        self.closed: dict[str, str] = {}
        self.share = 1.0
        self.admission = Admission(registry_of(text), {"parked"}, self._closed, lambda: self.share)

    def _closed(self, topics: set[str]) -> dict[str, str]:
        return {topic: why for topic, why in self.closed.items() if topic in topics}

    def take(self, lane: Lane, wanted: int = 1_000, after_ms: int = 0, **standing: str) -> int:
        """How many may go; `standing` are pauses, name by scope."""
        pause = control_records.encode(Pause(NOW_MS))
        asked = {control_records.pause_key(scope, name): pause for scope, name in standing.items()}
        return self.admission.acquire_permits(lane, wanted, NOW_MS + after_ms, asked)

    def why(self, lane: Lane, after_ms: int = 0) -> str | None:
        return self.admission.list_blocked(NOW_MS + after_ms).get(lane)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_nothing_speaks_against_goes_whole(bench: Bench) -> None:
    assert (bench.take(FREE, 700), bench.admission.list_blocked(NOW_MS)) == (700, {})


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
def test_a_pause_stops_what_it_names_and_nothing_else(bench: Bench, scope: str, name: str, stopped: set[Lane]) -> None:
    lanes = (ORDERS, OTHERS, FREE, PARKED)
    assert {lane for lane in lanes if not bench.take(lane, 1, **{scope: name})} == stopped
    assert bench.admission.list_blocked(NOW_MS) == dict.fromkeys(stopped, f"paused by {scope} {name}".rstrip())
    assert [bench.take(lane, 1) for lane in lanes] == [1, 1, 1, 1]
    assert bench.admission.list_blocked(NOW_MS) == {}


def test_a_pause_with_an_end_lets_go_at_that_time(bench: Bench) -> None:
    ends = {control_records.pause_key("all", ""): control_records.encode(Pause(NOW_MS, until_ms=NOW_MS + 5_000))}
    permits = bench.admission.acquire_permits(FREE, 1, NOW_MS + 4_999, ends)
    assert (permits, bench.admission.explain_block(FREE, ends, NOW_MS + 5_000)) == (0, None)
    assert "until" in (bench.why(FREE) or "")
    assert (bench.admission.acquire_permits(FREE, 1, NOW_MS + 5_000, ends), bench.why(FREE)) == (1, None)


def test_what_is_paused_counts_for_no_limit(bench: Bench) -> None:
    assert bench.take(ORDERS, team="orders") == 0
    assert bench.take(ORDERS) == 20


@pytest.mark.parametrize("lane", [Lane("orders", "orders.DLT", "broken.retry"), Lane("others", "o.DLT", "o.x")])
def test_what_the_policy_file_does_not_allow_any_more_is_held(bench: Bench, lane: Lane) -> None:
    said = f"the policy file does not allow team {lane.team} to send to {lane.destination} any more"
    assert (bench.take(lane), bench.why(lane)) == (0, said)


def test_what_a_team_left_behind_that_is_gone_is_held(bench: Bench) -> None:
    lane = Lane("gone", "gone.DLT", "orders.retry")
    assert (bench.take(lane), bench.why(lane)) == (0, "team gone is not in the policy file")


@pytest.mark.parametrize("lane", [PARKED, OWN_PARKED, Lane("gone", "gone.DLT", "parked"), Lane("gone", "x", "orders.parked")])
def test_parking_topics_are_open_to_everybody(bench: Bench, lane: Lane) -> None:
    assert (bench.take(lane), bench.why(lane)) == (1_000, None)


def test_what_is_parked_counts_for_no_limit(bench: Bench) -> None:
    assert (bench.take(PARKED, 5_000), bench.take(OWN_PARKED, 5_000)) == (5_000, 5_000)
    assert bench.take(ORDERS) == 20
    bench.admission.give_back(PARKED, 5_000)
    assert bench.take(ORDERS) == 0


def test_a_topic_that_cannot_be_reached_is_held_with_what_is_said_of_it(bench: Bench) -> None:
    bench.closed = {"orders.retry": "there is no such topic", "orders.parked": "not authorised"}
    assert [bench.take(lane, 1) for lane in (ORDERS, OTHERS, PARKED, FREE)] == [0, 0, 0, 1]
    assert (bench.why(ORDERS), bench.why(PARKED)) == ("there is no such topic", "not authorised")
    bench.closed = {}
    assert (bench.take(ORDERS, 1), bench.why(ORDERS)) == (1, None)


def test_the_tightest_limit_counts_and_the_others_lose_nothing_by_it(bench: Bench) -> None:
    assert (bench.take(ORDERS), bench.take(OTHERS)) == (20, 30)
    assert (bench.take(ORDERS), bench.take(OTHERS)) == (0, 0)
    assert (bench.why(ORDERS), bench.why(OTHERS)) == ("the limit is used up for now", "the limit is used up for now")
    # The target's rate of 50/s fills at 50 a second, the team's at 20.
    assert [bench.take(ORDERS, after_ms=1_000 * n) for n in range(1, 7)] == [20, 20, 20, 20, 0, 0]


def test_a_budget_is_that_of_the_whole_period(bench: Bench) -> None:
    assert sum(bench.take(ORDERS, after_ms=1_000 * n) for n in range(60)) == 100
    assert bench.take(ORDERS, after_ms=12 * 3_600_000) == 20


def test_what_is_given_back_may_go_again(bench: Bench) -> None:
    assert bench.take(ORDERS) == 20
    bench.admission.give_back(ORDERS, 15)
    assert (bench.take(ORDERS), bench.take(OTHERS)) == (15, 30)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.25, 5), (0.0, 1), (7.0, 20)])
def test_a_limit_is_that_of_all_workers_by_their_share_of_the_shards(bench: Bench, share: float, expected: int) -> None:
    bench.share = share
    assert bench.take(ORDERS) == expected
    assert bench.take(ORDERS, after_ms=1_000) == (expected if share else 0)


def test_a_share_that_grows_fills_at_its_new_pace(bench: Bench) -> None:
    bench.share = 0.5
    assert bench.take(ORDERS) == 10
    bench.share = 1.0
    assert (bench.take(ORDERS), bench.take(ORDERS, after_ms=500)) == (0, 10)


def test_a_topic_that_refuses_is_held_until_it_takes_a_probe(bench: Bench) -> None:
    bench.admission.note_refused("orders.retry", "too many bytes", NOW_MS)
    assert (bench.take(ORDERS), bench.why(ORDERS)) == (0, "it refuses: too many bytes")
    assert (bench.take(ORDERS, after_ms=5_000), bench.why(ORDERS, 5_000)) == (1, None)
    bench.admission.note_delivered({"orders.retry"})
    assert bench.take(ORDERS, after_ms=5_000) == 19


def test_a_probe_that_found_nothing_to_send_is_still_to_be_sent(bench: Bench) -> None:
    bench.admission.breakers.note_returned_letters("broken.retry", 2, NOW_MS)
    assert (bench.take(BROKEN), bench.why(BROKEN)) == (0, "its breaker is open: 2 letters came back within 60000 ms")
    assert bench.take(BROKEN, after_ms=30_000) == 1
    bench.admission.give_back(BROKEN, 1)
    assert bench.take(BROKEN, after_ms=90_000) == 1


def test_a_probe_that_a_limit_kept_back_is_still_to_be_sent(bench: Bench) -> None:
    assert bench.take(BROKEN) == 1
    bench.admission.breakers.note_returned_letters("broken.retry", 2, NOW_MS)
    assert (bench.take(BROKEN, after_ms=30_000), bench.why(BROKEN, 30_000)) == (0, "the limit is used up for now")
    # Silence since then says nothing: one probe, not everything.
    assert bench.take(BROKEN, after_ms=300_000) == 1
    assert bench.take(BROKEN, after_ms=300_001) == 0


def test_what_an_open_breaker_holds_counts_for_no_limit(bench: Bench) -> None:
    bench.admission.note_refused("orders.retry", "full", NOW_MS)
    assert [bench.take(ORDERS) for _ in range(5)] == [0] * 5
    bench.admission.note_delivered({"orders.retry"})
    assert bench.take(ORDERS) == 20


def test_the_reason_is_the_latest_one(bench: Bench) -> None:
    bench.take(ORDERS, all="")
    bench.closed = {"orders.retry": "gone"}
    bench.take(ORDERS)
    assert bench.why(ORDERS) == "gone"


def test_a_lane_that_nobody_asks_for_any_more_is_not_held(bench: Bench) -> None:
    """Ask for a lane no more, since its entries were deleted or its shard is another worker's now."""
    bench.take(ORDERS, all="")
    assert (bench.why(ORDERS, 29_999), bench.why(ORDERS, 30_000)) == ("paused by all", None)


def test_a_lane_that_is_held_is_logged_once_and_a_limit_is_no_warning(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        bench.take(ORDERS, all="")
    assert caplog.messages == ["orders: letters of orders.DLT for orders.retry wait: paused by all"]
    for _ in range(3):
        bench.take(OTHERS)
    assert len(caplog.messages) == 1


def test_another_policy_file_brings_other_limits_and_permissions(bench: Bench) -> None:
    assert bench.take(ORDERS) == 20
    bench.admission.note_refused("o", "full", NOW_MS)
    stricter = POLICIES.replace("20/s", "7/s").replace("orders.parked", "orders.rest").replace("[o]", "[p]")
    bench.admission.use(parse(stricter, "p.yaml"))
    assert bench.take(ORDERS) == 7
    assert [bench.take(ORDERS._replace(destination=to), 1) for to in ("orders.rest", "orders.parked", "parked")] == [1, 0, 1]
    assert (bench.take(FREE), bench.take(FREE._replace(destination="p"))) == (0, 1_000)
    bench.admission.use(parse(POLICIES.replace("rate: 20/s", "").replace("budget: 100/1d", ""), "p.yaml"))
    assert bench.take(ORDERS) == 50


def test_whose_lanes_are_is_known_whatever_the_policy_file_says(bench: Bench) -> None:
    bench.admission.lanes[b"lane"] = ORDERS
    bench.admission.use(parse(POLICIES, "p.yaml"))
    assert bench.admission.lanes == {b"lane": ORDERS}


def test_what_is_held_is_counted_by_reason(bench: Bench) -> None:
    bench.closed["o"] = "no such topic"
    bench.admission.note_refused("broken.retry", "full", NOW_MS)
    bench.take(ORDERS, 20)
    assert [bench.take(ORDERS), bench.take(OTHERS, topic="others.DLT"), bench.take(BROKEN), bench.take(FREE)] == [0] * 4
    assert bench.take(Lane("orders", "orders.DLT", "gone.retry")) == 0
    found = {Reason.RATE_LIMIT: 1, Reason.PAUSED: 1, Reason.CIRCUIT_BREAKER: 1, Reason.REFUSED: 1, Reason.NOT_ALLOWED: 1}
    assert bench.admission.count_reasons(NOW_MS) == found
    assert bench.admission.count_reasons(NOW_MS + 60_000) == {}
