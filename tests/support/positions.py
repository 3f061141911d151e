"""Read positions for tests in which no thread follows their topic."""

from __future__ import annotations

from retry.intake.read_positions import PARTITION, ReadPositions
from retry.testing.kafka import MemoryCluster

TOPIC = "app-positions"


class FollowedPositions(ReadPositions):
    """Reads what is there whenever somebody waits for it."""

    def __init__(self, log: MemoryCluster) -> None:
        super().__init__(log, TOPIC)
        self._follower = log.make_reader()
        self._follower.follow_partition(TOPIC, PARTITION, 0)

    def await_current(self) -> None:
        for message in self._follower.read(1_000, 0.0):
            self.apply_message(message)
        super().await_current()
