"""The tests know which node coordinates a group.

Where they are wrong, they fell a node on which nothing depends, and whatever they assert of the rest may hold.
"""

from __future__ import annotations

import struct
import uuid

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from retry.kafka.local_broker import LocalBroker
from tests.support.cluster import coordinating_partition
from tests.support.committed_offsets import commit_offsets
from tests.support.reading import UNCOMMITTED, admin, read
from tests.support.topics import create_all

pytestmark = pytest.mark.check

OFFSETS = "__consumer_offsets"
# Half of them have a negative hash, and half of those another partition where its sign is masked.
GROUPS = 24


def test_the_partition_that_coordinates_a_group_is_the_one_with_its_offsets(broker: LocalBroker) -> None:
    # Not asked of the brokers: a question about a group can end the process (librdkafka issue 4605).
    mark = uuid.uuid4().hex
    asking, topic = admin(broker.bootstrap_servers), f"coordinated-{mark}"
    create_all(asking, [NewTopic(topic, 1, 1)])
    groups = [f"{n * 104_729:x}-{mark}" for n in range(GROUPS)]
    for group in groups:
        commit_offsets(broker.bootstrap_servers, group, [TopicPartition(topic, 0, 1)])
    found = {group_of(record.key or b""): record.partition for record in read(broker.bootstrap_servers, [OFFSETS], UNCOMMITTED)}
    count = len(asking.list_topics(OFFSETS, 20).topics[OFFSETS].partitions)
    assert {group: found.get(group) for group in groups} == {group: coordinating_partition(group, count) for group in groups}


def group_of(key: bytes) -> str:
    """The group of a record of committed offsets; its key begins with a version and a text (OffsetCommitKey of Kafka)."""
    (length,) = struct.unpack_from(">h", key, 2)
    return key[4 : 4 + length].decode()
