"""After failures a target rests; then a probe goes, and what becomes of it decides."""

from __future__ import annotations

import pytest

from retry.delivery.circuit_breakers import TargetCircuitBreakers
from retry.policies.limits import CircuitBreakerLimits

T, OTHER = "orders.retry", "other.retry"
OPEN_MS, WITHIN_MS = 30_000, 60_000
ALL = 1 << 30


@pytest.fixture
def breakers() -> TargetCircuitBreakers:
    return TargetCircuitBreakers({T: CircuitBreakerLimits(3, WITHIN_MS, OPEN_MS)})


def count_allowed(breakers: TargetCircuitBreakers, now_ms: int, target: str = T) -> int:
    return breakers.admit_to_target(target, now_ms)[0]


def open_breaker(breakers: TargetCircuitBreakers, at_ms: int = 0) -> TargetCircuitBreakers:
    breakers.note_returned_letters(T, 3, at_ms)
    assert count_allowed(breakers, at_ms) == 0
    return breakers


def test_a_closed_breaker_lets_everything_through(breakers: TargetCircuitBreakers) -> None:
    counts = breakers.admit_to_target(T, 0), breakers.admit_to_target(OTHER, 0)
    assert (*counts, breakers.describe_targets(0)) == ((ALL, ""), (ALL, ""), {})


def test_enough_letters_that_come_back_open_it(breakers: TargetCircuitBreakers) -> None:
    for at_ms in (0, 10, 20):
        assert count_allowed(breakers, at_ms) == ALL
        breakers.note_returned_letters(T, 1, at_ms)
    assert breakers.admit_to_target(T, 20) == (0, "its breaker is open: 3 letters came back within 60000 ms")
    assert (breakers.describe_targets(20), count_allowed(breakers, 20, OTHER)) == ({T: "open"}, ALL)
    assert count_allowed(breakers, 20 + OPEN_MS - 1) == 0


def test_letters_that_come_back_too_far_apart_do_not_open_it(breakers: TargetCircuitBreakers) -> None:
    for at_ms in (0, 1, WITHIN_MS + 1, WITHIN_MS + 2):
        breakers.note_returned_letters(T, 1, at_ms)
    assert count_allowed(breakers, WITHIN_MS + 2) == ALL
    breakers.note_returned_letters(T, 1, 2 * WITHIN_MS)
    assert count_allowed(breakers, 2 * WITHIN_MS) == 0


def test_no_letters_and_those_of_targets_without_a_breaker_open_nothing(breakers: TargetCircuitBreakers) -> None:
    breakers.note_returned_letters(T, 0, 0)
    breakers.note_returned_letters(OTHER, 1_000, 0)
    assert breakers.describe_targets(0) == {}


def test_half_open_one_probe_goes_and_no_more_while_it_is_watched(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    assert breakers.describe_targets(OPEN_MS) == {T: "half-open"}
    assert [count_allowed(breakers, OPEN_MS + after_ms) for after_ms in (0, 0, 1, OPEN_MS - 1)] == [1, 0, 0, 0]
    assert breakers.admit_to_target(T, OPEN_MS + 1)[1].endswith("a probe is under way")


def test_a_probe_that_stays_away_closes_it(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    assert count_allowed(breakers, OPEN_MS) == 1
    breakers.note_delivered(T)
    assert breakers.describe_targets(2 * OPEN_MS - 1) == {T: "half-open"}
    assert (breakers.describe_targets(2 * OPEN_MS), count_allowed(breakers, 2 * OPEN_MS)) == ({}, ALL)
    # It begins anew: one letter that comes back is only one.
    breakers.note_returned_letters(T, 1, 2 * OPEN_MS)
    assert count_allowed(breakers, 2 * OPEN_MS) == ALL


def test_a_letter_that_comes_back_after_the_probe_stayed_away_is_only_one(breakers: TargetCircuitBreakers) -> None:
    """Nobody asked in between, since nothing was due."""
    open_breaker(breakers)
    assert count_allowed(breakers, OPEN_MS) == 1
    breakers.note_returned_letters(T, 1, 2 * OPEN_MS)
    assert count_allowed(breakers, 2 * OPEN_MS) == ALL


def test_a_probe_that_comes_back_opens_it_for_twice_as_long_each_time(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    now_ms, lasted = OPEN_MS, []
    for _ in range(6):
        assert count_allowed(breakers, now_ms) == 1
        breakers.note_returned_letters(T, 1, now_ms)
        begun_ms = now_ms
        while not count_allowed(breakers, now_ms):
            now_ms += 1_000
        breakers.return_probe(T)  # It was only asked.
        lasted.append(now_ms - begun_ms)
    assert lasted == [60_000, 120_000, 240_000, 480_000, 600_000, 600_000]


def test_once_closed_it_opens_for_the_shortest_time_again(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    assert count_allowed(breakers, OPEN_MS) == 1
    breakers.note_returned_letters(T, 1, OPEN_MS)
    assert count_allowed(breakers, 3 * OPEN_MS) == 1
    assert count_allowed(breakers, 4 * OPEN_MS) == ALL
    open_breaker(breakers, 4 * OPEN_MS)
    assert count_allowed(breakers, 5 * OPEN_MS) == 1


def test_letters_of_before_that_come_back_while_it_is_open_are_not_counted(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    breakers.note_returned_letters(T, 50, OPEN_MS - 1)
    assert count_allowed(breakers, OPEN_MS) == 1


def test_before_a_probe_went_no_single_letter_is_taken_for_it(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    breakers.note_returned_letters(T, 1, OPEN_MS + 5)
    assert count_allowed(breakers, OPEN_MS + 5) == 1
    breakers = open_breaker(TargetCircuitBreakers({T: CircuitBreakerLimits(3, WITHIN_MS, OPEN_MS)}))
    breakers.note_returned_letters(T, 3, OPEN_MS + 5)
    assert count_allowed(breakers, OPEN_MS + 5) == 0


def test_silence_without_a_probe_closes_nothing(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    assert count_allowed(breakers, OPEN_MS) == 1
    breakers.return_probe(T)
    assert [count_allowed(breakers, 100 * OPEN_MS) for _ in range(2)] == [1, 0]


def test_what_is_unsent_while_it_is_closed_changes_nothing(breakers: TargetCircuitBreakers) -> None:
    breakers.return_probe(T)
    assert breakers.describe_targets(0) == {}


# --- topics that refuse ---


def test_a_topic_that_refuses_rests_and_then_gets_probes_until_it_takes_one(breakers: TargetCircuitBreakers) -> None:
    breakers.note_refused(OTHER, "no such topic", 0)
    assert breakers.admit_to_target(OTHER, 4_999) == (0, "it refuses: no such topic")
    # Each shard may probe: none is watched.
    assert [count_allowed(breakers, 5_000, OTHER) for _ in range(2)] == [1, 1]
    breakers.note_delivered(OTHER)
    assert (count_allowed(breakers, 5_000, OTHER), breakers.describe_targets(5_000)) == (ALL, {})


def test_a_topic_that_goes_on_refusing_is_probed_less_and_less_often(breakers: TargetCircuitBreakers) -> None:
    now_ms, waits = 0, []
    for _ in range(9):
        breakers.note_refused(OTHER, "full", now_ms)
        begun_ms = now_ms
        while not count_allowed(breakers, now_ms, OTHER):
            now_ms += 1_000
        waits.append((now_ms - begun_ms) // 1_000)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600]


def test_shards_that_were_refused_at_the_same_time_are_refused_once(breakers: TargetCircuitBreakers) -> None:
    for shard in range(8):
        breakers.note_refused(OTHER, "full", shard)
    assert (count_allowed(breakers, 4_999, OTHER), count_allowed(breakers, 5_000, OTHER)) == (0, 1)


def test_a_letter_that_comes_back_does_not_open_what_was_only_refused(breakers: TargetCircuitBreakers) -> None:
    breakers.note_refused(T, "full", 0)
    assert count_allowed(breakers, 5_000) == 1
    breakers.note_returned_letters(T, 1, 5_000)
    assert count_allowed(breakers, 5_000) == 1


def test_a_probe_that_is_refused_must_be_taken_and_stay_away_as_well(breakers: TargetCircuitBreakers) -> None:
    open_breaker(breakers)
    assert count_allowed(breakers, OPEN_MS) == 1
    breakers.note_refused(T, "full", OPEN_MS)
    assert breakers.admit_to_target(T, 3 * OPEN_MS - 1) == (0, "it refuses: full")
    assert count_allowed(breakers, 3 * OPEN_MS) == 1
    breakers.note_delivered(T)
    assert count_allowed(breakers, 3 * OPEN_MS) == 0
    assert count_allowed(breakers, 4 * OPEN_MS) == ALL


def test_how_far_each_is_open_is_told_as_a_number(breakers: TargetCircuitBreakers) -> None:
    assert breakers.openness(0) == {T: 0.0}
    open_breaker(breakers)
    breakers.note_refused(OTHER, "gone", 0)
    assert breakers.openness(0) == {T: 1.0, OTHER: 1.0}
    assert breakers.openness(OPEN_MS) == {T: 0.5, OTHER: 0.5}
