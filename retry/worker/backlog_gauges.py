"""What is due soon in the shards of a worker, and how long Kafka keeps the letters that wait: looked at now and then."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from retry import clock
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import NAMED
from retry.errors import EntryUnreadable, TableUnreadable
from retry.worker.shards.shard import Shard

log = logging.getLogger(__name__)

_WITHIN_MS = {"1m": 60_000, "5m": 300_000}
# Of all shards together: a microsecond each, and three where what waits is read.
_ROWS_MAX = 20_000
_LANE_ROWS, _LANE_BYTES = 100, 256 << 10

Retention = Callable[[Iterable[str]], Mapping[str, int]]


class BacklogGauges:
    """Looks belong to one thread; what they found may be asked for by others.

    Args:
      shards: those that are owned.
      retention: by topic, how many milliseconds Kafka keeps a record; topics that keep theirs are left out.
    """

    def __init__(self, shards: Callable[[], list[Shard]], retention: Retention) -> None:
        self._shards, self._retention = shards, retention
        self._soon, self._oldest_s = dict.fromkeys(_WITHIN_MS, 0.0), 0.0
        self._gone_at_ms: dict[str, int] = {}

    def look_ahead(self) -> None:
        """See what is due soon."""
        now_ms, shards = clock.wall_ms(), self._shards()
        until_ms, found = [now_ms + within for within in _WITHIN_MS.values()], []
        for shard in shards:
            try:
                found.append(shard.soon(until_ms, _ROWS_MAX // len(shards)))
            except TableUnreadable as error:
                log.warning("shard %d: not counted, the next sweep will see to it: %s", shard.changelog.partition, error)
        self._soon = {within: float(sum(soon.due[n] for soon in found)) for n, within in enumerate(_WITHIN_MS)}
        first_ms = min((soon.first_ms for soon in found if soon.first_ms is not None), default=now_ms)
        self._oldest_s = max(0, now_ms - first_ms) / 1_000

    def look_back(self) -> None:
        """See how old the letters are that wait.

        Raises:
          KafkaException, TimeoutError: no broker told of their topics.
        """
        oldest_ms: dict[str, int] = {}
        shards = self._shards()
        for shard in shards:
            lanes = len(shard.table.lanes()) or 1
            try:
                for topic, stamp_ms in _stamps(shard, min(_LANE_ROWS, 1 + _ROWS_MAX // len(shards) // lanes)):
                    oldest_ms[topic] = min(stamp_ms, oldest_ms.get(topic, stamp_ms))
            except TableUnreadable as error:
                log.warning("shard %d: not looked at, the next sweep will see to it: %s", shard.changelog.partition, error)
        kept_ms = self._retention(oldest_ms)
        self._gone_at_ms = {topic: oldest_ms[topic] + kept for topic, kept in kept_ms.items()}

    def due_soon(self) -> dict[str, float]:
        """How many entries are due within a time."""
        return self._soon

    def count_held(self) -> dict[str, float]:
        """Count the entries that are held because the key that they are sealed under is not here, by the id of that key."""
        found = Counter[str]()
        for shard in self._shards():
            found.update(shard.moves.held.by_key)
        return {key: float(count) for key, count in found.items()}

    def oldest_s(self) -> float:
        """How long ago the oldest entry was due when that was last looked at; 0 where none was."""
        return self._oldest_s

    def retention_left_s(self) -> dict[str, float]:
        """Return the seconds until Kafka may delete the oldest waiting letter of each dead-letter topic."""
        now_ms = clock.wall_ms()
        return {topic: (at_ms - now_ms) / 1_000 for topic, at_ms in self._gone_at_ms.items()}


def _stamps(shard: Shard, rows_max: int) -> Iterable[tuple[str, int]]:
    """Topic and timestamp of letters that wait."""
    for key, envelope in shard.earliest(rows_max, _LANE_BYTES):
        # What has a name came in by another entry source.
        if key[0] == NAMED:
            continue
        try:
            topic, entry = entry_keys.source(key).topic, envelopes.routing(envelope)
        except EntryUnreadable as error:
            log.debug("shard %d: %s", shard.changelog.partition, error)
            continue
        stamp_ms = entry.failed_at_ms if entry.timestamp_ms is None else entry.timestamp_ms
        if stamp_ms is not None:
            yield topic, stamp_ms
