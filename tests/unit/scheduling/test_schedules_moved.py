"""`retry migrate scheduler` behind a quota or a slow link: smaller transactions, until what waits has gone through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, MigrationStopped
from retry.record import Record
from retry.scheduling.messages import migrate
from retry.scheduling.messages.migrate import Moved, WaitingSchedules, move_schedules
from retry.settings import Settings
from tests.support.simulated_clock import Simulated

NOW_MS = 1_700_000_000_000
LIVES_S = 6.0


class Topic:
    """A schedules topic in memory, with the calls that a move makes."""

    def __init__(self, name: str, values: Sequence[bytes] = ()) -> None:
        self.topic, self.partitions = name, 1
        self.waits, self.written_ms = WaitingSchedules(), dict[bytes, int]()
        self.records = [Record((name, 0, n), b"k%d" % n, value, [], (1, NOW_MS)) for n, value in enumerate(values)]
        self._read = 0

    def read(self) -> None:
        """Fold what came since."""
        self.waits.add_records(self.records[self._read :], NOW_MS)
        self._read = len(self.records)

    def iterate_schedules(self) -> Iterator[Record]:
        """Yield the schedules that wait."""
        return filter(self.waits.is_waiting, list(self.records))


class Link:
    """Brokers that take so many bytes a second, and what was committed there.

    Args:
      forgets: of how many commits that take too long the answer is lost, though they have been made.
    """

    def __init__(self, clock: Simulated, source: Topic, target: Topic, bytes_per_s: float, forgets: int = 0) -> None:
        self._clock, self._bytes_per_s, self.forgets = clock, bytes_per_s, forgets
        self._topics = {each.topic: each for each in (source, target)}
        self.begun, self.opened, self.sizes = list[Entry](), 0, list[int]()

    def __call__(self, _config: object) -> Link:
        return self

    def open(self, _within_s: float) -> None:
        """Fence the producer before; what it had begun is undone."""
        self.begun, self.opened = [], self.opened + 1

    def begin(self) -> None:
        self.begun = []

    def publish(self, entries: list[Entry], _now_ms: int, _partitions: list[int]) -> None:
        self.begun = entries
        self.sizes.append(sum(len(each.value or b"") for each in entries))

    def await_arrival(self, within_s: float) -> bool:
        """Let the time pass that they need on their way."""
        needed_s = self.sizes[-1] / self._bytes_per_s
        self._clock.now_s += min(needed_s, within_s)
        return needed_s <= within_s or self.forgets > 0

    def commit(self) -> None:
        """Write what was begun; where the answer is lost, nobody knows for a while."""
        for each in self.begun:
            topic = self._topics[each.destination]
            place = each.destination, 0, len(topic.records)
            topic.records.append(Record(place, each.key, each.value, each.headers, (1, NOW_MS)))
        if self.sizes[-1] / self._bytes_per_s > LIVES_S and self.forgets:
            self.forgets -= 1
            self._clock.now_s += LIVES_S
            raise CommitInDoubt("no answer")

    def await_visible(self, within_s: float) -> None:
        """All that was committed is visible at once."""

    def close(self) -> None:
        """Nothing is to be let go of."""


@pytest.fixture
def move_linked(stepped_clock: Simulated, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Moves schedules of these sizes behind a link; gives the outcome, the link and what came to the other topic."""

    def move(sizes: list[int], bytes_per_s: float, forgets: int = 0) -> tuple[Moved, Link, Counter[bytes]]:
        source, target = Topic("schedules", [b"x" * size for size in sizes]), Topic("moved")
        link = Link(stepped_clock, source, target, bytes_per_s, forgets)
        monkeypatch.setattr(migrate, "KafkaTransactionalProducer", link)
        moved = move_schedules(Settings(), source, target)  # type: ignore[arg-type]
        assert not any(map(source.waits.is_waiting, source.records))
        return moved, link, Counter(each.key() or b"" for each in target.records)

    return move


def test_a_transaction_that_takes_longer_than_it_lives_is_followed_by_smaller_ones_until_all_is_moved(move_linked: Any) -> None:
    moved, link, came = move_linked([20_000] * 900, 500_000.0)
    assert moved == Moved(900, 0)
    assert came == Counter(b"k%d" % n for n in range(900))
    # Halved three times, each time by another producer.
    assert link.opened == 4 and max(link.sizes[3:]) < LIVES_S * 500_000


def test_of_a_fast_link_transactions_stay_as_large_as_settings_and_number_allow(move_linked: Any) -> None:
    moved, link, _ = move_linked([100] * 2_500 + [1 << 20] * 20, 1e9)
    assert moved == Moved(2_520, 0)
    assert link.opened == 1
    assert [round(size / (1 << 20)) for size in link.sizes] == [0, 0, 15, 5]


def test_what_was_committed_without_an_answer_is_counted_and_not_moved_again(move_linked: Any) -> None:
    moved, link, came = move_linked([20_000] * 300, 500_000.0, forgets=1)
    assert moved == Moved(300, 0)
    assert set(came.values()) == {1} and len(came) == 300
    assert link.opened == 2


def test_a_single_schedule_that_does_not_get_through_ends_the_move(move_linked: Any) -> None:
    with pytest.raises(MigrationStopped, match="records do not arrive in time; what was moved stays moved"):
        move_linked([1_000, 1_000, 900_000, 1_000], 100_000.0)
