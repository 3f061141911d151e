"""How many bytes a transaction may have: half as many after one that ran out of time, and slowly more again."""

from __future__ import annotations

import pytest

from retry.kafka.transaction_pace import TransactionPace
from tests.support.simulated_clock import Simulated

MB = 1 << 20


def run(pace: TransactionPace, stepped_clock: Simulated, bytes_per_s: float, size: int | None = None) -> bool:
    """One transaction over a link; whether it was committed within its six seconds."""
    begun_s, size = stepped_clock.now_s, pace.bytes_max if size is None else size
    took_s = 0.01 + size / bytes_per_s
    stepped_clock.now_s += min(took_s, 6.0)
    if took_s > 6.0:
        pace.note_failure(begun_s, size)
        return False
    pace.note_commit(begun_s, size)
    return True


@pytest.mark.parametrize("bytes_per_s", [100_000, 500_000, 1_000_000, 3_000_000])
def test_behind_a_slow_link_few_transactions_are_undone_and_the_link_is_used(stepped_clock: Simulated, bytes_per_s: int) -> None:
    pace = TransactionPace("intake", 16 * MB)
    went = [run(pace, stepped_clock, bytes_per_s) for _ in range(100)]
    assert went.count(False) <= 8
    assert all(went[10:])
    assert 0.5 * bytes_per_s < pace.bytes_max < 3.1 * bytes_per_s
    assert "producer_byte_rate" in pace.describe_slowness() or bytes_per_s >= 3_000_000


def test_once_the_link_is_fast_again_transactions_grow_to_what_the_settings_say_and_health_says_nothing(
    stepped_clock: Simulated,
) -> None:
    pace = TransactionPace("intake", 16 * MB)
    while run(pace, stepped_clock, 500_000) is False:
        pass
    small = pace.bytes_max
    assert small < 4 * MB
    sizes = [pace.bytes_max for _ in range(40) if run(pace, stepped_clock, 1e9)]
    assert sizes == sorted(sizes)
    assert sizes[0] < 1.2 * small
    assert (pace.bytes_max, pace.describe_slowness()) == (16 * MB, "")


def test_small_transactions_say_nothing_of_large_ones(stepped_clock: Simulated) -> None:
    pace = TransactionPace("intake", 16 * MB)
    run(pace, stepped_clock, 500_000)
    halved = pace.bytes_max
    for _ in range(50):
        run(pace, stepped_clock, 1e9, 1_000)
    assert pace.bytes_max == halved


def test_what_fails_at_once_or_beside_one_that_ran_out_of_time_halves_nothing(stepped_clock: Simulated) -> None:
    pace = TransactionPace("intake", 16 * MB)
    pace.note_failure(stepped_clock.now_s - 2.9, 8 * MB)
    assert pace.bytes_max == 16 * MB
    begun_s = stepped_clock.now_s
    stepped_clock.now_s += 6.0
    pace.note_failure(begun_s, 8 * MB)
    pace.note_failure(begun_s + 1.0, 8 * MB)
    assert pace.bytes_max == 4 * MB


def test_one_outage_is_told_of_no_slow_link(stepped_clock: Simulated) -> None:
    pace = TransactionPace("deliveries", 16 * MB)
    begun_s = stepped_clock.now_s
    stepped_clock.now_s += 30.0
    pace.note_failure(begun_s)
    assert (pace.bytes_max, pace.describe_slowness()) == (8 * MB, "")
    begun_s = stepped_clock.now_s
    stepped_clock.now_s += 6.0
    pace.note_failure(begun_s)
    assert pace.describe_slowness()
    stepped_clock.now_s += 121.0
    assert pace.describe_slowness() == ""


def test_it_never_becomes_so_small_that_nothing_would_get_through(stepped_clock: Simulated) -> None:
    pace = TransactionPace("intake", 16 * MB)
    for _ in range(30):
        begun_s = stepped_clock.now_s
        stepped_clock.now_s += 6.0
        pace.note_failure(begun_s, 100)
    assert pace.bytes_max == 32 << 10
    assert TransactionPace("intake", 1_000).bytes_max == 1_000
