"""What the other rooms ask of Kafka. `kafka.cluster` answers with real brokers, `retry.testing.kafka` without any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

# Under their own names: what other rooms need of the client library comes through here.
from confluent_kafka import KafkaError as KafkaError
from confluent_kafka import KafkaException as KafkaException
from confluent_kafka import Message as Message
from confluent_kafka import TopicPartition as TopicPartition
from confluent_kafka.admin import AdminClient as AdminClient

from retry.delay_queue.envelopes import Entry
from retry.kafka.refused_records import Anchor

Partition = tuple[str, int]
OnAssigned = Callable[[list[Partition]], None]


class OffsetBounds(NamedTuple):
    """Offset of the first record of a partition, and the one behind the last, undecided records included."""

    start: int
    end: int


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition; None where it has nothing."""

    offset: int | None
    topic_id: str = ""
    leader_epoch: int = -1


class StartingPoint(NamedTuple):
    """The place in a partition at which reading begins.

    Attributes:
      leader_epoch: lets brokers tell that the partition was cut below this offset; -1 where it is not known.
      reread: what the positions of what is read from here are to say.
      note: what an operator should know of it; empty where all is as it should be.
    """

    offset: int | None
    leader_epoch: int = -1
    reread: int = 0
    note: str = ""


# Told the committed offsets of partitions, and the ids of their topics: where reading of each begins, of those that are known.
ChooseStarts = Callable[[Mapping[Partition, CommittedOffset], Mapping[str, str]], Mapping[Partition, StartingPoint]]


class TransactionalProducer(Protocol):
    """Transactions of one `transactional.id`; see `retry.kafka.transactional_producer` for what each method does and raises."""

    def open(self, within_s: float = ...) -> None: ...
    def begin(self, renew_within_s: float = ...) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def publish(self, entries: Sequence[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None: ...
    def rehearse_entries(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None, anchor: Anchor | None = None
    ) -> dict[int, KafkaError]: ...
    def read_to(self, positions: list[TopicPartition], member: object) -> None: ...
    def await_arrival(self, within_s: float) -> bool: ...
    def is_silent(self) -> bool: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class SweepProducer(TransactionalProducer, Protocol):
    """A producer of sweeps; see `retry.kafka.sweep_producers`."""

    def open_compressing(self) -> SweepProducer:
        """Open a producer that carries one transaction in place of this one, and compresses what it sends.

        Raises TransactionAborted where it is not open yet.
        """


class PartitionReader(Protocol):
    """Committed records of partitions, from given offsets on; see `retry.kafka.reading_loop`."""

    def follow_partition(self, topic: str, partition: int, offset: int) -> None: ...
    def unfollow_partition(self, topic: str, partition: int) -> None: ...
    def read(self, records_max: int, wait_s: float) -> list[Message]: ...
    def close(self) -> None: ...


class GroupMember(Protocol):
    """One member of a consumer group; see `retry.kafka.group_member`."""

    @property
    def owned(self) -> set[Partition]: ...
    @property
    def ended(self) -> dict[Partition, int]: ...
    def read(self, records_max: int, wait_s: float) -> list[Message]: ...
    def replace_unreadable(self, messages: list[Any]) -> list[Any]: ...
    def subscribe(self, subscription: list[str]) -> None: ...
    def metadata(self) -> object: ...
    def begin_reading(self, partitions: Iterable[Partition], choose: ChooseStarts) -> None: ...
    def commit_starts(self, starts: Mapping[Partition, StartingPoint]) -> None: ...
    def ask_recreated(self, topics: Iterable[str] = ()) -> Callable[[], list[str]]: ...
    def close(self) -> None: ...


class Log(Protocol):
    """Topics with transactions and consumer groups, as one worker reaches them."""

    def make_producer(self, name: str, *, compressing: bool = False) -> TransactionalProducer:
        """Make a producer of this deployment whose transactional id ends in `name`; return the producer before it is opened.

        A `compressing` one is for records that their topics take only compressed.
        """

    def make_reader(self) -> PartitionReader:
        """Make a reader of partitions that belongs to no consumer group."""

    def join_group(
        self, group: str, subscription: list[str], gained: OnAssigned, leaving: OnAssigned, *, reads: bool = True
    ) -> GroupMember:
        """Join a consumer group as this worker, and subscribe to topics.

        Args:
          gained: told of partitions that are ours from now on.
          leaving: told of partitions before they are given up; it may finish what is under way.
          reads: whether records are wanted too, and not only to know what is ours.
        """

    def fetch_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        """Ask where some partitions of a topic begin and end now."""

    def fetch_partition_bounds(self, partitions: Iterable[Partition]) -> dict[Partition, OffsetBounds]:
        """Ask where partitions of several topics begin and end; without those that no broker answers for in a few seconds."""
