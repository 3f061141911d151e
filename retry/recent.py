"""Keeps the record of recent lineages up to date: one thread follows its topic, the one that traces letters folds.

A worker reads the topic from its beginning when it starts, which is bounded by the topic's size, and takes in no letter
before it has reached what was there then.
"""

from __future__ import annotations

import logging
from collections import deque

from confluent_kafka import Message

from retry import clock
from retry.errors import LineageUnreadable
from retry.kafka.log import Log
from retry.lineages import Lineages

logger = logging.getLogger(__name__)

_LINGER_S = 0.1
_RECORDS_MAX = 100
_WAIT_S = 0.02


class Recent:
    """Follows (`read`, one thread), and folds what was read (`catch_up`, another)."""

    def __init__(self, log: Log, topic: str, partitions: int, lineages: Lineages) -> None:
        self.lineages = lineages
        self._read: deque[Message] = deque()
        self._follower = log.follower()
        bounds = log.bounds(topic, range(partitions))
        self._missing = {partition: end for partition, (_, end) in bounds.items() if end > 0}
        for partition in range(partitions):
            self._follower.begin(topic, partition, 0)

    def read(self) -> None:
        """Read what is new; to be called again and again."""
        for message in self._follower.read(_RECORDS_MAX, _LINGER_S):
            self._read.append(message)

    def catch_up(self) -> None:
        """Fold what was read; for the first time, wait until that is all that was there at the start."""
        while True:
            while self._read:
                self._fold(self._read.popleft())
            if not self._missing:
                return
            clock.pause(_WAIT_S)

    def _fold(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        if message.error() is None:
            try:
                self.lineages.fold(message.value() or b"")
            except LineageUnreadable as error:
                # Counts only: a letter whose sends are not known here is known by its headers.
                logger.error("lineages at %s/%d/%d: %s", message.topic(), partition, offset, error)
            offset += 1
        if offset >= self._missing.get(partition, 0):
            self._missing.pop(partition, None)

    def close(self) -> None:
        """Follow no more."""
        self._missing.clear()
        self._follower.close()
