"""A log in memory, with transactions and consumer groups: for tests of users and our own, and for the simulation.

Passes the same contract suite as the real one. Readers see what read_committed readers of a broker see: nothing of an
aborted transaction, nothing behind an open one, a gap in the offsets where one ended. Topics are made first:
`log.create("orders.retry", partitions=3)`. One thread at a time. Nothing happens by itself: sessions end, transactions
time out and partitions are compacted when a test says so.

| module | what it is |
| --- | --- |
| `partition` | records, as readers are given them, and ends of transactions in their order, compacted and cut |
| `log` | topics, transactional ids, committed positions |
| `transactional_producer` | the client that writes, as `retry.kafka.interface` wants it |
| `group_coordinator` | the coordinator of a consumer group |
| `cluster` | the clients that read, and all of it as one worker reaches it |
"""

from __future__ import annotations

from retry.testing.kafka.cluster import MemoryCluster, MemoryGroupMember, MemoryPartitionReader
from retry.testing.kafka.group_coordinator import Membership, MemoryGroup
from retry.testing.kafka.log import MemoryLog
from retry.testing.kafka.partition import MemoryEnd, MemoryPartition, MemoryRecord, Transaction, murmur2
from retry.testing.kafka.transactional_producer import Fault, MemoryTransactionalProducer

__all__ = [
    "Fault", "Membership", "MemoryCluster", "MemoryEnd", "MemoryGroup", "MemoryGroupMember", "MemoryLog", "MemoryPartition",
    "MemoryPartitionReader", "MemoryRecord", "MemoryTransactionalProducer", "Transaction", "murmur2",
]  # fmt: skip
