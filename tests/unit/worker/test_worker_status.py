"""What a worker says of itself: now and then, at once where a breaker changes, and in the end."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from retry import clock
from retry.delivery.circuit_breakers import TargetCircuitBreakers
from retry.errors import RecordUnwritten
from retry.policies.limits import CircuitBreakerLimits
from retry.telemetry.worker_records import BreakerRecord, RefusedRecord, WorkerRecord, read
from retry.worker.worker_status import EVERY_S, WorkerStatus

LIMITS = CircuitBreakerLimits(failures=2, within_ms=60_000, open_for_ms=10_000)


class Told:
    """The records that were written, and a worker's parts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(clock, "wall_ms", lambda: int(self.now_s * 1_000))
        monkeypatch.setattr(clock, "monotonic_s", lambda: self.now_s)
        self.breakers = TargetCircuitBreakers({"a.retry": LIMITS})
        self.partitions: int | None = 1
        self.refusal: RecordUnwritten | None = None
        self.written: list[WorkerRecord] = []
        self.refused = list[RefusedRecord]()
        self.status = WorkerStatus(
            "w1", lambda: [0, 3], self._breakers, lambda _: self.refused, lambda: self, "notes", lambda: self.partitions
        )

    def _breakers(self, now_ms: int) -> list[BreakerRecord]:
        return [BreakerRecord(*each) for each in self.breakers.not_closed(now_ms)]

    def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> Future[int]:
        assert (topic, partition, key) == ("notes", 0, b"worker/w1")
        self.written.append(read(value or b""))
        done: Future[int] = Future()
        done.set_exception(self.refusal) if self.refusal else done.set_result(0)
        return done

    def look(self, later_s: float = 0.0) -> list[WorkerRecord]:
        """List what is said at a look so long after the last one."""
        self.now_s += later_s
        self.written.clear()
        self.status.publish_status()
        return list(self.written)


@pytest.fixture
def told_status(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def test_it_is_said_now_and_then_and_at_once_where_a_breaker_changes(told_status: Told) -> None:
    (first,) = told_status.look()
    assert (first.began_ms, first.at_ms, first.shards, first.breakers, first.ended) == (1_000_000, 1_000_000, [0, 3], [], False)
    assert first.host and first.every_ms == EVERY_S * 1_000
    assert told_status.look(1) == []
    told_status.breakers.note_returned_letters("a.retry", 2, 1_002_000)
    (opened,) = told_status.look(1)
    why = "its breaker is open: 2 letters came back within 60000 ms"
    assert opened.breakers == [BreakerRecord("a.retry", "open", why, 1_002_000)]
    assert told_status.look(1) == []
    (half_open,) = told_status.look(10)
    assert half_open.breakers == [BreakerRecord("a.retry", "half-open", why, 1_002_000)], "since it was tripped first"
    told_status.breakers.admit_to_target("a.retry", 1_013_000)
    told_status.breakers.note_returned_letters("a.retry", 2, 1_013_000)
    (again,) = told_status.look(1)
    assert (again.breakers[0].state, again.breakers[0].since_ms) == ("open", 1_002_000)
    (later,) = told_status.look(EVERY_S)
    assert later.at_ms == int(told_status.now_s * 1_000)


def test_in_the_end_it_says_so_and_nothing_after_it(told_status: Told) -> None:
    told_status.look()
    told_status.written.clear()
    told_status.status.report_end()
    (last,) = told_status.written
    assert last.ended
    assert told_status.look(2 * EVERY_S) == []


def test_a_topic_that_is_missing_is_looked_for_again_and_what_is_refused_is_told_once(
    told_status: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told_status.partitions = None
    assert told_status.look() == []
    told_status.status.report_end()
    assert told_status.written == []
    told_status.partitions = 1
    assert told_status.look(30) == [], "it is asked for once a minute"
    told_status.refusal = RecordUnwritten("no right to write topic notes")
    assert len(told_status.look(30)) == 1
    for _ in range(3):
        told_status.look(EVERY_S)
    told_once = "consoles are not told of this worker: no right to write topic notes"
    assert [record.message for record in caplog.records] == [told_once]


def test_a_letter_that_its_topic_refuses_is_named_at_once_and_until_it_goes(told_status: Told) -> None:
    told_status.look()
    told_status.refused = [RefusedRecord("orders.DLT/0/7", "orders.retry", "it has no key", 1_001_000)]
    (said,) = told_status.look(1)
    assert said.refused == told_status.refused
    assert told_status.look(1) == []
    told_status.refused = []
    (said,) = told_status.look(1)
    assert said.refused == []
