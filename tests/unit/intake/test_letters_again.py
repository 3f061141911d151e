"""Letters are taken in once, whatever a client brings again by itself, and whatever becomes of the group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from retry.intake.batch import BatchResult
from retry.intake.consumer import LetterConsumer
from retry.intake.entry_source import RecordVersions
from retry.intake.read_positions import (
    PARTITION,
    ReadPosition,
    RereadRequest,
    build_group_offsets,
    encode_positions,
    encode_request,
)
from retry.kafka.interface import CommittedOffset, Partition
from retry.testing.kafka import MemoryCluster, MemoryGroupMember, MemoryLog
from tests.support.positions import TOPIC as POSITIONS
from tests.support.positions import FollowedPositions
from tests.support.simulated_clock import Simulated

TOPIC, GROUP = "orders.DLT", "intake"


class Wandering(MemoryGroupMember):
    """Goes back when it is told to, as a client does of which an old question is answered late."""

    def go_back(self, to: int = 0) -> None:
        self._next[TOPIC, 0] = to


class Wanderers(MemoryCluster):
    def join_group(self, group: str, subscription: list[str], gained: Any, leaving: Any, *, reads: bool = True) -> Wandering:
        self.joined = Wandering(self._log, group, "a", subscription, gained, leaving, reads=reads)
        return self.joined


class Taking:
    """Takes letters in: notes them, and commits where reading goes on.

    Attributes:
      keeps: whether it keeps that in the service's own record, too.
      incarnations: those of the topic, as the batches had them.
    """

    keeps = True

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.incarnations: list[int] = []

    def reads_topic(self, _topic: str) -> bool:
        return True

    def prepare(self, messages: Any, _now_ms: int, incarnations: Mapping[Partition, int]) -> BatchResult:
        self.incarnations.append(incarnations.get((TOPIC, 0), 0))
        result = BatchResult()
        result.outcomes = [{"key": None, "value": b"", "offset": message.offset()} for message in messages]
        return result

    def write(self, _result: BatchResult, positions: dict[Any, ReadPosition], member: object, writer: Any) -> None:
        writer.begin()
        if self.keeps:
            writer.write(POSITIONS, PARTITION, encode_positions(positions))
        writer.read_to(build_group_offsets(positions), member)


class World:
    def __init__(self) -> None:
        self.log, self.intake = MemoryLog(), Taking()
        self.log.create(TOPIC, 1)
        self.log.create(POSITIONS, 1)
        self.join()

    def join(self) -> None:
        """A worker starts here: in the place of the one before, if there was one."""
        self.brokers = Wanderers(self.log, "app", "a")
        self.positions = positions = FollowedPositions(self.brokers)
        self.letters = LetterConsumer(
            self.brokers, "intake-a", GROUP, [TOPIC], self.intake,  # type: ignore[arg-type]
            positions=positions, versions=RecordVersions(), records_max=10, bytes_max=1 << 20,
        )  # fmt: skip

    def put(self, count: int) -> None:
        for _ in range(count):
            self.log.add_record(TOPIC, b"k", b"v", partition=0)

    def turns(self, count: int = 6) -> None:
        for _ in range(count):
            if batch := self.letters.read():
                written = self.letters.write(self.letters.prepare(batch, 0))
                assert written is not None
                assert self.letters.commit(written)
                self.intake.taken += [row["offset"] for row in written.result.outcomes]


def test_what_is_committed_is_not_taken_in_again_when_the_client_goes_back() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.brokers.joined.go_back()
    world.put(2)
    world.turns()
    assert world.intake.taken == list(range(7))


def test_nor_when_it_goes_back_after_it_was_rewound() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.letters._start_over("for some reason")
    # It is rewound here, and has nothing to read.
    world.turns(1)
    world.brokers.joined.go_back()
    world.put(2)
    world.turns()
    assert world.intake.taken == list(range(7))


def test_letters_that_a_client_brings_again_and_again_are_taken_in_once() -> None:
    world = World()
    world.put(5)
    world.turns()
    for _ in range(6):
        world.brokers.joined.go_back(2)
        world.turns(2)
    world.put(1)
    world.brokers.joined.go_back(2)
    world.turns()
    assert world.intake.taken == list(range(6))


def test_letters_that_come_twice_in_one_batch_are_taken_in_once() -> None:
    world = World()
    world.put(3)
    read = world.brokers.joined.read

    def read_twice(records_max: int, wait_s: float) -> list[Any]:
        found = read(records_max, wait_s)
        return found + found[1:]

    world.brokers.joined.read = read_twice  # type: ignore[method-assign]
    world.turns()
    assert world.intake.taken == [0, 1, 2]
    assert world.log.committed_offsets[GROUP, TOPIC, 0].offset == 3


@pytest.mark.parametrize("offset", [None, 2, 1_000_000])
def test_letters_are_not_taken_in_again_when_the_group_has_lost_its_offset_or_has_another(offset: int | None) -> None:
    world = World()
    world.put(5)
    world.turns()
    if offset is None:
        del world.log.committed_offsets[GROUP, TOPIC, 0]
    else:
        world.log.committed_offsets[GROUP, TOPIC, 0] = CommittedOffset(offset)
    world.letters.close()
    world.join()
    world.put(2)
    world.turns()
    assert world.intake.taken == list(range(7))
    assert "the service goes on at 5 by its own record" in world.letters.notes[TOPIC, 0]
    assert world.log.committed_offsets[GROUP, TOPIC, 0].offset == 7


def test_the_group_says_where_the_service_is_before_the_next_letter_comes() -> None:
    world = World()
    world.put(5)
    world.turns()
    del world.log.committed_offsets[GROUP, TOPIC, 0]
    world.letters.close()
    world.join()
    world.turns()
    assert world.log.committed_offsets[GROUP, TOPIC, 0].offset == 5


def test_an_offset_that_an_operator_has_moved_forward_counts() -> None:
    world = World()
    world.put(2)
    world.turns()
    world.put(3)
    world.log.committed_offsets[GROUP, TOPIC, 0] = CommittedOffset(4)
    world.letters.close()
    world.join()
    world.turns()
    assert world.intake.taken == [0, 1, 4]


def test_of_a_partition_that_lost_its_end_only_what_was_written_since_is_taken_in() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.log.topics[TOPIC][0].lose_end(3)
    world.brokers.joined.go_back(0)
    world.turns()
    world.put(4)
    world.turns()
    assert world.intake.taken == [*range(5), 3, 4, 5, 6]


def test_so_it_is_where_it_lost_its_end_while_no_worker_ran() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.letters.close()
    world.log.topics[TOPIC][0].lose_end(3)
    world.put(4)
    world.join()
    world.turns()
    assert world.intake.taken == [*range(5), 3, 4, 5, 6]


def test_a_partition_that_ends_before_what_was_taken_in_is_told_of() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.letters.close()
    world.log.topics[TOPIC][0].lose_end(3)
    world.join()
    world.turns()
    assert "ends at 3, and was taken in up to 5" in world.letters.notes[TOPIC, 0]


def test_a_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.letters.close()
    world.log.create(TOPIC, 1)
    world.put(2)
    world.join()
    world.turns()
    assert world.intake.taken == [*range(5), 0, 1]
    assert "deleted and made again" in world.letters.notes[TOPIC, 0]


def test_a_topic_is_another_incarnation_each_time_it_was_made_again_whoever_reads_it() -> None:
    world, seen = World(), []
    for is_made_again in (False, True, False, True, True):
        world.letters.close()
        if is_made_again:
            world.log.create(TOPIC, 1)
        world.join()
        world.put(2)
        world.turns()
        seen.append(world.intake.incarnations[-1])
    assert seen == [0, 1, 1, 2, 3]


def asked_to_reread(world: World, offset: int, number: int = 1, topic_id: str = "") -> None:
    topic_id = topic_id or world.log.topic_ids[TOPIC]
    request = RereadRequest(
        topic_id=topic_id, offset=offset, lowest_offset=offset, number=number, asked_at_ms=0, by="ann"
    )
    row = encode_request((TOPIC, 0), request)
    world.log.add_record(POSITIONS, row["key"], row["value"], partition=PARTITION)


def test_letters_are_taken_in_again_where_an_operator_asks_for_that_and_only_once() -> None:
    world = World()
    world.put(5)
    world.turns()
    world.letters.close()
    asked_to_reread(world, 2)
    world.join()
    world.turns()
    assert world.intake.taken == [*range(5), 2, 3, 4]
    world.letters.close()
    world.join()
    world.turns()
    assert world.intake.taken == [*range(5), 2, 3, 4]


def test_a_request_to_read_again_outlives_what_was_under_way_when_it_was_written() -> None:
    world = World()
    world.put(3)
    world.turns()
    asked_to_reread(world, 0)
    # By a worker that has not heard of it yet.
    world.put(2)
    world.turns()
    world.letters.close()
    world.join()
    world.turns()
    assert world.intake.taken == [*range(5), *range(5)]


def test_reading_goes_on_where_somebody_asked_that_of_a_topic_that_is_not_there_any_more(stepped_clock: Simulated) -> None:
    world = World()
    world.put(3)
    world.turns()
    asked_to_reread(world, 0, topic_id="of before")
    world.turns()
    begun = world.letters._epoch
    for _ in range(3):
        stepped_clock.now_s += 10
        world.positions.await_current()
        world.turns()
    assert world.letters._epoch == begun
    assert world.intake.taken == [0, 1, 2]
    # One for the topic that is there is followed all the same.
    asked_to_reread(world, 1, number=2)
    stepped_clock.now_s += 10
    world.positions.await_current()
    world.turns()
    assert world.intake.taken == [0, 1, 2, 1, 2]


def test_without_a_record_of_its_own_the_service_goes_by_the_group() -> None:
    world = World()
    world.intake.keeps = False
    world.put(3)
    world.turns()
    world.letters.close()
    world.join()
    world.put(1)
    world.turns()
    assert world.intake.taken == [0, 1, 2, 3]
