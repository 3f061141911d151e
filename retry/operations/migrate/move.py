"""Moves what a group of another service has still to read: letters and the group's offsets in one transaction a batch.

So every record is at any moment before that group, or a letter, and never both, whatever is killed: where the group goes on is
all that is remembered, and a second run begins there. Who moves is a member of the group itself: brokers refuse what it has read
where a consumer of the other service has joined meanwhile. Of two runs for one group the later one takes over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from retry.clock import Deadline, pause, wall_ms
from retry.dead_letters.retry_headers import MIGRATED_FROM
from retry.delay_queue.envelopes import Entry
from retry.delivery.transaction_batch import renew_timestamp
from retry.errors import (
    CommitInDoubt,
    InstanceNameInUse,
    MigrationStopped,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
    TransactionSlow,
)  # fmt: skip
from retry.intake.read_cursors import ReadCursors
from retry.kafka import client_config
from retry.kafka.group_member import KafkaGroupMember
from retry.kafka.interface import CommittedOffset, KafkaError, KafkaException, Partition, StartingPoint, TopicPartition
from retry.kafka.record_limits import RefusedFor, find_cause
from retry.kafka.refused_headers import RefusedHeaders
from retry.kafka.subscription import Subscription, UnassignedPartitions
from retry.kafka.topic_ids import TopicIds
from retry.kafka.transactional_producer import ARRIVE_WITHIN_S, KafkaTransactionalProducer, demand_arrival
from retry.operations.cluster import Cluster
from retry.operations.migrate.plan import Conversion, UnreadRecords, list_group_members
from retry.record import stamp_ms

log = logging.getLogger(__name__)

_BATCH, _WAIT_S = 2_000, 0.2
_OPEN_S, _SILENCE_S = 30.0, 30.0
# A run that was killed is a member for as long as its session lasts.
_EMPTY_S, _LOOK_S = 15.0, 0.5
_JOINED = "another consumer has joined the group"
# Of a batch that was read by a member that the group has gone on without.
_STALE = (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID)
Say = Callable[[str], None]


def await_empty(cluster: Cluster, group: str, say: Say) -> None:
    """Wait a moment until nobody is in a group any more; raises `MigrationStopped` where somebody stays."""
    deadline, told = Deadline(_EMPTY_S), False
    while present := list_group_members(cluster, group):
        if deadline.has_passed():
            raise MigrationStopped(
                f"{len(present)} consumers are in the group {group} ({', '.join(sorted(present)[:3])}), and would process what "
                "is moved, too; stop them, then give the command again"
            )
        if not told:
            say(f"waiting until {len(present)} members have left the group {group}")
            told = True
        pause(_LOOK_S)


class _UnknownBatch(NamedTuple):
    """A batch that ran out of time, counted: where the group stands behind it tells whether it was moved."""

    offsets: list[TopicPartition]
    letters: int
    left: int


class Move:
    """Moves what waits for one group. Records that become no letter are passed over with `leave`; else they end the move."""

    def __init__(self, cluster: Cluster, waiting: UnreadRecords, conversion: Conversion, *, leave: bool) -> None:
        self._cluster, self._waiting, self._conversion = cluster, waiting, conversion
        self._leave = leave
        self._open: dict[Partition, int] = {(s.topic, s.partition): s.stop for s in waiting.spans if s.start < s.stop}
        self._gained, self._cursors, self._lost = set[Partition](), ReadCursors(), False
        self._records_max, self._unknown = _BATCH, _UnknownBatch([], 0, 0)
        self.moved = self.left = 0

    def run(self) -> None:
        """Move everything that waits, in batches; raises `MigrationStopped` where that ends early: what was moved stays moved."""
        while self._open:
            try:
                self._move_from_position()
            except TransactionSlow as slow:
                if not self._records_max:
                    raise self._make_stop(slow) from slow
                log.info("%s: %s; from now on %d at a time", self._waiting.group, slow, self._records_max)
            except (TransactionFailed, InstanceNameInUse) as failed:
                raise self._make_stop(failed) from failed

    def _move_from_position(self) -> None:
        """Move from where the group is to the end of what waits, or until something fails."""
        self._lost, self._cursors = False, ReadCursors()
        self._gained.clear()
        settings, group = self._cluster.settings, self._waiting.group
        config = client_config.build_producer_config(settings, f"{settings.app_id}-migrate-{group}")
        producer = KafkaTransactionalProducer(config)
        try:
            # First: it ends what a run that was killed left open, and the group's offsets are known again.
            producer.open(_OPEN_S)
            member = self._join_group()
            try:
                self._read(member, producer)
            finally:
                member.close()
            producer.await_visible(_OPEN_S)
        finally:
            producer.close()

    def _join_group(self) -> KafkaGroupMember:
        settings, admin = self._cluster.settings, self._cluster.admin
        # Where the group has read nothing, everything waits. A member that is killed is forgotten soon.
        config = {
            **client_config.build_consumer_config(settings, self._waiting.group, build_instance(settings.app_id)),
            "auto.offset.reset": "earliest", "session.timeout.ms": client_config.SESSION_TIMEOUT_MS,
        }  # fmt: skip
        topics = sorted({topic for topic, _ in self._open})
        orphans = UnassignedPartitions(admin, config, topics)
        refused = RefusedHeaders(self._cluster.reader)
        subscription = Subscription(admin, topics)
        return KafkaGroupMember(config, subscription, orphans, self._gained.update, self._given_up, TopicIds(admin), refused)

    def _given_up(self, partitions: list[Partition]) -> None:
        self._lost = bool(self._open.keys() & set(partitions))

    def _begin_gained(self, member: KafkaGroupMember) -> None:
        try:
            if self._gained:
                member.begin_reading(self._gained, self._choose_starts)
                self._gained.clear()
        except (KafkaException, TimeoutError) as error:
            # It is asked again, and where nothing comes for long the move ends.
            log.warning("cannot learn yet where %s goes on: %s", self._waiting.group, error)

    def _choose_starts(
        self, committed: Mapping[Partition, CommittedOffset], _topic_ids: Mapping[str, str]
    ) -> dict[Partition, StartingPoint]:
        """Read on where the group is: what it has read is not to be moved."""
        self._count_unknown(committed)
        starts = {partition: StartingPoint(found.offset, found.leader_epoch) for partition, found in committed.items()}
        for partition, start in starts.items():
            self._cursors.begin_partition(partition, start)
        return starts

    def _count_unknown(self, committed: Mapping[Partition, CommittedOffset]) -> None:
        reached = {partition: found.offset for partition, found in committed.items()}
        if any((reached.get((o.topic, o.partition)) or 0) >= o.offset for o in self._unknown.offsets):
            self.moved += self._unknown.letters
            self.left += self._unknown.left
        self._unknown = _UnknownBatch([], 0, 0)

    def _read(self, member: KafkaGroupMember, producer: KafkaTransactionalProducer) -> None:
        silence = Deadline(_SILENCE_S)
        while self._open:
            read = member.read(self._records_max, _WAIT_S)
            self._begin_gained(member)
            batch = member.replace_unreadable(self._cursors.take_news(read)[0])
            if self._lost:
                raise self._make_stop(_JOINED)
            if batch:
                self._transfer(batch, member, producer)
                silence = Deadline(_SILENCE_S)
            elif silence.has_passed():
                count = len(list_group_members(self._cluster, self._waiting.group))
                raise self._make_stop(
                    f"nothing came for {_SILENCE_S:.0f} s, and {count} consumers are in the group, this one too"
                )
            reached = {**member.ended, **{(m.topic(), m.partition()): m.offset() + 1 for m in batch}}
            self._open = {place: stop for place, stop in self._open.items() if reached.get(place, 0) < stop}

    def _transfer(self, batch: list[Any], member: KafkaGroupMember, producer: KafkaTransactionalProducer) -> None:
        letters, left = [], 0
        for message in batch:
            place, letter, _ = self._conversion.convert_record(message)
            if letter is not None:
                letters.append(Entry(letter.topic(), letter.key(), letter.value(), letter.headers(), stamp_ms(letter), ""))
            elif self._leave:
                left += 1
            else:
                raise self._make_stop(f"{place.decode()} cannot be moved, and came meanwhile; --others says what to do")
        offsets, time = _find_offsets_behind(batch), Deadline(ARRIVE_WITHIN_S)
        # Where this fails, the next run ends the transaction, or the brokers do within six seconds.
        try:
            _move_batch(letters, offsets, member, producer)
        except TransactionFailed as failed:
            if _left_behind(failed):
                raise
            if time.has_passed():
                # A quota or a slow link. Another client ends the transaction, which brokers may have done already.
                self._unknown = _UnknownBatch(offsets, len(letters), left)
                self._records_max = len(batch) // 2
                raise TransactionSlow(f"{len(batch):,} records take longer than a transaction lives ({failed})") from failed
            if not isinstance(failed, TransactionAborted):
                raise
            letters = self._with_new_times(letters, producer)
            _move_batch(letters, offsets, member, producer)
        self.moved += len(letters)
        self.left += left

    def _with_new_times(self, letters: list[Entry], producer: KafkaTransactionalProducer) -> list[Entry]:
        """Give letters that are too old the time of now; raises `MigrationStopped` where one is refused for another reason."""
        refused = producer.rehearse_entries(letters, wall_ms())
        for n, error in refused.items():
            if find_cause(error) is not RefusedFor.TIME:
                where = dict(letters[n].headers).get(MIGRATED_FROM) or b"one of them"
                raise self._make_stop(f"{where.decode()} is refused by {letters[n].destination}: {error.str()}")
        return [renew_timestamp(letter) if n in refused else letter for n, letter in enumerate(letters)]

    def _make_stop(self, why: TransactionFailed | InstanceNameInUse | str) -> MigrationStopped:
        told = str(why)
        if isinstance(why, (ProducerFenced, InstanceNameInUse)):
            told = f"another run has taken over ({why})"
        elif _left_behind(why):
            told = _JOINED
        elif isinstance(why, CommitInDoubt):
            told = f"it is not known whether the last batch was moved, and the brokers will ({why})"
        return MigrationStopped(
            f"{self._waiting.group}: {told}; {self.moved:,} records were moved before that and stay moved. Give the command "
            "again, once its reason is gone: it goes on where this ended"
        )


def _move_batch(
    letters: list[Entry], offsets: list[TopicPartition], member: KafkaGroupMember, producer: KafkaTransactionalProducer
) -> None:
    producer.begin()
    producer.publish(letters, wall_ms())
    demand_arrival(producer)
    producer.read_to(offsets, member.metadata())
    producer.commit()


def _find_offsets_behind(batch: list[Any]) -> list[TopicPartition]:
    """Find the offsets behind the last record of a batch in each partition; the group goes on there."""
    last = {(message.topic(), message.partition()): message for message in batch}
    return [
        TopicPartition(*place, message.offset() + 1, leader_epoch=-1 if (epoch := message.leader_epoch()) is None else epoch)
        for place, message in last.items()
    ]


def build_instance(app_id: str) -> str:
    """Return the `group.instance.id` with which a move joins a consumer group."""
    return f"{app_id}-migrate"


def _left_behind(why: object) -> bool:
    cause = why.__cause__ if isinstance(why, TransactionFailed) else None
    return isinstance(cause, KafkaException) and cause.args[0].code() in _STALE
