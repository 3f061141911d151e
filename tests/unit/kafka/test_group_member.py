"""A member that is fenced while it leaves its group gives its partitions up as any other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from retry.errors import TransactionAborted
from retry.kafka.group_member import KafkaGroupMember


class Leaving:
    """The part of a member that is there when its partitions go; what it is told is noted."""

    def __init__(self) -> None:
        self.left, self.unassigned = list[Any](), list[Any]()
        self.member = KafkaGroupMember.__new__(KafkaGroupMember)
        self.member.owned, self.member.ended = {("letters", 0)}, {}
        self.member._leaving, self.member._metadata = self.left.extend, "a proof"


def test_who_has_no_membership_any_more_gives_up_and_commits_nothing() -> None:
    closed = Consumer({"group.id": "group"})
    closed.close()
    leaving = Leaving()
    consumer: Any = SimpleNamespace(
        # Raises as a member's that was fenced: a `RuntimeError` made in C.
        consumer_group_metadata=closed.consumer_group_metadata, incremental_unassign=leaving.unassigned.extend,
    )  # fmt: skip
    with pytest.raises(RuntimeError):
        consumer.consumer_group_metadata()
    given_up = [TopicPartition("letters", 0)]
    leaving.member._on_revoke(consumer, given_up)
    assert (leaving.left, leaving.member.owned, leaving.unassigned) == ([("letters", 0)], set(), given_up)
    with pytest.raises(TransactionAborted, match="no member"):
        leaving.member.metadata()
