"""A stock of waiting entries, written to the changelog as an intake writes it, only without letters: ten million in minutes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.record import Headers

from .letters import PLAIN, Incorrect, key, letter, producer
from .service import Service, now_ms

HERD = b"h"
_IN_TRANSACTION = 20_000
_COMMIT_S = 120.0
# Neighbours in the changelog are far apart in time, as where delays differ; an odd factor meets each place once.
_SCATTER = 2_654_435_761


def scattered(count: int, from_ms: int, over_ms: int) -> Callable[[int], int]:
    """Due times by number, spread evenly over a span and in no order."""
    return lambda n: from_ms + n * _SCATTER % count * over_ms // count


def fill(service: Service, count: int, due_ms: Callable[[int], int]) -> None:
    """Entries of the further teams in turn, each as the intake makes it of a letter of 500 bytes; all committed.

    Raises:
      Incorrect: not everything could be written.
    """
    to = producer(service.bootstrap, **{"transactional.id": f"{service.names.intake_group}-fill", "compression.type": "lz4"})
    to.init_transactions(_COMMIT_S)
    teams = [(team, topic, entry_keys.lane(team, topic, service.retries)) for team, topic in service.of_team.items()]
    made_ms = now_ms()
    for first in range(0, count, _IN_TRANSACTION):
        shards: list[list[dict[str, bytes]]] = [[] for _ in range(service.shards)]
        for number in range(first, min(first + _IN_TRANSACTION, count)):
            team, topic, lane = teams[number % len(teams)]
            row = _row(number, team, topic, lane, service.retries, due_ms(number), made_ms)
            shards[shard(key(number), service.shards)].append(row)
        to.begin_transaction()
        for partition, rows in enumerate(shards):
            if to.produce_batch(service.names.changelog, rows, partition) != len(rows):
                raise Incorrect(f"the changelog did not take all entries from {first:,} on")
        to.commit_transaction(_COMMIT_S)


def shard(record_key: bytes, shards: int) -> int:
    """The shard in which an intake has letters of this key wait."""
    return zlib.crc32(record_key) % shards


def _row(number: int, team: str, topic: str, lane: bytes, target: str, due_ms: int, made_ms: int) -> dict[str, bytes]:
    headers: Headers = [
        *PLAIN, (names.ID, b"%016x" % number), (names.ATTEMPT, b"1"), (names.SOURCE, b"%s/0/%d" % (topic.encode(), number)),
        (names.DUE_MS, b"%d" % due_ms), (names.POLICY, b"%s/%s" % (team.encode(), topic.encode())),
        (names.FIRST_FAILED_MS, b"%d" % made_ms),
    ]  # fmt: skip
    entry = Entry(target, key(number), letter(number, due_ms, HERD), headers, made_ms, team, made_ms)
    return {
        "key": entry_keys.build_key(due_ms, entry_keys.build_key_stem(topic, 0), number, lane),
        "value": envelopes.encode(entry),
    }
