"""The shards that this worker owns: a member of the table group, which opens, feeds and closes them.

The member only says which partitions are ours; another client follows each from where its table ends. A shard is opened
outside the rebalance callback. The same way leads back when a shard broke: it is closed, and opened again if the
partition is still ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException, Message

from retry import clock
from retry.errors import ChangelogReplaced, DataDirUnusable, RetryError
from retry.kafka.log import Partition
from retry.shard import Phase, Shard, Surroundings
from retry.sweep import Changelog

log = logging.getLogger(__name__)

_LINGER_S = 0.02
_RECORDS_MAX = 5_000
_AGAIN_S = 2.0
_TOUCH_EVERY_S = 60.0

Portions = list[tuple[Shard, list[Message]]]
# `map`, or one that does several at once: most of the time of opening a shard is spent waiting for brokers.
Map = Callable[[Callable[[int], Shard | None], Iterable[int]], Iterable[Shard | None]]


class Shards:
    """Reads changelog records for the shards that it owns (`read`, one thread); others fold and sweep them."""

    def __init__(self, group: str, topic: str, around: Surroundings, opening: Map) -> None:
        self.around, self._opening = around, opening
        self._open: dict[int, Shard] = {}
        self._to_open: dict[int, float] = {}
        self._topic = topic
        self._touch_at_s = clock.monotonic_s() + _TOUCH_EVERY_S
        self._follower = around.log.follower()
        self._member = around.log.member(group, [topic], self._gained, self._leaving, reads=False)

    def shards(self) -> list[Shard]:
        """Those that are open just now."""
        return list(self._open.values())

    def owned(self) -> int:
        """How many partitions are ours, open or not."""
        return len(self._member.owned)

    def read(self) -> Portions:
        """The next changelog records, and ends of partitions, each with the shard that is to fold them."""
        self._member.read(1, 0.0)
        self._reopen_broken()
        self._open_waiting()
        self._touch_idle()
        found: dict[int, list[Message]] = {}
        for message in self._follower.read(_RECORDS_MAX, _LINGER_S):
            found.setdefault(message.partition() or 0, []).append(message)
        return [(self._open[p], messages) for p, messages in found.items() if p in self._open]

    def _gained(self, gained: list[Partition]) -> None:
        self._to_open |= {partition: 0.0 for _, partition in gained}

    def _leaving(self, leaving: list[Partition]) -> None:
        for _, partition in leaving:
            self._to_open.pop(partition, None)
            shard = self._open.pop(partition, None)
            if shard is not None:
                self._close(shard)
                log.info("shard %d: given up", partition)

    def _reopen_broken(self) -> None:
        for partition, shard in list(self._open.items()):
            if shard.phase is Phase.BROKEN:
                del self._open[partition]
                self._close(shard)
                # A zombie learns in this time that the partition is no longer its own.
                self._to_open[partition] = clock.monotonic_s() + _AGAIN_S

    def _open_waiting(self) -> None:
        now_s = clock.monotonic_s()
        ripe = [partition for partition, at_s in self._to_open.items() if now_s >= at_s]
        for partition, shard in zip(ripe, self._opening(self._opened, ripe), strict=True):
            self._to_open[partition] = clock.monotonic_s() + _AGAIN_S
            if shard is not None:
                self._follower.begin(self._topic, partition, shard.table.next_offset)
                self._open[partition] = shard
                del self._to_open[partition]

    def _opened(self, partition: int) -> Shard | None:
        try:
            return Shard.open(Changelog(self._topic, partition), self.around)
        except (ChangelogReplaced, DataDirUnusable):
            raise
        except (RetryError, KafkaException, TimeoutError) as error:
            log.warning("shard %d: cannot be opened yet: %s", partition, error)
            return None

    def _close(self, shard: Shard) -> None:
        self._follower.end(self._topic, shard.changelog.partition)
        shard.close()

    def _touch_idle(self) -> None:
        if clock.monotonic_s() >= self._touch_at_s:
            self._touch_at_s = clock.monotonic_s() + _TOUCH_EVERY_S
            for shard in self.shards():
                shard.touch()

    def close(self) -> None:
        """Close every shard and leave the group."""
        self._member.close()
        self._follower.close()
