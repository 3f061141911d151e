"""A worker without transactions, for the test that the checker would notice.

Everything is written idempotently and acknowledged; only, nothing is undone, and offsets are committed afterwards. With
`CRASH_AT=sweep-after-publish:<n>` it dies between a delivery and its delete.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from retry.errors import CommitInDoubt
from retry.kafka.client_config import Config
from retry.kafka.group_member import Member
from retry.kafka.batch_size_limits import Portions
from retry.kafka.transactional_producer import Transactions
from tests.acceptance import crashing_worker

_FLUSH_S = 15.0
_TRANSACTIONAL = ("transactional.id", "transaction.timeout.ms")
_members: list[Member] = []
_pending: dict[int, list[Any]] = {}


def mutate() -> None:
    """Take the transactions out of the product, from outside."""

    def built(writer: Transactions, config: Config) -> None:
        writer._producer = Producer({name: value for name, value in config.items() if name not in _TRANSACTIONAL})
        writer._portions = Portions()

    def nothing(_writer: Transactions) -> None:
        pass

    def read_to(writer: Transactions, positions: list[Any], _member: object) -> None:
        _pending[id(writer)] = positions

    def commit(writer: Transactions) -> None:
        if writer._producer.flush(_FLUSH_S):
            raise CommitInDoubt("not acknowledged")
        if positions := _pending.pop(id(writer), None):
            _letters()._consumer.commit(offsets=positions, asynchronous=False)

    Transactions.__init__ = built  # type: ignore[method-assign]
    Transactions.open = Transactions.begin = nothing  # type: ignore[method-assign]
    Transactions.read_to = read_to  # type: ignore[method-assign]
    Transactions.commit = commit  # type: ignore[method-assign]
    crashing_worker.after(Member, "__init__", lambda member, *_: _members.append(member))


def _letters() -> Member:
    # The member of the intake group is built first.
    return _members[0]


if __name__ == "__main__":
    mutate()
    crashing_worker.main()
