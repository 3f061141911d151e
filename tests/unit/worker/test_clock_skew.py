"""The clock that is believed, and the one that is not, with clocks that a test holds in its hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from retry import clock
from retry.kafka.broker_clock import TOLERANCE_MS, TrustedClock

HOUR_MS = 3_600_000


class Hand:
    """Three clocks: the machine's wall and monotonic ones, and the brokers'."""

    def __init__(self) -> None:
        self.wall, self.monotonic, self.brokers = 1_700_000_000_000, 1_000.0, 1_700_000_000_000
        self.fails: Exception | None = None

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_s(self) -> float:
        return self.monotonic

    def pause(self, seconds: float) -> None:
        self.goes_on(seconds)

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        self.goes_on(seconds)

    def goes_on(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += int(seconds * 1_000)
        self.brokers += int(seconds * 1_000)

    def ask(self) -> int:
        if self.fails:
            raise self.fails
        return self.brokers


@pytest.fixture
def hand() -> Iterator[Hand]:
    """In the place of the machine's clocks."""
    held = Hand()
    clock.use(held)
    yield held
    clock.use(clock.MACHINE)


@pytest.fixture
def skew(hand: Hand) -> TrustedClock:
    """A clock that was right at the start."""
    skew = TrustedClock(hand.ask)
    assert skew.now_ms() is None
    skew.check_skew()
    assert (skew.now_ms(), skew.trouble) == (hand.wall, None)
    return skew


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_step_holds_everything_until_the_clock_is_right_again(hand: Hand, skew: TrustedClock, step_ms: int) -> None:
    hand.goes_on(100)
    hand.wall += step_ms
    assert (skew.now_ms(), skew.known_ms()) == (None, None)
    said = f"the clock is 3600 s {'ahead of' if step_ms > 0 else 'behind'} the brokers'"
    for _ in range(3):
        hand.goes_on(2)
        skew.check_skew()
        assert (skew.now_ms(), skew.trouble) == (None, said)
        assert skew.known_ms() == hand.brokers, "letters are taken in by the brokers' time"
    hand.wall -= step_ms
    assert (skew.now_ms(), skew.known_ms()) == (None, hand.brokers), "the brokers have not been asked"
    hand.goes_on(2)
    skew.check_skew()
    assert (skew.now_ms(), skew.trouble) == (hand.wall, None)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_step_that_makes_the_clock_right_is_believed(hand: Hand, skew: TrustedClock, step_ms: int) -> None:
    """Step the clock as after a machine that was suspended, whose monotonic clock stood still."""
    hand.goes_on(5)
    hand.wall += step_ms
    hand.brokers += step_ms
    assert skew.now_ms() is None
    skew.check_skew()
    assert skew.now_ms() == hand.wall


@pytest.mark.parametrize(("ahead_ms", "believed"), [
    (TOLERANCE_MS, True), (-TOLERANCE_MS, True), (TOLERANCE_MS + 1, False), (-TOLERANCE_MS - 1, False), (HOUR_MS, False),
])  # fmt: skip
def test_a_clock_that_is_wrong_from_the_start_is_not_believed(hand: Hand, ahead_ms: int, believed: bool) -> None:
    hand.wall += ahead_ms
    skew = TrustedClock(hand.ask)
    skew.check_skew()
    assert (skew.now_ms() == hand.wall, skew.trouble is None) == (believed, believed)


def test_small_steps_are_let_pass_and_add_up(hand: Hand, skew: TrustedClock) -> None:
    hand.wall += TOLERANCE_MS
    assert skew.now_ms() == hand.wall
    hand.wall += 1
    assert skew.now_ms() is None


def test_the_clock_of_the_machine_goes_on_without_brokers_but_is_not_begun_with(hand: Hand, skew: TrustedClock) -> None:
    hand.fails = TimeoutError("nobody")
    hand.goes_on(HOUR_MS)
    skew.check_skew()
    assert skew.now_ms() == hand.wall
    fresh = TrustedClock(hand.ask)
    fresh.check_skew()
    assert (fresh.now_ms(), fresh.trouble) == (None, "the clock cannot be compared with the brokers': nobody")
    hand.fails = None
    fresh.check_skew()
    assert fresh.now_ms() is None, "asked every two seconds"
    hand.goes_on(2)
    fresh.check_skew()
    assert fresh.now_ms() == hand.wall


def test_an_answer_that_took_long_says_nothing(hand: Hand) -> None:
    def slow() -> int:
        hand.goes_on(6)
        return hand.brokers - 6_000

    skew = TrustedClock(slow)
    skew.check_skew()
    assert skew.now_ms() is None
