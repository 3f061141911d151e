"""Letters that a consumer brings again by itself are not taken in again."""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicPartition

from retry.intake.batch import BatchResult
from retry.intake.consumer import LetterConsumer
from retry.testing.kafka import MemoryCluster, MemoryLog
from retry.testing.kafka.group_member import MemoryGroupMember

TOPIC, GROUP = "orders.DLT", "intake"


class Wandering(MemoryGroupMember):
    """Goes back when it is told to, as a client does of which an old question is answered late."""

    def go_back(self, to: int = 0) -> None:
        self._next[TOPIC, 0] = to


class Wanderers(MemoryCluster):
    def member(self, group: str, subscription: list[str], gained: Any, leaving: Any, *, reads: bool = True) -> Wandering:
        self.joined = Wandering(self._log, group, "a", subscription, gained, leaving, reads=reads)
        return self.joined


class Taking:
    """Takes letters in: notes them, and commits where reading goes on."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def reads(self, _topic: str) -> bool:
        return True

    def prepare(self, messages: Any, _now_ms: int) -> BatchResult:
        result = BatchResult()
        result.outcomes = [{"key": None, "value": b"", "offset": message.offset()} for message in messages]
        return result

    def write(self, _result: BatchResult, positions: list[TopicPartition], member: object, writer: Any) -> None:
        writer.begin()
        writer.read_to(positions, member)


class World:
    def __init__(self) -> None:
        self.log, self.intake = MemoryLog(), Taking()
        self.log.create(TOPIC, 1)
        self.brokers = Wanderers(self.log, "app", "a")
        self.letters = LetterConsumer(self.brokers, "intake-a", GROUP, [TOPIC], self.intake, 10, 1 << 20)  # type: ignore[arg-type]

    def put(self, count: int) -> None:
        for _ in range(count):
            self.log.put(TOPIC, b"k", b"v", partition=0)

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


def test_a_partition_that_goes_back_to_the_same_place_each_time_is_read_from_there() -> None:
    world = World()
    world.put(5)
    world.turns()
    rewind = world.brokers.joined.rewind

    def rewound() -> dict[tuple[str, int], int]:
        # The log ends before what is committed: a client begins anew, at its beginning.
        starts = rewind()
        world.brokers.joined.go_back(2)
        return starts

    world.brokers.joined.rewind = rewound  # type: ignore[method-assign]
    world.letters._start_over("for some reason")
    world.turns(10)
    assert world.intake.taken == [*range(5), 2, 3, 4]
