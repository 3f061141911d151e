"""Offsets of groups without members, committed as a consumer commits them."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from retry.kafka.asked_again import ask_until_answered
from tests.support.reading import QUIET

_WITHIN_S = 120.0


def commit_offsets(bootstrap_servers: str, group: str, offsets: list[TopicPartition]) -> None:
    """Commit offsets of a group; the first commits of a broker are refused until it has loaded the offsets of all groups."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "logger": QUIET})
    try:
        ask_until_answered(lambda _: consumer.commit(offsets=offsets, asynchronous=False), _WITHIN_S)
    finally:
        consumer.close()
