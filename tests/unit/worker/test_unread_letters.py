"""Letters that are not taken in are counted by reason, and a transaction that stays open is told of once."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from retry.delay_queue.envelopes import Entry
from retry.intake.read_cursors import ReadCursors
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import Partition, StartingPoint
from retry.kafka.offset_ranges import ReadableEnd
from retry.testing.kafka import MemoryRecord
from retry.worker.backlog import BEHIND, OPEN_TRANSACTION, UnreadLetters
from tests.support.simulated_clock import Simulated

PLACE: Partition = ("orders.DLT", 0)


class World:
    def __init__(self) -> None:
        self.taken = {PLACE: 5}
        self.ends = {PLACE: ReadableEnd(8, 8)}
        self.unread = UnreadLetters(lambda: self.taken, self.find)

    def find(self, partitions: Collection[Partition]) -> dict[Partition, ReadableEnd]:
        return {place: end for place, end in self.ends.items() if place in partitions}


def test_what_can_be_read_is_behind_and_what_nobody_gets_is_held_by_a_transaction() -> None:
    world = World()
    world.ends[PLACE] = ReadableEnd(8, 20)
    world.ends["not.ours", 0] = ReadableEnd(1, 90)
    world.unread.count_letters()
    assert world.unread.count_by_reason() == {("orders.DLT", BEHIND): 3.0, ("orders.DLT", OPEN_TRANSACTION): 12.0}
    world.taken[PLACE] = 21
    world.unread.count_letters()
    assert world.unread.count_by_reason() == {("orders.DLT", BEHIND): 0.0, ("orders.DLT", OPEN_TRANSACTION): 0.0}


def test_a_transaction_that_stays_open_is_told_of_once_and_when_it_is_over(
    stepped_clock: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = World()
    world.ends[PLACE] = ReadableEnd(8, 20)
    for _ in range(5):
        world.unread.count_letters()
        stepped_clock.now_s += 10
    assert list(world.unread.describe_held()) == ["orders.DLT/0"]
    assert "--partition 0 --start-offset 8" in world.unread.describe_held()["orders.DLT/0"]
    assert caplog.text.count("holds back 12 offsets") == 1
    world.ends[PLACE] = ReadableEnd(20, 20)
    world.unread.count_letters()
    assert (world.unread.describe_held(), caplog.text.count("no transaction holds them back")) == ({}, 1)


def test_transactions_that_follow_one_another_hold_nothing_back(stepped_clock: Simulated) -> None:
    world = World()
    for n in range(10):
        world.ends[PLACE] = ReadableEnd(8 + n, 20 + n)
        world.unread.count_letters()
        stepped_clock.now_s += 10
    assert world.unread.describe_held() == {}


def test_letters_that_are_read_and_not_committed_are_not_taken_in() -> None:
    cursors = ReadCursors()
    assert cursors.find_taken(PLACE, 9) is None
    cursors.begin_partition(PLACE, StartingPoint(3))
    assert (cursors.find_taken(PLACE, 0), cursors.find_taken(PLACE, 4)) == (3, 4)
    cursors.take_news([MemoryRecord(Entry("orders.DLT", b"k", b"v", [], 0, ""), 0, 6, 0)])
    assert cursors.find_taken(PLACE, 9) == 3
    cursors.note_committed({PLACE: ReadPosition(topic_id="", offset=7)})
    assert cursors.find_taken(PLACE, 9) == 9
