"""Pauses: deliveries that are held back, asked of every shard at once."""

from __future__ import annotations

from retry.clock import iso
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause
from retry.errors import ActionRefused
from retry.operations.control_requests import ShardNumbers


def pause(shards: ShardNumbers, scope: str, name: str, asked: Pause) -> None:
    """Hold back what is named, until it is resumed or the pause ends by itself; takes the place of a former pause of the same.

    Raises:
      ActionRefused: it would be over already.
      TransactionFailed: it is not known to be there; asking again does no harm.
      RightMissing: this user may not write there.
    """
    if asked.until_ms is not None and asked.until_ms <= shards.now_ms():
        raise ActionRefused(f"{iso(asked.until_ms)} is over by the brokers' time; nothing was paused")
    shards.put_control_record(control_records.pause_key(scope, name), control_records.encode(asked))


def resume(shards: ShardNumbers, scope: str, name: str) -> None:
    """End the pause of exactly this scope and name; raises as `pause`, but for `ActionRefused`."""
    shards.put_control_record(control_records.pause_key(scope, name), None)


def describe_scope(scope: str, name: str) -> str:
    """Describe in words what a pause holds back.

    >>> describe_scope("all", ""), describe_scope("topic", "orders.DLT"), describe_scope("team", "payments")
    ('everything', 'dead-letter topic orders.DLT', 'team payments')
    """
    return {"all": "everything", "topic": f"dead-letter topic {name}"}.get(scope, f"{scope} {name}")
