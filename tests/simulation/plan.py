"""What a seed draws before it begins: how large the run is, and how often each thing goes wrong."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

from retry.policies.policy_file import parse
from retry.policies.registry import Registry

APP = "sim"
SHARDS = 2
DEAD_LETTERS = {"orders.DLT": 2, "keyed.DLT": 2, "others.DLT": 1, "fickle.DLT": 1}
# Where a consumer of orders writes some of the retries that it fails on, of the same team.
CHAINED = {"orders.again.DLT": 2}
TEAMS = dict.fromkeys(("orders.DLT", "keyed.DLT", "fickle.DLT", *CHAINED), "shop") | {"others.DLT": "others"}
# Consumers of all three read one topic, and none says who failed.
SHARED = ("orders.DLT", "others.DLT", "keyed.DLT")
# Somebody who floods what all workers remember; nothing of theirs is here but that.
LOUD = "loud"
LINEAGES, LINEAGE_PARTITIONS = 64, 2
# Their letters have few keys, and a null cancels what waits under its own.
CANCELLABLE = ("keyed.DLT", "fickle.DLT")
# Where operators may send letters of orders.
SLOW = "orders.slow"
# Of its consumers nobody knows what they have read.
SILENT = "others.retry"
MAX_ATTEMPTS = 3
LARGE_BYTES = 900
NARROW_BYTES = 700
SESSION_MS = 6_000
# A day and two in real life: deletes outlive by half what a table may have missed.
AGE_MS_MAX = 600_000
RETENTION_MS = 1_200_000
# Somewhat more than what is tolerated: beyond that a worker delivers nothing, and little can go wrong.
SKEW_MS_MAX = 40_000

_POLICIES = """
defaults: {backoff: {kind: exponential, delay: DELAY, factor: 2, max_delay: 1h}, jitter: JITTER, max_attempts: 3}
LIMITS
teams:
  shop:
    topics:
      - {dead_letters: orders.DLT, retry_to: orders.retry, park_to: shop.parked,
         allowed_targets: [orders.retry, orders.slow, shop.parked]}
      - {dead_letters: orders.again.DLT, retry_to: orders.retry, park_to: shop.parked,
         allowed_targets: [orders.retry, orders.slow, shop.parked]}
      - {dead_letters: keyed.DLT, retry_to: keyed.retry, ordered: true, null_value: cancel}
      - {dead_letters: fickle.DLT, retry_to: fickle.retry, null_value: cancel}
  others: {topics: [{dead_letters: others.DLT, retry_to: others.retry, jitter: none, ordered: ORDERED}]}
"""
_IN_ORDER = " in order"
_LIMITS = "targets: {others.retry: {rate: 2/s}, orders.retry: {rate: 2/s}}"
_TOGETHER = ("2s", "1m" + _IN_ORDER)


@cache
def policies(delay: str, *, limited: bool = False) -> Registry:
    """The policy file with this delay, which is its digest too; by some of them all letters of a team keep an order.

    Args:
      limited: whether so few may go to some targets that what waits in blocks goes one by one.
    """
    own = _POLICIES.replace("DELAY", delay.removesuffix(_IN_ORDER)).replace("ORDERED", str(delay.endswith(_IN_ORDER)).lower())
    # Letters that failed together stay together, and may wait in one block.
    jitter = "none" if delay in _TOGETHER else "full"
    limits = _LIMITS if limited else ""
    return parse(own.replace("JITTER", jitter).replace("LIMITS", limits), "policies.yaml", digest=delay)


# The longest is far longer than a consumer needs to fail on a retry that was moved forward from there; so it comes often.
DELAYS = ("500ms", "1m", "2s", "1m" + _IN_ORDER)
PATIENT = "20m"
# The same policies in another file.
PATIENTLY = (PATIENT, "1200s")


class Plan(NamedTuple):
    """How often what happens; rates are chances at each opportunity.

    Attributes:
      workers, letters, schedules, steps: how many; schedules with cancels; steps of the part in which things go wrong.
      crash, switch, freeze: before and after each call of a worker to log and tables.
      focus: calls whose names begin so end in a crash or a freeze far more often.
      commit: what becomes of a commit.
      hiccup: what becomes of a read.
      portion: changelog records that are read at once, at most.
      trouble: something happens between two steps, see `faults`.
      fails: a consumer fails on a retry.
      skewed: clocks differ, and are set. A retry that comes back without headers is known by when it was sent, so all
        consumers keep headers then.
      batch: letters or entries in one transaction, at most.
      late: records of a batch of letters arrive after those that were written next.
    """

    workers: int
    letters: int
    schedules: int
    steps: int
    crash: float
    switch: float
    freeze: float
    focus: str
    commit: float
    hiccup: float
    portion: int
    trouble: float
    fails: float
    skewed: bool
    batch: int
    late: float


def draw_plan(random: Random) -> Plan:
    """A plan. Some runs are without one kind of trouble, so that another is not always drowned by it."""

    def rate(*among: float) -> float:
        return random.choice(among)

    return Plan(
        workers=random.choice((1, 2, 2, 3)),
        letters=random.randint(4, 16),
        schedules=random.choice((0, random.randint(2, 10))),
        steps=random.randint(60, 160),
        crash=rate(0, 0.002, 0.005, 0.01),
        switch=rate(0, 0.02, 0.05),
        freeze=rate(0, 0.002, 0.005),
        focus=random.choice(("sweep", "sweep commit", "intake", "table", "bounds")),
        commit=rate(0, 0.05, 0.15),
        hiccup=rate(0, 0.05, 0.15),
        portion=random.choice((1, 2, 5_000, 5_000)),
        trouble=rate(0.02, 0.06, 0.12),
        fails=rate(0.1, 0.4),
        skewed=random.random() < 0.5,
        batch=random.choice((1, 3, 100)),
        late=rate(0, 0.3),
    )
