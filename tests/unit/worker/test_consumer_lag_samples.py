"""Samples of committed offsets: what has changed is written, what fails is counted and comes again, and all is bounded."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

import pytest

from retry import clock
from retry.errors import RecordUnwritten
from retry.kafka.interface import Partition
from retry.process.periodic import PeriodicTask, PeriodicTasks
from retry.telemetry.offset_records import KEY, Position, read
from retry.worker import consumer_lag_samples
from retry.worker.consumer_lag_samples import LagSamples, choose_shard

GROUPS = {"shop": {"orders.retry"}, "bank": {"pay.retry", "pay.slow"}}


class Cluster:
    """The offsets that groups have committed, and what is written: both may fail."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[Partition, int]] = {
            "shop": {("orders.retry", 0): 5, ("orders.retry", 1): 0, ("orders", 0): 99}, "bank": {("pay.slow", 0): 7},
        }  # fmt: skip
        self.failing: dict[str, str] = {}
        self.refusing = False
        self.written: list[Position] = []
        self.told: list[tuple[int, int]] = []
        self.groups: dict[str, set[str]] = dict(GROUPS)
        self.asked: list[str] = []
        self.ended: dict[str, dict[int, int]] = {}

    def ends(self, topics: set[str]) -> dict[str, dict[int, int]]:
        return {topic: dict(of) for topic, of in self.ended.items() if topic in topics}

    def ask(self, groups: Iterable[str], _wait_s: float) -> tuple[dict[str, dict[Partition, int]], dict[str, str]]:
        self.asked = list(groups)
        return {g: self.committed.get(g, {}) for g in self.asked if g not in self.failing}, self.failing

    def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> Future[int]:
        done: Future[int] = Future()
        if self.refusing:
            done.set_exception(RecordUnwritten("no"))
            return done
        told = read(value or b"")
        assert (topic, partition, key) == ("outcomes", choose_shard(told.group, 4), KEY)
        assert (told.v, told.kind) == (1, "position")
        self.written.append(told)
        done.set_result(0)
        return done

    def positions(self) -> LagSamples:
        tell = lambda *told: self.told.append(told)  # noqa: E731
        return LagSamples(lambda: self.groups, self.ends, self.ask, lambda: self, "outcomes", 4, tell)


def list_samples(cluster: Cluster) -> list[tuple[str, str, int, int]]:
    found = [(p.group, p.topic, p.partition, p.offset) for p in cluster.written]
    cluster.written.clear()
    return sorted(found)


def test_only_what_is_read_of_retries_is_written_and_only_when_it_changed() -> None:
    cluster = Cluster()
    sampled = cluster.positions()
    sampled.sample_groups()
    assert list_samples(cluster) == [("bank", "pay.slow", 0, 7), ("shop", "orders.retry", 0, 5), ("shop", "orders.retry", 1, 0)]
    sampled.sample_groups()
    cluster.committed["shop"]["orders.retry", 0] = 6
    sampled.sample_groups()
    assert list_samples(cluster) == [("shop", "orders.retry", 0, 6)]
    # A group that was reset is told of, too.
    cluster.committed["shop"]["orders.retry", 0] = 2
    sampled.sample_groups()
    assert list_samples(cluster) == [("shop", "orders.retry", 0, 2)]
    assert cluster.told == [(3, 0), (0, 0), (1, 0), (1, 0)]


def test_what_cannot_be_asked_or_written_is_counted_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    cluster = Cluster()
    sampled = cluster.positions()
    cluster.failing = {"bank": "no answer in time"}
    sampled.sample_groups()
    now_s[0] = 130.0
    assert (len(list_samples(cluster)), cluster.told.pop(), sampled.lag_s()) == (2, (2, 1), 30.0)
    sampled.sample_groups()
    # Whoever was not sampled for longest is asked first.
    cluster.failing, cluster.refusing = {}, True
    cluster.committed["shop"]["orders.retry", 1] = 1
    sampled.sample_groups()
    assert (list_samples(cluster), cluster.told[-1], cluster.asked, sampled.lag_s()) == ([], (0, 2), ["bank", "shop"], 30.0)
    cluster.refusing = False
    sampled.sample_groups()
    assert (len(list_samples(cluster)), cluster.told[-1], sampled.lag_s()) == (2, (2, 0), 0.0)


def test_a_group_that_is_given_up_is_forgotten() -> None:
    cluster = Cluster()
    sampled = cluster.positions()
    sampled.sample_groups()
    cluster.groups = {}
    sampled.sample_groups()
    assert (cluster.asked, sampled.lag_s()) == ([], 0.0)
    cluster.groups = dict(GROUPS)
    list_samples(cluster)
    sampled.sample_groups()
    assert len(list_samples(cluster)) == 3


def test_one_round_is_bounded_and_the_rest_comes_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_lag_samples, "_GROUPS_MAX", 3)
    monkeypatch.setattr(consumer_lag_samples, "_SAMPLES_MAX", 2)
    cluster = Cluster()
    cluster.groups = {f"g{n}": {"t"} for n in range(5)}
    cluster.committed = {f"g{n}": {("t", 0): n} for n in range(5)}
    sampled = cluster.positions()
    for _ in range(4):
        sampled.sample_groups()
    assert {place[0] for place in list_samples(cluster)} == set(cluster.groups)
    assert max(written for written, _ in cluster.told) == 2


def list_passed(cluster: Cluster) -> list[tuple[str, int | None]]:
    found = [(p.group, p.passed_ms) for p in cluster.written]
    cluster.written.clear()
    return found


def test_up_to_when_all_of_a_topic_is_passed_is_written_once_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = [100_000]
    monkeypatch.setattr(clock, "wall_ms", lambda: now_ms[0])
    cluster = Cluster()
    cluster.groups = {"shop": {"orders.retry"}}
    cluster.ended = {"orders.retry": {0: 6, 1: 0}, "pay.retry": {0: 1}}
    sampled = cluster.positions()

    def look(at_ms: int) -> list[tuple[str, int | None]]:
        now_ms[0] = at_ms
        sampled.sample_groups()
        return list_passed(cluster)

    assert look(100_000) == [("shop", None), ("shop", None)], "one record of partition 0 is not read"
    cluster.committed["shop"]["orders.retry", 0] = 6
    cluster.ended["orders.retry"][1] = 9
    assert look(110_000) == [("shop", 95_000)], "what lay there at the look before"
    cluster.committed["shop"]["orders.retry", 1] = 9
    assert look(120_000) == [("shop", 115_000)]
    assert look(130_000) == [], "what has been there since 110 s is told in full"
    cluster.refusing, cluster.ended["orders.retry"] = True, {0: 6, 1: 12}
    cluster.committed["shop"]["orders.retry", 1] = 12
    assert look(140_000) == []
    cluster.refusing = False
    assert look(150_000) == [("shop", 145_000)], "what was not written comes again"
    assert look(160_000) == []
    cluster.ended = {}
    cluster.committed["shop"]["orders.retry", 1] = 13
    assert look(170_000) == [("shop", None)], "nobody says where it ends"


def test_a_look_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    had: list[str] = []

    def fails() -> None:
        had.append("fails")
        raise RuntimeError("oh")

    def closes() -> None:
        had.append("closes")
        if len(had) > 6:
            rounds.close()

    rounds = PeriodicTasks([PeriodicTask(0.001, fails), PeriodicTask(0.001, closes)])
    rounds.run()
    assert had.count("fails") >= 2
    assert "a look failed" in caplog.text
