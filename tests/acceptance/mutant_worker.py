"""A worker without transactions, for the test that the checker would notice.

Everything is written idempotently and acknowledged; only, nothing is undone, and offsets are committed by themselves, ahead of
what was made of the letters, so that no letter is read twice. Batches are small: those that are under way when it dies are
lost. With `CRASH_AT=sweep-after-write:<n>` it dies between the deletes of a batch and its deliveries.
"""

from __future__ import annotations

import os
from typing import Any

from confluent_kafka import Producer

from retry.errors import CommitInDoubt
from retry.kafka.client_config import Config
from retry.kafka.group_member import KafkaGroupMember
from retry.kafka.transactional_ids import TransactionalIds
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from tests.acceptance import crashing_worker

_FLUSH_S = 15.0
_TRANSACTIONAL = ("transactional.id", "transaction.timeout.ms")
_BATCH = "100"
_members: list[KafkaGroupMember] = []


def mutate() -> None:
    """Take the transactions out of the product, from outside."""

    def hold_writes(writer: Any, config: Config, ids: TransactionalIds) -> None:
        original_init(writer, config, ids)
        writer._producer = Producer({name: value for name, value in config.items() if name not in _TRANSACTIONAL})
        # Rows of intake, until offsets are committed; a sweep writes at once.
        writer.held = [] if "-intake-" in config["transactional.id"] else None

    def do_nothing(_writer: KafkaTransactionalProducer, *_: object) -> None:
        pass

    def write(writer: Any, topic: str, partition: int, rows: list[Any]) -> None:
        if writer.held is None:
            original_write(writer, topic, partition, rows)
        else:
            # Whoever gave them takes them out of their list.
            writer.held.append((topic, partition, list(rows)))

    def read_to(writer: Any, positions: list[Any], _member: object) -> None:
        if writer.held is None:
            return
        _letters()._consumer.commit(offsets=positions, asynchronous=False)
        for each in writer.held:
            original_write(writer, *each)
        writer.held.clear()

    def commit(writer: KafkaTransactionalProducer) -> None:
        if writer._producer.flush(_FLUSH_S):
            raise CommitInDoubt("not acknowledged")

    original_init = KafkaTransactionalProducer.__init__
    KafkaTransactionalProducer.__init__ = hold_writes  # type: ignore[method-assign]
    KafkaTransactionalProducer.open = KafkaTransactionalProducer.begin = do_nothing  # type: ignore[method-assign]
    KafkaTransactionalProducer.abort = do_nothing  # type: ignore[method-assign]
    original_write = KafkaTransactionalProducer.write
    KafkaTransactionalProducer.write = write  # type: ignore[method-assign]
    KafkaTransactionalProducer.read_to = read_to  # type: ignore[method-assign]
    KafkaTransactionalProducer.commit = commit  # type: ignore[method-assign]
    crashing_worker.patch_after(KafkaGroupMember, "__init__", lambda member, *_: _members.append(member))


def _letters() -> KafkaGroupMember:
    # The member of the intake group is built first.
    return _members[0]


if __name__ == "__main__":
    os.environ["RETRY_BATCH_RECORDS"] = _BATCH
    mutate()
    crashing_worker.main()
