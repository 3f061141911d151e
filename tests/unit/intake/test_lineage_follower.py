"""What was sent is known as soon as it can be read."""

from __future__ import annotations

from threading import Timer
from typing import Any

import pytest

from retry.intake import attempts
from retry.intake.attempts import RecentLineages, lineage_follower
from retry.intake.attempts.lineage_follower import LineageFollower
from retry.intake.read_positions import ReadPosition, ReadPositions, encode_positions
from retry.testing.kafka import MemoryCluster, MemoryLog, MemoryPartitionReader

TOPIC, POSITIONS = "lineage", "positions"


class Patient(MemoryPartitionReader):
    """A reader that waits as librdkafka does: until it has as many as it was asked for, or until the time is over."""

    waited_s = 0.0

    def read(self, records_max: int, wait_s: float) -> list[Any]:
        found = super().read(records_max, wait_s)
        self.waited_s += wait_s * (len(found) < records_max)
        return found


class Brokers(MemoryCluster):
    def make_reader(self) -> Patient:
        self.made = Patient(self._log)
        return self.made


def follower_of(brokers: Brokers, partitions: int) -> LineageFollower:
    brokers._log.create(POSITIONS)
    return LineageFollower(brokers, TOPIC, partitions, RecentLineages(100), ReadPositions(brokers, POSITIONS))


def test_a_record_is_not_kept_waiting_for_the_next_one() -> None:
    log = MemoryLog()
    log.create(TOPIC)
    brokers = Brokers(log, "app", "a")
    recent = follower_of(brokers, 1)
    recent.read()
    waited_s = brokers.made.waited_s
    for number in (1, 2, 3):
        log.add_record(TOPIC, None, attempts.pack("shop", [attempts.build_fields(number, number, 5_000, 1_000, 1, False)]))
        recent.read()
        recent.catch_up()
        assert len(recent.lineages) == number
    assert brokers.made.waited_s == waited_s


def test_what_is_there_by_now_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # The other thread may get no processor for a second.
    monkeypatch.setattr(lineage_follower, "_NOW_S", 60.0)
    log = MemoryLog()
    log.create(TOPIC, 2)
    recent = follower_of(Brokers(log, "app", "a"), 2)
    recent.read()
    log.add_record(TOPIC, None, attempts.pack("shop", [attempts.build_fields(7, 7, 5_000, 1_000, 2, False)]), partition=1)
    # Another thread reads it, a moment later.
    later = Timer(0.05, recent.read)
    later.start()
    recent.catch_up_to_now()
    assert (known := recent.lineages.find_team("shop").sends(7)) is not None and known.attempts == 2
    later.join()


def test_what_nobody_reads_is_not_waited_for_for_ever() -> None:
    log = MemoryLog()
    log.create(TOPIC)
    recent = follower_of(Brokers(log, "app", "a"), 1)
    log.add_record(TOPIC, None, attempts.pack("shop", [attempts.build_fields(7, 7, 5_000, 1_000, 2, False)]))
    recent.catch_up_to_now()
    assert len(recent.lineages) == 0


def test_positions_are_read_by_the_same_client_and_a_newer_version_stops_intake() -> None:
    log = MemoryLog()
    log.create(TOPIC)
    recent = follower_of(Brokers(log, "app", "a"), 1)
    position = ReadPosition(topic_id="id", offset=7)
    for row in encode_positions({("orders.DLT", 0): position}):
        log.add_record(POSITIONS, row["key"], row["value"])
    for key, value in ((b"orders.DLT/0", b"no json"), (None, b"{}"), (b"\xff/0", b"{}"), (b"orders.DLT/0", None)):
        log.add_record(POSITIONS, key, value)
    recent.read()
    assert (recent.positions.find_position(("orders.DLT", 0)), recent.trouble) == (position, "")
    log.add_record(POSITIONS, b"orders.DLT/0", b'{"v": 9}')
    recent.read()
    assert "positions/5: read position version 9 was written by a newer version of this service" in recent.trouble
