"""What a policy file would have made of the same failures."""

from __future__ import annotations

import pytest

from retry.analytics.advice.evidence import Cell, Evidence, Kind
from retry.analytics.advice.replay import Expected, Start, list_unjudged_rules, replay
from retry.policies.policy_file import parse
from retry.policies.registry import Registry

HOUR_MS = 3_600_000


def registry(keys: str, rules: str = "[]") -> Registry:
    return parse(f"teams: {{shop: {{topics: [{{dead_letters: d, retry_to: r, {keys}, rules: {rules}}}]}}}}", "p")


def start(letters: int = 1_000, exception: str = "x", **other: object) -> Start:
    return Start(
        **({"team": "shop", "topic": "d", "exception": exception, "is_cause": False, "hour_ms": 0, "letters": letters} | other)
    )  # type: ignore[arg-type]


def evidence(*chances: float, delay_ms: int = 1_000) -> dict[Kind, Evidence]:
    counts = [(round(1_000 * each), round(1_000 * (1 - each))) for each in chances]
    cells = [Cell(n, delay_ms, *ended, age_ms=n * delay_ms) for n, ended in enumerate(counts, 1)]
    return {Kind("shop", "x"): Evidence.from_cells(cells)}


def only(found: dict[Kind, Expected]) -> Expected:
    (each,) = found.values()
    return each


CONSTANT = "backoff: {kind: constant, delay: 1s}, jitter: none"


def test_retries_recoveries_and_times_are_what_the_chances_say() -> None:
    found = only(replay(registry(f"{CONSTANT}, max_attempts: 2"), [start()], evidence(0.5, 0.5, 0.5)))
    assert (found.letters, found.retries, found.recovered, found.parked) == pytest.approx((1_000, 1_500, 750, 250))
    assert (found.find_wait_ms(0.5), found.find_wait_ms(0.9), found.unobserved) == (1_000, 2_000, 0)
    assert found.recovered_low < 750 < found.recovered_high


def test_attempts_that_were_never_made_bring_nothing_and_are_told() -> None:
    found = only(replay(registry(f"{CONSTANT}, max_attempts: 4"), [start()], evidence(0.5, 0.5)))
    assert (found.retries, found.unobserved, found.unobserved_attempts, found.recovered) == pytest.approx((2_000, 500, 500, 750))
    assert found.recovered_high == pytest.approx(1_000)


def test_the_chance_is_that_of_the_delay_where_it_was_tried_and_else_unknown() -> None:
    counts = [(1_000, 100, 900), (60_000, 900, 100), (9_000, 0, 3)]
    cells = {Kind("shop", "x"): Evidence.from_cells([Cell(1, delay, *ended, age_ms=delay) for delay, *ended in counts])}
    for delay, recovered, unobserved in (("1s", 100, 0), ("55s", 900, 0), ("9s", 0, 0)):
        keys = f"backoff: {{kind: constant, delay: {delay}}}, jitter: none, max_attempts: 1"
        found = only(replay(registry(keys), [start()], cells))
        assert (found.recovered, found.unobserved) == (pytest.approx(recovered), unobserved)
    for delay in ("100ms", "20s", "45s", "1h"):
        keys = f"backoff: {{kind: constant, delay: {delay}}}, jitter: none, max_attempts: 1"
        found = only(replay(registry(keys), [start()], cells))
        assert (found.unobserved_delays, found.recovered_low, found.recovered_high) == (pytest.approx(1_000), 0, 1_000)


def test_the_same_attempt_and_delay_at_another_age_is_another_retry() -> None:
    cells = [Cell(1, 1_000, 0, 1_000, age_ms=1_000), Cell(2, 1_000, 900, 100, age_ms=2_000)]
    keys = "backoff: {kind: steps, delays: [1m, 1s]}, jitter: none, max_attempts: 2"
    found = only(replay(registry(keys), [start()], {Kind("shop", "x"): Evidence.from_cells(cells)}))
    assert found.unobserved_delays == found.retries
    assert (found.recovered_low, found.recovered_high) == (0, 1_000)


def test_what_was_not_observed_recovers_as_time_alone_tells() -> None:
    cells = [Cell(n, delay_ms, *ended, age_ms=age_ms) for n, delay_ms, age_ms, ended in (
        (1, 10_000, 10_000, (0, 1_000)), (2, 60_000, 70_000, (400, 600)), (3, 600_000, 670_000, (300, 300)))]  # fmt: skip
    for delay, attempts, recovered in (("20s", 3, 0), ("20s", 4, 400), ("5m", 2, 400), ("6m", 2, 700), ("1h", 1, 700)):
        keys = f"backoff: {{kind: constant, delay: {delay}}}, jitter: none, max_attempts: {attempts}"
        found = only(replay(registry(keys), [start()], {Kind("shop", "x"): Evidence.from_cells(cells)}))
        assert found.recovered == pytest.approx(recovered)
        assert found.recovered_high == 1_000


def test_each_topic_and_policy_has_its_own_chances() -> None:
    by_kind = {
        Kind("shop", "x", ("d",), ("a",)): evidence(0.5)[Kind("shop", "x")],
        Kind("shop", "x", ("d", "e"), ("b",)): evidence(0.9)[Kind("shop", "x")],
    }
    file = registry(f"{CONSTANT}, max_attempts: 1")
    found = only(replay(file, [start(policy="a"), start(policy="b")], by_kind))
    assert (found.letters, found.recovered) == pytest.approx((2_000, 1_400))
    assert only(replay(file, [start(policy="c")], by_kind)).unobserved == pytest.approx(1_000)


def test_rules_ages_and_quiet_hours_are_those_of_the_file() -> None:
    ruled = registry(f"{CONSTANT}, max_attempts: 3", "[{exception: x, attempt: 2.., park: true}]")
    assert only(replay(ruled, [start()], evidence(0.5, 0.5, 0.5))).retries == pytest.approx(1_000)
    aged = registry("backoff: {kind: constant, delay: 1h}, jitter: none, max_age: 90m")
    assert only(replay(aged, [start()], evidence(0.5, 0.5, 0.5))).retries == pytest.approx(1_000)
    quiet = registry(f"{CONSTANT}, max_attempts: 1, quiet_hours: {{from: '00:00', to: '02:00', zone: UTC}}")
    waits = sorted(replay(quiet, [start(8)], evidence(1.0))[Kind("shop", "x")].waits_ms)
    assert waits[0][0] > HOUR_MS and waits[-1][0] < 2 * HOUR_MS


def test_jitter_is_spread_over_its_range() -> None:
    full = registry("backoff: {kind: constant, delay: 10s}, jitter: full, max_attempts: 1")
    waits = [wait_ms for wait_ms, _ in only(replay(full, [start()], evidence(1.0, delay_ms=500))).waits_ms]
    assert len(set(waits)) == 8
    assert min(waits) < 2_500 and max(waits) > 7_500


def test_kinds_without_evidence_and_topics_without_policy_recover_nothing() -> None:
    found = replay(registry(f"{CONSTANT}, max_attempts: 2"), [start(exception="new"), start(topic="gone")], evidence(0.5))
    assert found[Kind("shop", "new")].recovered == found[Kind("shop", "x")].recovered == 0
    assert (found[Kind("shop", "new")].unobserved, found[Kind("shop", "x")].retries) == pytest.approx((2_000, 0))


def test_many_letters_cost_what_few_do_and_few_are_not_more_than_there_are() -> None:
    file = registry(f"{CONSTANT}, max_attempts: 2")
    for letters in (1, 3, 10**9):
        found = only(replay(file, [start(letters)], evidence(0.5)))
        assert (found.letters, found.recovered) == pytest.approx((letters, letters / 2))
        assert len(found.waits_ms) <= 8


def test_an_attempt_without_end_comes_to_one() -> None:
    endless = registry("backoff: {kind: constant, delay: 0s}, jitter: none, max_attempts: 1000000")
    assert only(replay(endless, [start(1)], {})).retries == 200


def test_rules_that_cannot_be_judged_are_named() -> None:
    rules = "[{message: 'a', park: true}, {exception: x}, {headers: {h: v}}, {stage: s}, {null_value: true}, {attempt: 2}]"
    assert list_unjudged_rules(registry(CONSTANT, rules), [start()]) == ["shop/d#1", "shop/d#3", "shop/d#4", "shop/d#5"]
