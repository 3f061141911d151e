"""What is waiting, read from the changelog by any process, whether a worker runs or not.

The changelog is folded into a table of its own in a temporary directory, so memory stays bounded however much waits,
and nothing that a worker holds is touched.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from retry import clock
from retry.delay_queue.entry import LANE_BYTES, Entry, Source, decode_as, due_at_ms, due_bound, key_stem, lane_of, letter, source
from retry.errors import TopicsInvalid
from retry.kafka import client_config, topics
from retry.settings import Settings
from retry.delay_queue.table import ordered_entries
from retry.delay_queue.table.interface import Identity, Table
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable

_BATCH = 10_000
_PAGE = 1_000
_MEMORY_BYTES = 32 << 20
_SILENCE_S = 30.0


@contextmanager
def folded(settings: Settings) -> Iterator[Table]:
    """The changelog as it is committed now, as one table.

    Raises:
      TopicsInvalid: there is no changelog, or it cannot be read.
    """
    name = topics.names(settings.app_id).changelog
    described = topics.describe(client_config.admin(settings), [name]).get(name)
    if described is None:
        raise TopicsInvalid([f"{name} is missing"], "retry topics create")
    with tempfile.TemporaryDirectory(prefix="retry-entries-") as scratch:
        table = RocksTable(Path(scratch) / "table", Identity("", "", 0), Memory(_MEMORY_BYTES))
        _fold_all(settings, name, described.partitions, table)
        yield table
        table.close()


def _fold_all(settings: Settings, name: str, partitions: int, table: Table) -> None:
    reader = Consumer(client_config.reader_config(settings))
    reader.assign([TopicPartition(name, p, 0) for p in range(partitions)])
    ended: set[int] = set()
    deadline = clock.Deadline(_SILENCE_S)
    while len(ended) < partitions:
        messages = reader.consume(_BATCH, 0.5)
        rows = [(m.key(), m.value()) for m in messages if m.error() is None]
        table.fold(rows, 0, 0)  # type: ignore[arg-type]
        ended |= {_ended(m) for m in messages if m.error() is not None}
        if messages:
            deadline = clock.Deadline(_SILENCE_S)
        elif deadline.passed():
            raise TopicsInvalid([f"{name}: no answer for {_SILENCE_S:.0f} s"], "look at the brokers, then try again")
    reader.close()


def _ended(message: Message) -> int:
    error = message.error()
    if error is None or error.code() != KafkaError._PARTITION_EOF:
        raise TopicsInvalid([f"{message.topic()}: {error}"], "look at the brokers and at this user's rights")
    return message.partition() or 0


def entries(table: Table, due_before_ms: int | None, topic: str | None) -> Iterator[tuple[Source, Entry]]:
    """Waiting entries in due order: those due before a moment, and from one dead-letter topic, where asked for."""
    rows = merge(*(_of_lane(table, lane, lane) for lane in table.lanes()), _behind(table), key=lambda row: row[0][LANE_BYTES:])
    for key, envelope in rows:
        where = source(key)
        if due_before_ms is not None and where.due_at_ms >= due_before_ms:
            return
        if topic is None or where.topic == topic:
            yield where, decode_as(key, envelope)


def find(table: Table, wanted: Source) -> Entry | None:
    """The entry that was made from a letter and is due at that moment."""
    for lane in table.lanes():
        for key, envelope in _of_lane(table, lane, due_bound(wanted.due_at_ms, lane)):
            if due_at_ms(key) != wanted.due_at_ms:
                break
            if source(key) == wanted:
                return decode_as(key, envelope)
    return next((decode_as(key, envelope) for key, envelope in _behind(table) if source(key) == wanted), None)


class Waiting(NamedTuple):
    """An entry that waits.

    Attributes:
      head: key of the earlier entry that it waits behind; None where it waits for its own time.
    """

    key: bytes
    entry: Entry
    head: bytes | None


def of_source(table: Table, topic: str, partition: int, offset: int) -> Waiting | None:
    """The entry that was made from a letter, whenever it is due; reads only lanes of its topic, then what waits behind."""
    wanted = key_stem(topic, partition) + offset.to_bytes(8, "big")
    for lane in table.lanes():
        first = table.page(lane, 1)
        if not first or lane_of(first[0][0]) != lane or source(first[0][0]).topic != topic:
            continue
        for key, envelope in _of_lane(table, lane, lane):
            if letter(key) == wanted:
                return Waiting(key, decode_as(key, envelope), None)
    after = b""
    while page := table.behind(after, _PAGE):
        for _, key, envelope in page:
            if letter(key) == wanted:
                return Waiting(key, decode_as(key, envelope), ordered_entries.head(table, key))
        after = page[-1][0]
    return None


def _of_lane(table: Table, lane: bytes, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    while page := table.page(after, _PAGE):
        for key, envelope in page:
            if lane_of(key) != lane:
                return
            yield key, envelope
        after = page[-1][0]


def _behind(table: Table) -> Iterator[tuple[bytes, bytes]]:
    """Entries that wait behind another, in due order; only their keys are held in memory."""
    after, keys = b"", []
    while page := table.behind(after, _PAGE):
        keys += [key for _, key, _ in page]
        after = page[-1][0]
    return ((key, table.get(key) or b"") for key in sorted(keys, key=lambda key: key[LANE_BYTES:]))
