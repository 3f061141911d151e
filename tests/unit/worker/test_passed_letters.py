"""Whether consumers have passed a step: beyond where topics ended when it was sent, marks of transactions aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from retry import clock
from retry.delivery.movers import ConsumerProgress
from retry.errors import RightMissing
from retry.kafka.offset_ranges import Span
from retry.worker.passed_letters import PassedLetters
from tests.support.process import await_that

PLACE, OTHER = ("orders.retry", 0), ("orders.retry", 1)


class Cluster:
    """Ends of topics, what groups have committed, and where records can be read."""

    def __init__(self) -> None:
        self.named: dict[str, set[str]] = {"billing": {"orders.retry"}, "others": {"others.retry"}}
        self.end = {PLACE: 10, OTHER: 0}
        self.committed: dict[str, dict[tuple[str, int], int]] = {"billing": {PLACE: 4}}
        self.records: set[tuple[str, int, int]] = {("orders.retry", 0, 8)}
        self.refuses = False
        self.letters = PassedLetters(lambda: self.named, self.ends, lambda group: self.committed.get(group, {}), self.readable)

    def ends(self, topics: Iterable[str]) -> Mapping[tuple[str, int], int]:
        wanted = set(topics)
        return {place: end for place, end in self.end.items() if place[0] in wanted}

    def readable(self, spans: list[Span]) -> bool:
        if self.refuses:
            raise RightMissing("read topic orders.retry", "kafka-acls.sh")
        return any(s.topic == t and s.partition == n and s.start <= at < s.stop for s in spans for t, n, at in self.records)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_group_has_passed_what_lay_there_when_that_was_asked_first(cluster: Cluster) -> None:
    look = lambda: cluster.letters.measure_progress(b"a/0", ["orders.retry"])  # noqa: E731
    assert look() == ConsumerProgress(reached=False, silent=[])
    cluster.end[PLACE] = 20
    # The record at 8 is read, and at 9 lies the end of its transaction.
    cluster.committed["billing"][PLACE] = 9
    assert look() == ConsumerProgress(reached=True, silent=[])
    assert cluster.letters.measure_progress(b"a/1", ["orders.retry"]) == ConsumerProgress(reached=True, silent=[])
    cluster.records.add(("orders.retry", 0, 15))
    assert cluster.letters.measure_progress(b"a/1", ["orders.retry"]) == ConsumerProgress(reached=False, silent=[])
    cluster.committed["billing"][PLACE] = 20
    assert cluster.letters.measure_progress(b"a/1", ["orders.retry"]) == ConsumerProgress(reached=True, silent=[])


def test_a_group_that_has_committed_nothing_has_passed_nothing(cluster: Cluster) -> None:
    cluster.committed.clear()
    assert not cluster.letters.measure_progress(b"a/0", ["orders.retry"]).reached
    cluster.records.clear()
    assert cluster.letters.measure_progress(b"a/0", ["orders.retry"]).reached


def test_each_group_that_is_named_must_have_passed(cluster: Cluster) -> None:
    cluster.named["second"] = {"orders.retry"}
    cluster.committed["billing"][PLACE] = 10
    assert not cluster.letters.measure_progress(b"a/0", ["orders.retry"]).reached
    cluster.committed["second"] = {PLACE: 10}
    assert cluster.letters.measure_progress(b"a/0", ["orders.retry"]).reached


def test_topics_without_a_group_and_those_that_may_not_be_read_are_silent(cluster: Cluster) -> None:
    assert cluster.letters.measure_progress(b"a/0", ["slow.retry"]) == ConsumerProgress(reached=True, silent=["slow.retry"])
    cluster.refuses = True
    both = cluster.letters.measure_progress(b"a/1", ["orders.retry", "slow.retry"])
    assert both == ConsumerProgress(reached=True, silent=["orders.retry", "slow.retry"])


def test_whoever_asks_does_not_wait_and_is_told_later(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    ask: Any = lambda: cluster.letters.request_progress(b"a/0", ["orders.retry"])  # noqa: E731
    assert ask() is None
    await_that("it is known", lambda: ask() == ConsumerProgress(reached=False, silent=[]))
    cluster.committed["billing"][PLACE] = 10

    def later() -> bool:
        now_s[0] += 2.0
        return ask() == ConsumerProgress(reached=True, silent=[])

    await_that("it is passed", later)
    cluster.committed.clear()
    assert later(), "what was passed stays so"


def test_what_goes_wrong_is_asked_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    ends, failures = cluster.ends, [TimeoutError("no answer")]

    def failing(topics: Iterable[str]) -> Mapping[tuple[str, int], int]:
        if failures:
            raise failures.pop()
        return ends(topics)

    cluster.letters = PassedLetters(lambda: cluster.named, failing, lambda group: cluster.committed[group], cluster.readable)

    def later() -> bool:
        now_s[0] += 2.0
        return cluster.letters.request_progress(b"a/0", ["orders.retry"]) is not None

    await_that("it is known", later)
    assert failures == []
