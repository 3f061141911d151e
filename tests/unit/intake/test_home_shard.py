"""The letters of a batch wait in one shard of the worker that takes them in; owners stay balanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from retry import clock
from retry.intake.intake import HomeShard

SHARDS = 64


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed."""
    passed_s = [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: 1_000.0 + passed_s[0])
    return passed_s


def test_the_letters_of_a_batch_wait_together_in_a_shard_that_this_worker_owns() -> None:
    home = HomeShard(SHARDS, lambda: [9, 5, 7])
    assert [home.choose(letters) for letters in (1, 512, 10_000, 30)] == [5, 5, 5, 5]


def test_another_shard_is_chosen_every_twenty_seconds_and_the_first_again_after_the_last(now: list[float]) -> None:
    home, chosen = HomeShard(SHARDS, lambda: [9, 5, 7]), []
    for now[0] in (0.0, 19.9, 20.0, 39.9, 40.0, 60.0):
        chosen.append(home.choose(10))
    assert chosen == [5, 5, 7, 7, 9, 5]


def test_another_shard_is_chosen_after_many_letters_so_that_several_sweeps_send_them() -> None:
    home = HomeShard(SHARDS, lambda: [9, 5, 7])
    assert [home.choose(5_000) for _ in range(11)] == [5] * 5 + [7] * 5 + [9]


def test_a_shard_that_was_given_up_is_left_at_once() -> None:
    owned = [3, 8]
    home = HomeShard(SHARDS, lambda: owned)
    assert home.choose(1) == 3
    owned.remove(3)
    assert home.choose(1) == 8
    # None is swept for a moment.
    owned.clear()
    assert home.choose(1) == 8


def test_a_worker_that_owns_no_shard_has_others_deliver(now: list[float]) -> None:
    home, chosen = HomeShard(3, list), []
    for now[0] in (0.0, 20.0, 40.0, 60.0):
        chosen.append(home.choose(1))
    assert chosen == [0, 1, 2, 0]


@pytest.mark.parametrize("letters", [25, 5_000])
def test_owners_stay_balanced(letters: int, now: list[float]) -> None:
    owned: Sequence[range] = range(22), range(22, 43), range(43, 64)
    homes = [HomeShard(SHARDS, lambda shards=each: list(shards)) for each in owned]  # type: ignore[misc]
    waiting = Counter[int]()
    for batch in range(3_600):
        now[0] = batch / 2
        for home in homes:
            waiting[home.choose(letters)] += letters
    by_owner = [sum(waiting[shard] for shard in each) / len(each) for each in owned]
    assert max(by_owner) <= 1.1 * min(by_owner)
    assert max(waiting.values()) <= 1.5 * min(waiting[shard] for shard in range(SHARDS))
