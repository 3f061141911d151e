"""Schedules that are cancelled and replaced from other partitions, and in the last moment: it counts, or is said not to."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from confluent_kafka import Producer

from tests.conftest import Schedulings
from tests.support.process import WorkerProcess, await_that, let_pass
from tests.support.reading import QUIET
from tests.support.scheduler import Scheduling

pytestmark = pytest.mark.check

HOUR_S = 3_600


def test_a_cancel_and_a_replacement_of_another_partition_count_and_an_older_one_is_told_of(scheduling: Schedulings) -> None:
    """Cancel as with the Go scheduler, whose store is by id: partitioners differ, and partitions are added."""
    s = scheduling(3)
    instance = s.instance()
    s.operate("pause", "--all")
    now = time.time()
    for id_ in ("cancelled", "replaced", "kept"):
        s.schedule(id_, now + 4, partition=0, value=b"old")
    s.flush()
    await_that("all wait", lambda: s.events(instance)["planned"] == 3)
    # The first of its partition: nothing shows that its clock is wrong.
    s.cancel("kept", partition=2, timestamp=int((now - HOUR_S) * 1_000))
    s.cancel("cancelled", partition=1)
    s.schedule("replaced", now + 4, partition=2, value=b"new")
    s.flush()
    await_that("changes are taken in", lambda: s.events(instance)["deleted"] == 2)
    s.operate("resume", "--all")
    found = s.await_sent(2)
    await_that("tombstones are read back", lambda: s.events(instance)["deleted"] == 4)
    assert Counter((r.header("scheduler-key"), r.value) for r in found) == {("replaced", b"new"): 1, ("kept", b"old"): 1}
    assert s.ask(instance, "/schedules") == []
    assert s.disregarded(instance) == {"ended_elsewhere": 2, "older_cancel": 1}
    assert "has no effect: by its timestamp it is older than" in instance.log()
    # What the topic has from before is not taken in again, and nothing is wrong with the changelog while cancels are remembered.
    instance.terminate()
    s.start(instance)
    s.schedule("last", time.time())
    s.flush()
    assert len(s.await_sent(3)) == 3
    s.assert_verified(instance)


def in_the_last_moment(s: Scheduling, count: int) -> list[str]:
    """Schedule many for one second, and cancel each tenth some seconds before, from any partition; what was cancelled."""
    due = int(time.time()) + 12
    for n in range(count):
        s.schedule(f"s{n:05}", due, partition=n % s.partitions)
    s.flush()
    cancelled = [f"s{n:05}" for n in range(0, count, 10)]
    while time.time() < due - 3:
        # Others come in all the time.
        s.schedule(f"more-{time.time()}", due + HOUR_S)
        let_pass(0.005)
    for n, id_ in enumerate(cancelled):
        s.cancel(id_, partition=n % s.partitions)
    s.flush()
    return cancelled


def assert_followed_or_told(s: Scheduling, instance: WorkerProcess, cancelled: list[str], count: int) -> None:
    """Check that what was cancelled was not sent, or that the instance says of as many that it was too late."""
    others = count - len(cancelled)
    await_that("the others were sent", lambda: len({r.key for r in s.sent()} - {b.encode() for b in cancelled}) == others)
    await_that("all is taken in", lambda: s.events(instance)["deleted"] >= len(cancelled) + len(s.sent()))
    sent = Counter(r.key for r in s.sent())
    assert set(sent.values()) == {1}
    all_the_same = [id_ for id_ in cancelled if id_.encode() in sent]
    told = s.disregarded(instance)
    assert told.get("late_cancel", 0) == len(all_the_same)
    assert bool(all_the_same) == ("taken in after that had been sent" in instance.log())
    print(f"{len(all_the_same)} of {len(cancelled)} cancels were too late, {told}")


def test_a_cancel_seconds_before_the_due_time_of_thousands_counts_or_is_told_of(scheduling: Schedulings) -> None:
    s = scheduling(3)
    instance = s.instance()
    assert_followed_or_told(s, instance, in_the_last_moment(s, 4_000), 4_000)


@pytest.mark.fault("cancels lie behind a transaction that somebody leaves open until the due time is over")
def test_cancels_that_nobody_could_read_in_time_are_all_told_of(scheduling: Schedulings) -> None:
    s = scheduling(3)
    instance = s.instance()
    due = int(time.time()) + 8
    ids = [f"s{n:03}" for n in range(90)]
    for n, id_ in enumerate(ids):
        s.schedule(id_, due, partition=n % 3)
    s.flush()
    await_that("all wait", lambda: s.events(instance)["planned"] == len(ids))
    config = {"bootstrap.servers": s.bootstrap_servers, "transactional.id": f"{s.id}-theirs", "logger": QUIET}
    theirs = Producer(config)
    theirs.init_transactions(60)
    theirs.begin_transaction()
    theirs.produce(s.schedules, key=b"theirs", value=None, partition=1)
    theirs.flush()
    cancelled = ids[:30]
    for id_ in cancelled:
        s.cancel(id_, partition=1)
    s.flush()
    assert time.time() < due, "the machine is too slow for this test"
    s.await_sent(len(ids))
    theirs.abort_transaction()
    await_that("all are told of", lambda: s.disregarded(instance) == {"late_cancel": 30.0})
    assert_followed_or_told(s, instance, cancelled, len(ids))
