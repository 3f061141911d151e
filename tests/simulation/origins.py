"""Whose letters are whose: consumers of two teams fail on the same records, and on each other's retries; a consumer writes to
another topic of its team when it fails again, and a neighbour floods what workers remember.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from retry.dead_letters import retry_headers as names
from retry.intake import attempts
from retry.record import Headers
from retry.testing.kafka import MemoryRecord
from tests.simulation.plan import CANCELLABLE, CHAINED, LINEAGE_PARTITIONS, LINEAGES, LOUD, SHARED

if TYPE_CHECKING:
    from tests.simulation.world import World

# Of letters, of retries that are consumed, of those that fail with their headers, and again of those that are consumed.
_SHARED, _BY_OTHERS, _CHAINED, _FLOODS = 0.4, 0.2, 0.3, 0.2
_ORDERS, _OTHERS, _ = SHARED


class Origins:
    """Draws what letters say of themselves; by itself, so that a seed goes on as it did in all else."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, Random(f"origins of {seed}")
        self._failed_on = Counter[str]()
        self._failed_by_others = set[int]()
        self._flooded = 0

    def draw(self, topic: str, key: bytes | None, value: bytes) -> tuple[bytes | None, bytes, Headers]:
        """Key, value and headers of a new letter."""
        if topic not in SHARED or self._random.random() > _SHARED:
            return key, value, []
        # Each consumer fails on each of these records once, and writes it as it is.
        offset = b"%d" % self._failed_on[topic]
        self._failed_on[topic] += 1
        self._world.happened["record that two teams read"] += 1
        where: Headers = [("source_topic", b"shared"), ("source_partition", b"0"), ("source_offset", offset)]
        # Whose key orders them keep it.
        return key if topic in CANCELLABLE else b"shared " + offset, b"of " + offset, where

    def consumed(self, retry: MemoryRecord) -> None:
        """A consumer has read a retry, and so may others; meanwhile a neighbour may be loud."""
        if retry.topic() == "orders.retry" and self._random.random() < _BY_OTHERS:
            self._fail_by_others(retry)
        if self._random.random() < _FLOODS:
            self._flood()

    def _fail_by_others(self, retry: MemoryRecord) -> None:
        """Another team's consumer fails on it, for the first time, and copies all headers."""
        lineage = attempts.parse_retry_id(next(value or b"" for name, value in retry.headers() or [] if name == names.ID))
        # Of their own letters they have equal ones.
        has_equal = (retry.key() or b"").startswith(b"shared") or b"of before" in (retry.value() or b"")
        if lineage in self._failed_by_others or has_equal:
            return
        self._failed_by_others.add(lineage)
        record = self._world.log.add_record(_OTHERS, retry.key(), retry.value(), list(retry.headers() or []), 0)
        self._world.ledger.written(record, 1)
        self._world.happened["retry that another team fails on"] += 1
        self._world.say(f"failed by others: {_OTHERS}/0/{record.offset()}")

    def _flood(self) -> None:
        log, own, now_ms = self._world.log, self._world.own, self._world.now_ms
        first = self._flooded = self._flooded + LINEAGES
        rows = [attempts.build_fields(n, n, now_ms, now_ms, 1) for n in range(first, first + LINEAGES)]
        partition = attempts.LineageTopic(own.lineage, LINEAGE_PARTITIONS).find_partition(LOUD)
        log.add_record(own.lineage, None, attempts.pack(LOUD, rows), partition=partition)
        self._world.happened["flood of a neighbour"] += 1

    def choose_dead_letters(self, retry: MemoryRecord, *, bare: bool) -> str:
        """Choose where a consumer writes a retry that it fails on: to where it came from, or to a topic of the same team.

        Without headers nobody could tell then whose retry it was.
        """
        source = next(value or b"" for name, value in retry.headers() or [] if name == names.SOURCE)
        before = source.decode().partition("/")[0]
        if bare or retry.topic() != "orders.retry" or self._random.random() > _CHAINED:
            return before
        self._world.happened["failed again in another topic"] += 1
        return next(topic for topic in (*CHAINED, _ORDERS) if topic != before)
