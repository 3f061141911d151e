"""Metrics count what happened, and are called what the table in their docstring calls them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from retry.delay_queue.envelopes import Entry
from retry.telemetry.metrics import Lateness, Metrics

NOW_MS = 1_700_000_000_000
BOUNDS_S = [0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0, 300.0]


def entry(team: str) -> Entry:
    return Entry("orders.retry", None, None, [], None, team)


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Value by the labels' values, in the order of their names."""
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
    return {tuple(value for _, value in sorted(s.labels.items())): s.value for s in samples}


def buckets(lateness: Lateness) -> dict[float, float]:
    (family,) = lateness.collect()
    return {float(s.labels["le"]): s.value for s in family.samples if s.name.endswith("_bucket")}


def test_letters_are_counted_by_team_and_decision() -> None:
    told = Metrics()
    told.tell_taken({("a", "retry"): 3, ("a", "park"): 1}, {"unknown": 3, "spring-kafka": 1})
    told.tell_taken({("a", "retry"): 2, ("b", "retry"): 1}, {"unknown": 3})
    found = values(told.render_metrics().decode(), "retry_letters_consumed_total")
    assert found == {("retry", "a"): 5, ("park", "a"): 1, ("retry", "b"): 1}
    assert values(told.render_metrics().decode(), "retry_letters_read_total") == {("unknown",): 6, ("spring-kafka",): 1}


def test_failures_are_counted_by_exception_and_attempt_and_few_of_them_have_a_name() -> None:
    told = Metrics()
    told.tell_failures({("a", "IOError", 0): 3, ("a", None, 0): 2, ("a", "IOError", 12): 1, ("b", "IOError", 0): 1})
    told.tell_failures({("a", f"Made up {n}", 0): 1 for n in range(30)} | {("a", "IOError", 0): 1})
    told.tell_failures({("b", name, 0): 1 for name in ("x" * 201, "a\nb", "(none)", "(others)")})
    found = values(told.render_metrics().decode(), "retry_failures_total")
    assert found["0", "IOError", "a"] == 4
    assert found["10+", "IOError", "a"] == 1
    assert found["0", "(none)", "a"] == 2
    assert found["0", "(others)", "a"] == 30 - 19
    assert len({exception for _, exception, team in found if team == "a"}) == 20 + 2
    assert {(exception, n) for (_, exception, team), n in found.items() if team == "b"} == {("IOError", 1), ("(others)", 4)}


def test_deliveries_are_counted_by_team_with_their_lateness() -> None:
    told = Metrics()
    told.tell_sent([entry("a"), entry("b"), entry("a")], [NOW_MS - 400, NOW_MS - 30, NOW_MS - 5], NOW_MS)
    text = told.render_metrics().decode()
    assert values(text, "retry_entries_sent_total") == {("a",): 2, ("b",): 1}
    assert values(text, "retry_lateness_seconds_count") == {("a",): 2, ("b",): 1}
    assert values(text, "retry_lateness_seconds_sum") == {("a",): 0.405, ("b",): 0.03}
    found = values(text, "retry_lateness_seconds_bucket")
    assert [found["0.01", "a"], found["0.2", "a"], found["0.5", "a"], found["+Inf", "a"]] == [1, 1, 2, 2]


def test_what_was_put_back_is_counted_by_target() -> None:
    told = Metrics()
    told.tell_put_back(Counter({"closed": 2}))
    told.tell_put_back(Counter({"closed": 1, "other": 1}))
    assert values(told.render_metrics().decode(), "retry_entries_deferred_total") == {("closed",): 3, ("other",): 1}


def test_gauges_are_asked_when_they_are_read() -> None:
    told, now = Metrics(), [1.0]
    told.watch("retry_entries_waiting", lambda: now[0])
    now[0] = 7.0
    assert values(told.render_metrics().decode(), "retry_entries_waiting") == {(): 7}


@given(st.lists(st.integers(-10, 400_000), min_size=1, max_size=50))
def test_each_bucket_holds_all_that_were_no_later(late_ms: list[int]) -> None:
    lateness = Lateness()
    lateness.observe_delays("a", sorted(NOW_MS - late for late in late_ms), NOW_MS)
    expected = {bound: float(sum(late <= bound * 1_000 for late in late_ms)) for bound in BOUNDS_S}
    assert buckets(lateness) == expected | {float("inf"): float(len(late_ms))}


def test_batches_add_up() -> None:
    lateness = Lateness()
    for _ in range(3):
        lateness.observe_delays("a", [NOW_MS - 100, NOW_MS - 99], NOW_MS)
    assert buckets(lateness)[0.1] == 6
    assert buckets(lateness)[0.05] == 0


def test_nobody_told_anything_shows_nothing() -> None:
    (family,) = Lateness().collect()
    assert family.samples == []
