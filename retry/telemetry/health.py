"""Why something does not go on: one closed list, from which labels of metrics are taken.

Words for people stand beside it in health; they are no labels, since nobody could say how many there may be.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from retry.record import PartitionId


class Reason(Enum):
    """A reason why a lane, a shard, or a part of the worker is blocked."""

    PAUSED = "paused"  # a lane: an operator's wish
    NOT_ALLOWED = "not_allowed"  # a lane: the policy file no longer lets it go there
    REFUSED = "refused"  # a lane: its topic is missing or forbidden
    REFUSED_LETTERS = "refused_letters"  # a topic that refuses single letters for what they are; all others go on
    CIRCUIT_BREAKER = "circuit_breaker"  # a lane: the circuit breaker of its target is open, after refusals or failures
    SLOW_LINK = "slow_link"  # intake, or deliveries: a quota or a slow link lets less through than one transaction has
    OPEN_TRANSACTION = "open_transaction"  # a partition of letters: another producer keeps a transaction open
    RATE_LIMIT = "rate_limit"  # a lane: a rate limit or a budget is used up
    OPENING = "opening"  # a shard that is ours and not open yet
    RESTORING = "restoring"  # a shard that is read from the changelog
    READ_ONLY = "read_only"  # a shard, or intake, that met what a newer version wrote
    HALTED = "halted"  # a shard that met a record of which nothing is known
    SEALED = "sealed"  # a shard that holds entries whose key is not here; all others go on
    BROKEN = "broken"  # a shard that is about to be opened again
    FAILING = "failing"  # a part whose every try fails, and that tries again
    STALLED = "stalled"  # a part that stands still with work before it
    BROKERS = "brokers"  # the worker: a broker does not answer
    CLOCK = "clock"  # the worker: its clock is not the brokers', so nothing is delivered
    POLICY_FILE = "policy_file"  # the worker: a changed file is refused, the old one stays



class HealthProbe(NamedTuple):
    """One thing that must go on.

    Attributes:
      name: for people.
      done: changes whenever it gets on.
      busy: whether it has something to do, as far as this process knows.
      place, offset: a partition that it reads, and how far; what lies beyond is something to do, too.
      trouble: what its last try failed with, where it is trying again.
      shard: which one it belongs to.
      thread: that has many such things to do in turns; the others get on while one of them waits for its turn.
    """

    name: str
    done: object
    busy: bool = False
    place: PartitionId | None = None
    offset: int = 0
    trouble: str = ""
    shard: int | None = None
    thread: str = ""


class Blocked(NamedTuple):
    """Why a part, or with the brokers the whole worker, does not go on."""

    reason: Reason
    why: str
    shard: int | None = None
