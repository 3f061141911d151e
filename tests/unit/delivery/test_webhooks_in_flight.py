"""Calls between sweeps: each due one is made, and what came of it is written down with its null; none twice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.clock import Deadline, pause, wall_ms
from retry.delay_queue import envelopes
from retry.delay_queue.envelopes import Call
from retry.delivery.webhook_calls import advance_calls
from retry.delivery.webhooks_in_flight import Limits, WebhooksInFlight
from retry.errors import CommitInDoubt, TransactionAborted
from retry.http_client.client import Answer, HttpRequest
from retry.kafka.topics import TopicNames
from retry.scheduling.timers import entry_source as source
from retry.telemetry.call_records import Called, read
from retry.testing.kafka import Fault
from tests.support.bench import CHANGELOG, NOW_MS, Bench

NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table", "calls", "parked-timers")
HOST, OTHER = "https://a.example:443", "https://b.example:443"
FINE = Answer(200, None, b"ok", 5)
POLICY = '{"backoff":{"kind":"constant","delay":"10s"},"jitter":"none","max_attempts":2}'


def await_that(what: str, holds: Callable[[], bool]) -> None:
    """Wait as for processes, but these are threads of this one."""
    deadline = Deadline(90.0)
    while not holds():
        assert not deadline.has_passed(), what
        pause(0.0005)


class Hosts:
    """Answers calls when it is told to."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []
        self._open: list[tuple[HttpRequest, Future[Answer]]] = []

    async def call(self, request: HttpRequest) -> Answer:
        answer: Future[Answer] = Future()
        # Whoever waits for it to be open may ask at once which it was.
        self.asked.append(request)
        self._open.append((request, answer))
        return await asyncio.wrap_future(answer)

    def answer(self, answer: Answer = FINE, url: str = "") -> None:
        """Answer all calls that are under way, or those to one URL."""
        for each in [each for each in self._open if url in each[0].url]:
            self._open.remove(each)
            each[1].set_result(answer)


class World:
    """One shard and the calls of its process."""

    def __init__(self, total: int = 100, per_host: int = 10) -> None:
        self.bench, self.hosts, self.told = Bench(), Hosts(), list[Called]()
        self.bench.log.create("calls", 2)
        self.bench.log.create("parked-timers", 1)
        self.holding: dict[str, str] = {}
        self.bench.admission.block = lambda lane, _reason, why, _now: self.holding.update({lane.destination: why})  # type: ignore[attr-defined]
        self.limits = Limits(total, per_host, 1_000)
        self.calls = WebhooksInFlight(self.hosts.call, self.limits, NAMES, self.told.extend, lambda _team, _host: False)

    def restart(self) -> None:
        """Another process takes over; what was under way is forgotten."""
        self.close()
        self.calls = WebhooksInFlight(self.hosts.call, self.limits, NAMES, self.told.extend, lambda _team, _host: False)

    def close(self) -> None:
        self.calls.close()
        self.hosts._open.clear()

    def agrees(self) -> bool:
        """Whether the table is the changelog's fold."""
        self.bench.fold()
        table = self.bench.table
        found = {key for _, key, _ in table.scan_entries(b"", 1_000)} | set(table.list_superseded(1_000))
        return found == self.bench.live().keys()

    def put(self, timer_id: str, due_ms: int = NOW_MS, host: str = HOST, version: int = 1, policy: str = POLICY) -> bytes:
        call = Call(f"{host}/{timer_id}", "POST", timer_id, 1, policy)
        key, entry = source.build_timer_entry(timer_id, "team", host, due_ms, version, b"body", [("X", b"1")], call, b"mark")
        self.bench.write([(key, envelopes.encode(entry))])
        return key

    def cancel(self, timer_id: str, version: int = 1) -> None:
        self.bench.write([source.cancel_row(timer_id, version)])

    def step(self, now_ms: int = NOW_MS) -> int:
        bench = self.bench
        told = len(self.told)
        advance_calls(self.calls, bench.table, bench.writer, CHANGELOG, bench.admission, now_ms, 100)
        return len(self.told) - told

    def under_way(self, count: int) -> None:
        await_that(f"{count} are under way", lambda: self.calls.count() == count == len(self.hosts._open))

    def turn(self, now_ms: int = NOW_MS, answer: Answer = FINE, url: str = "") -> int:
        """Begin what is due, answer it, write that down."""
        self.step(now_ms)
        count = self.calls.count()
        self.under_way(count)
        self.hosts.answer(answer, url)
        await_that("all have ended", lambda: self.calls.count() == len(self.hosts._open))
        return self.step(now_ms)

    def outcomes(self) -> list[Called]:
        return [read(r.value() or b"") for r in self.bench.log.read("calls")]

    def ids(self) -> list[str]:
        return [request.id for request in self.hosts.asked]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_a_due_call_is_made_and_its_null_and_outcome_are_written_together(world: World) -> None:
    world.put("t1", NOW_MS)
    world.put("later", NOW_MS + 1)
    assert world.turn() == 1
    (asked,) = world.hosts.asked
    assert asked == HttpRequest("t1", "POST", f"{HOST}/t1", {"X": "1"}, b"body", 1.0, "team")
    (called,) = world.outcomes()
    assert (called.id, called.decision, called.status, called.attempt, called.body) == ("t1", "delivered", 200, 1, "ok")
    assert world.told == [called]
    assert len(world.bench.live()) == world.bench.table.waiting == 1
    assert world.agrees()


def test_a_failed_call_waits_for_its_next_attempt_and_is_parked_in_the_end(world: World) -> None:
    world.put("t1")
    at_ms = NOW_MS
    for attempt in (1, 2):
        assert world.turn(at_ms, Answer(500, "500", b"no")) == 1
        last = world.outcomes()[-1]
        assert (last.decision, last.attempt, last.error) == ("retry", attempt, "500")
        # This clock does not reach the due times: both attempts may end in one millisecond, and yet the next is due later.
        assert last.next_ms == max(last.at_ms + 10_000, last.due_ms + 1)
        assert world.bench.table.waiting == 1
        assert world.step(last.next_ms - 1) == 0
        assert world.calls.count() == 0
        at_ms = last.next_ms
    assert world.turn(at_ms, Answer(None, "timeout")) == 1
    last = world.outcomes()[-1]
    assert (last.decision, last.reason, last.attempt) == ("parked", "max_attempts", 3)
    assert world.ids() == ["t1"] * 3
    (parked,) = world.bench.log.read("parked-timers")
    assert (parked.key(), parked.value()) == (b"t1", b"body")
    assert ("retry-parked-reason", b"max_attempts") in parked.headers()
    assert world.bench.live() == {}
    assert world.agrees()


def test_a_clock_that_was_set_back_to_the_due_time_loses_nothing(world: World) -> None:
    at_ms = wall_ms() + 10_000
    for timer in range(20):
        # Due when the next attempt would be, if it ends in this very millisecond.
        world.put(f"t{timer}", at_ms + timer)
    assert world.turn(at_ms + 20, Answer(500, "500")) == 10
    assert world.bench.table.waiting == 20
    assert world.agrees()


def test_what_is_gone_is_not_called_again(world: World) -> None:
    world.put("t1")
    world.turn(answer=Answer(410, "410"))
    assert (world.outcomes()[-1].reason, world.bench.live()) == ("gone", {})


def test_a_host_that_asks_to_wait_is_left_alone(world: World) -> None:
    world.put("t1")
    world.turn(answer=Answer(429, "429", b"", 0, 60_000))
    called = world.outcomes()[-1]
    assert called.next_ms == called.at_ms + 60_000
    world.put("t2")
    world.step()
    assert (world.calls.count(), "breaker" in world.holding[HOST]) == (0, True)


def test_what_is_under_way_is_not_begun_again(world: World) -> None:
    world.put("t1")
    for _ in range(5):
        world.step()
    world.under_way(1)
    world.put("t2")
    world.step()
    world.under_way(2)
    assert sorted(world.ids()) == ["t1", "t2"]


def test_a_host_that_hangs_holds_up_its_own_calls_only(world: World) -> None:
    for n in range(30):
        world.put(f"slow{n}")
    world.step()
    world.under_way(10)
    for n in range(30):
        world.put(f"fast{n}", host=OTHER)
    delivered = sum(world.turn(url=OTHER) for _ in range(5))
    assert delivered == 30
    assert len([each for each in world.ids() if each.startswith("slow")]) == 10


def test_many_hosts_that_hang_leave_room_for_one_more() -> None:
    world = World(total=20, per_host=10)
    for n in range(6):
        for m in range(12):
            world.put(f"slow{n}-{m}", host=f"https://slow{n}.example:443")
    world.step()
    world.under_way(world.calls.count())
    assert 12 <= world.calls.count() < 20
    world.put("fast", host=OTHER)
    assert world.turn(url=OTHER) == 1
    world.close()


def test_an_undone_transaction_is_tried_again_without_another_call(world: World) -> None:
    world.put("t1")
    world.step()
    world.under_way(1)
    world.hosts.answer()
    await_that("it has ended", lambda: world.calls.count() == 0)
    world.bench.log.faults.append(Fault.ABORTED)
    with pytest.raises(TransactionAborted):
        world.step()
    assert len(world.bench.live()) == 1
    assert world.step() == 1
    assert (world.ids(), world.bench.live(), len(world.told)) == (["t1"], {}, 1)


@pytest.mark.parametrize("fault", [Fault.DOUBT_COMMITTED, Fault.DOUBT_OPEN])
def test_after_a_commit_in_doubt_what_came_of_a_call_is_written_by_the_next_producer(world: World, fault: Fault) -> None:
    world.put("t1")
    world.step()
    world.under_way(1)
    world.hosts.answer()
    await_that("it has ended", lambda: world.calls.count() == 0)
    world.bench.log.faults.append(fault)
    with pytest.raises(CommitInDoubt):
        world.step()
    world.bench.open()
    world.bench.fold()
    world.step()
    assert (len(world.ids()), world.bench.live(), world.bench.table.waiting) == (1, {}, 0)
    assert len(world.outcomes()) == 1


def test_a_process_that_dies_before_it_has_written_calls_again_under_the_same_id(world: World) -> None:
    world.put("t1")
    world.step()
    world.under_way(1)
    world.hosts.answer()
    world.restart()
    world.bench.open()
    assert world.turn() == 1
    assert world.ids() == ["t1", "t1"]
    assert world.bench.live() == {}


@pytest.mark.parametrize("answer", [FINE, Answer(500, "500")])
def test_a_timer_that_is_ended_while_it_is_called_does_not_come_again(world: World, answer: Answer) -> None:
    world.put("t1")
    world.step()
    world.under_way(1)
    world.cancel("t1")
    world.hosts.answer(answer)
    await_that("it has ended", lambda: world.calls.count() == 0)
    assert world.step() == 0
    assert world.bench.table.waiting == 0
    world.bench.sweep()
    world.bench.fold()
    world.step(NOW_MS + 100_000)
    assert (world.bench.live(), world.calls.count(), world.ids()) == ({}, 0, ["t1"])


def test_an_end_that_is_not_folded_yet_wins_over_the_next_attempt(world: World) -> None:
    world.put("t1")
    world.step()
    world.under_way(1)
    world.bench.write([source.cancel_row("t1", 1)], fold=False)
    world.hosts.answer(Answer(500, "500"))
    await_that("it has ended", lambda: world.calls.count() == 0)
    assert world.step() == 1
    world.bench.fold()
    for _ in range(3):
        world.bench.sweep(NOW_MS)
        world.bench.fold()
    assert world.bench.live() == {}
    assert world.bench.table.waiting == 0
    world.step(NOW_MS + 1_000_000)
    assert world.ids() == ["t1"]


def test_whoever_leaves_begins_no_more_and_waits_for_those_that_end_soon(world: World) -> None:
    world.put("t1")
    world.step()
    world.under_way(1)
    world.put("t2")
    assert world.calls.drain_calls(0.05)
    world.hosts.answer()
    assert world.calls.drain_calls(90.0)
    assert world.step() == 1
    assert (world.ids(), len(world.bench.live())) == (["t1"], 1)
    assert not world.calls.drain_calls(5.0)


def test_paused_calls_are_not_made(world: World) -> None:
    world.put("t1")
    world.bench.admission.closed = {HOST: "paused"}
    world.step()
    assert world.calls.count() == 0
    world.bench.admission.closed = {}
    assert world.turn() == 1


def test_what_the_answer_says_is_cut_for_the_record(world: World) -> None:
    world.put("t1")
    world.turn(answer=Answer(200, None, b"\xff" + b"x" * 5_000))
    assert len(world.outcomes()[0].body) == 1_024


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["fine", "fails", "cancel", "again", "crash"])), max_size=20))
def test_whatever_happens_the_table_is_the_fold_of_the_changelog(happenings: list[tuple[int, str]]) -> None:
    world, version = World(), 1
    now_ms = NOW_MS
    for n, happening in happenings:
        version += 2
        timer_id = f"t{n}"
        if happening == "cancel":
            world.cancel(timer_id, version)
            world.bench.sweep(now_ms)
        elif happening == "crash":
            world.step(now_ms)
            world.under_way(world.calls.count())
            world.hosts.answer()
            world.restart()
            world.bench.open()
        else:
            world.put(timer_id, now_ms, version=version)
            world.bench.sweep(now_ms)
            world.bench.fold()
            world.turn(now_ms, FINE if happening != "fails" else Answer(500, "500"))
            world.bench.fold()
        assert world.agrees()
    for _ in range(5):
        now_ms += 100_000_000_000
        world.bench.sweep(now_ms)
        world.bench.fold()
        world.turn(now_ms)
        world.bench.fold()
    assert world.bench.live() == {}
    world.close()


def test_a_timer_that_its_parking_topic_refuses_is_put_aside_to_be_parked_and_called_no_more(world: World) -> None:
    for timer_id in ("t1", "t2"):
        world.put(timer_id)
    world.bench.log.invalid.add(("parked-timers", b"body"))
    fails = Answer(410, None, b"", 5)
    assert world.turn(answer=fails) == 2
    assert [called.decision for called in world.outcomes()] == ["parked", "parked"]
    assert (world.bench.delivered("parked-timers"), len(world.bench.live()), world.agrees()) == ([], 2, True)
    assert world.turn(NOW_MS + 1_000) == 0
    assert len(world.hosts.asked) == 2
    world.bench.log.invalid.clear()
    assert len(world.bench.sweep(NOW_MS + 1_000).sent) == 2
    parked = world.bench.log.read("parked-timers")
    assert [dict(record.headers() or [])["retry-parked-reason"] for record in parked] == [b"gone", b"gone"]
    assert world.bench.live() == {}
