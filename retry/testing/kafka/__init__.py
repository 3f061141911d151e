"""A log in memory, with transactions and consumer groups: for tests of users and our own, and for the simulation.

Passes the same contract suite as the real one. Readers see what read_committed readers of a broker see: nothing of an
aborted transaction, nothing behind an open one, a gap in the offsets where one ended. Topics are made first:
`log.create("orders.retry", partitions=3)`. One thread at a time. Nothing happens by itself: sessions end, transactions
time out and partitions are compacted when a test says so.

| module | what it is |
| --- | --- |
| `records` | what readers are given, and how keys choose partitions |
| `partition` | records and ends of transactions in their order, compacted and cut |
| `log` | topics, transactional ids, committed positions |
| `transactional_producer`, `partition_reader`, `group_member` | the clients, as `retry.kafka.interface` wants them |
| `group_coordinator` | the coordinator of a consumer group |
| `cluster` | all of it as one worker reaches it |
"""

from __future__ import annotations

from retry.testing.kafka.cluster import MemoryCluster
from retry.testing.kafka.group_coordinator import Membership, MemoryGroup
from retry.testing.kafka.group_member import MemoryGroupMember
from retry.testing.kafka.log import MemoryLog
from retry.testing.kafka.partition import MemoryPartition, Transaction
from retry.testing.kafka.partition_reader import MemoryPartitionReader
from retry.testing.kafka.records import MemoryEnd, MemoryRecord, murmur2
from retry.testing.kafka.transactional_producer import Fault, MemoryTransactionalProducer

__all__ = [
    "Fault",
    "Membership",
    "MemoryCluster",
    "MemoryEnd",
    "MemoryGroup",
    "MemoryGroupMember",
    "MemoryLog",
    "MemoryPartition",
    "MemoryPartitionReader",
    "MemoryRecord",
    "MemoryTransactionalProducer",
    "Transaction",
    "murmur2",
]
