"""Runs of workers over a log in memory, with faults at every step: every promise is kept in each of ten thousand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from retry.worker.shards import assignment, restore
from tests.simulation.ledger import Violation
from tests.simulation.pool import Total, run_all
from tests.simulation.run import run
from tests.support.process import ROOT

# How many runs `make test` has, `make test` and `make check` together, and all sizes together.
FIRST, EARLY, ALL = 300, 2_000, 10_000
SPANS = [
    (0, FIRST),
    pytest.param(FIRST, EARLY - FIRST, marks=pytest.mark.check),
    pytest.param(EARLY, ALL - EARLY, marks=pytest.mark.slow),
]
# What must have gone wrong in so many runs, and how often at least in a thousand of them.
FAULTS = {
    "crash": 100, "freeze": 100, "killed": 100, "stopped": 50, "long outage": 50, "session ended": 100, "rebalance": 50,
    "overtaken in a step": 100, "transaction timed out": 20, "reading begun": 500, "producer not opened": 20,
    "client goes back": 100, "offset lost": 20, "offset too large": 20, "offset set back": 20,
    "commit aborted": 10, "commit late": 10, "commit doubt open": 10, "commit doubt committed": 10, "commit doubt late": 10,
    "follower reads again": 20, "follower reads little": 20, "follower reads nothing": 20, "member reads little": 20,
    "compaction": 50, "deletes expire": 50, "log start moves": 20, "changelog copied": 20, "time passes": 50,
    "table copied": 20, "old table put back": 5, "stale table put back": 5, "table lost": 20, "table corrupt": 20,
    "table not trusted": 20, "table wiped by its shard": 20, "clock set": 20, "topic closed": 20, "rehearsal": 20,
    "topic leaderless": 20, "nothing arrives": 50, "written before a commit": 200, "gathered": 60,
    "undone with another": 50, "records late": 500,
    "transaction left open": 50, "pause": 50, "pause that ends": 25, "reschedule": 50, "schedule": 200,
    "schedule that recurs": 100, "cancel": 100, "null that cancels": 350, "cancelled": 25, "fired": 500, "came back": 50,
    "came back without headers": 20, "steps judged": 200, "letters sent in steps": 30, "failed again in a ramp": 15,
    "ramp held, and resumed": 20, "letter of a topic that is made anew": 400, "action without a head": 80,
    "action held": 400, "action cancelled": 200, "held as incomplete, by a worker": 80, "held, by a worker": 10,
    "policy file changed": 100, "held for its policies, by a worker": 10,
    "key changed": 500, "key lost": 500, "key found": 500, "entry held": 30,
    "topic refuses a letter": 100, "topic takes none without a key": 50, "parked as refused": 60, "entry forged": 30,
    "producer that compresses": 50, "ends not told": 50, "moved to another shard": 5, "block put": 300, "block exploded": 80,
}  # fmt: skip
# What operators must have had done in so many runs.
DONE = {
    "retry done": 35, "retry done, returned": 90, "redirect done": 3, "redirect done, returned": 15, "park done": 20,
    "discard done": 35, "discard done, returned": 45, "edit done": 4, "edit done, returned": 25,
    "patch done": 20, "patch done, returned": 40,
    "undo done": 3, "erase done": 30, "erase done, returned": 40, "nothing done: gone": 500, "nothing done: returned": 100,
    "nothing done: changed": 25, "nothing done: cancelled": 200, "nothing done: not_allowed": 40,
}  # fmt: skip
# Where a worker must have ended in so many runs: before and after each step.
STEPS = (
    "intake open", "intake begin", "intake write", "intake read to", "intake commit",
    "sweep open", "sweep begin", "sweep publish", "sweep write", "sweep read to", "sweep commit",
    "table open", "table fold", "table forget", "bounds", "follower read", "member read",
)  # fmt: skip
POINTS = {f"{step}, {when}" for step in STEPS for when in ("before", "after")}


# Eight thousand runs took half an hour where other tests had most of both cores.
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("first", "count"), SPANS)
def test_every_promise_is_kept_in_every_run(first: int, count: int) -> None:
    total = run_all(first, count)
    print(total.describe())
    failed = [f"python -m tests.simulation --seed {n} --trace   # {what}" for n, what in sorted(total.problems.items())]
    assert not failed, "\n".join(failed[:10])
    assert too_rare(total) == {}
    # A few hundred runs do not come to the rarest of them.
    assert count == FIRST or total.crashed.keys() >= POINTS, f"nobody ended at {sorted(POINTS - total.crashed.keys())}"


def too_rare(total: Total) -> dict[str, int]:
    """List what went wrong so seldom that the runs say little of it."""
    wanted = {**FAULTS, **DONE}.items()
    return {kind: total.happened[kind] for kind, least in wanted if total.happened[kind] < least * total.seeds // 1_000}


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 100), marks=pytest.mark.check)], ids=str)
def test_every_promise_is_kept_where_each_shard_is_restored_in_its_turn(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "MANY", 0)
    monkeypatch.setattr(restore, "_BULK_RECORDS", 0)
    failed = {seed: result.problem for seed in seeds if (result := run(seed)).problem}
    assert failed == {}


def test_a_seed_always_goes_the_same_way() -> None:
    first, second = (run(seed=11, tell=True) for _ in range(2))
    assert second == first
    assert len(first.trace) > 50


def read_trace(seed: int, hash_seed: str) -> list[str]:
    """Read the trace of a seed that runs in a process of its own."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True).stdout.splitlines()


def test_a_seed_goes_the_same_way_in_each_process() -> None:
    # In this one a worker asks about several topics at once: the order of a set of names is another in each process.
    assert read_trace(18, "1") == read_trace(18, "2")


def test_a_seed_goes_the_same_way_behind_others() -> None:
    # In this one it matters which shard is swept first of all: what is numbered over all runs must not decide that.
    run(11)
    assert run(22, tell=True).trace == read_trace(22, "1")[:-1]


def test_a_broken_promise_is_caught_by_nobody() -> None:
    assert not issubclass(Violation, Exception)
