"""Schedules from the topic through changelog, table and sweep and back, over a log in memory, in any order of steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from retry.delay_queue.entry_keys import CANCEL
from retry.intake.batch import BatchResult
from retry.intake.entry_source import CANCELS_REMEMBERED_MS, QueueLimits, RecordVersions
from retry.scheduling import client
from retry.scheduling.messages.entry_source import SchedulesSource
from retry.scheduling.messages.schedule_request import Rules
from retry.testing.kafka import MemoryRecord
from tests.support.bench import NOW_MS, Bench

SCHEDULES, TARGET, HISTORY = "schedules", "online", "history"
PARTITIONS = 3
KEYS, PLACES = st.sampled_from("ab"), st.integers(0, PARTITIONS - 1)
# What brings things about is more frequent than what spoils them.
STEP = st.one_of(
    st.tuples(st.just("schedule"), KEYS, st.integers(-2, 3), PLACES),
    st.tuples(st.just("schedule"), KEYS, st.integers(0, 1), PLACES),
    st.tuples(st.just("take in and fold"), KEYS, st.integers(1, 4), PLACES),
    st.tuples(st.sampled_from(["take in", "fold", "take over", "cancel", "nonsense"]), KEYS, st.integers(1, 4), PLACES),
    st.tuples(st.sampled_from(["sweep", "sweep and schedule again"]), KEYS, st.integers(0, 3), PLACES),
)


class World:
    """One shard behind the schedules source."""

    def __init__(self) -> None:
        self.bench, self.now_s = Bench(), NOW_MS // 1_000
        for topic, partitions in ((SCHEDULES, PARTITIONS), (TARGET, 2), (HISTORY, 1), ("parked", 1)):
            self.bench.log.create(topic, partitions)
        limits = QueueLimits(1, 1 << 20, RecordVersions())
        self.source = SchedulesSource([SCHEDULES], Rules(lambda _: True), HISTORY, "parked", limits)
        self.written = 0
        self.bench.log.now_ms = lambda: NOW_MS + self.written  # type: ignore[method-assign]
        self.read = [0] * PARTITIONS
        # When the newest record of each key was written that the table knows of, and that was sent.
        self.known: dict[bytes, int] = {}
        self.taken: dict[bytes, int] = {}
        self.sent: dict[bytes, int] = {}

    def send(self, record: Any, partition: int) -> None:
        """Write to any partition of the schedules topic, a millisecond after the record before."""
        self.written += 1
        self.bench.log.add_record(record["topic"], record["key"], record["value"], record["headers"], partition=partition)

    def take_in(self, most: int, partition: int | None = None) -> None:
        """Some messages, as one transaction of intake writes them; not folded yet."""
        messages = [m for m in self.unread() if partition in (None, m.partition())][:most]
        for message in messages:
            self.read[message.partition()] = message.offset() + 1
        result = BatchResult()
        self.source.prepare(messages, self.now_s * 1_000 + self.written, result)
        assert set(result.entries) <= {0}
        self.bench.write([(row["key"], row["value"]) for row in result.entries[0]], fold=False)
        for message in messages:
            if not _is_ours(message):
                key = message.key() or b""
                self.taken[key] = max(self.taken.get(key, 0), message.timestamp()[1])

    def fold(self) -> None:
        """Have the table know all that is in the changelog."""
        self.bench.fold()
        self.known |= self.taken

    def sweep(self) -> list[MemoryRecord]:
        """Send what is due; none of it was replaced as far as the table knows."""
        before, known = len(self.bench.log.read(TARGET)), dict(self.known)
        self.bench.sweep(self.now_s * 1_000)
        sent = self.bench.log.read(TARGET)[before:]
        for record in sent:
            key, written_ms = _header(record, "scheduler-key"), int(record.value() or b"")
            # What is older than what was sent before may go too; nobody remembers that one.
            assert known[key] in (written_ms, self.sent.get(key)), "it was replaced, and went"
            self.sent[key] = max(written_ms, self.sent.get(key, 0))
        return sent

    def idle(self) -> bool:
        """Whether all is taken in and nothing waits; cancels may be remembered still."""
        return not self.unread() and all(key.startswith(CANCEL) for key in self.bench.live())

    def unread(self) -> list[MemoryRecord]:
        """Messages that are not taken in yet."""
        return [m for m in self.bench.log.read(SCHEDULES) if m.offset() >= self.read[m.partition()]]


def _header(record: MemoryRecord, name: str) -> bytes:
    return dict(record.headers() or [])[name] or b""


def _is_ours(record: MemoryRecord) -> bool:
    return any(name == "scheduler-done" for name, _ in record.headers() or [])


def _schedule(world: World, key: str, in_s: int, partition: int) -> None:
    # Its value is when it was written.
    value, at = b"%d" % (NOW_MS + world.written + 1), world.now_s + in_s
    world.send(client.schedule(topic=TARGET, key=b"t" + key.encode(), value=value, at=at, schedule_id=key), partition)


def _step(world: World, what: str, key: str, number: int, partition: int) -> None:
    records = {
        "cancel": client.cancel(schedule_id=key),
        "nonsense": {"topic": SCHEDULES, "key": key.encode(), "value": b"no schedule", "headers": []},
    }
    if what == "schedule":
        _schedule(world, key, number, partition)
    elif what in records:
        world.send(records[what], partition)
    elif what == "take over":
        world.bench.open()
    if what.startswith("take in"):
        world.take_in(number, partition)
    if what.endswith("fold"):
        world.fold()
    if what.startswith("sweep"):
        world.now_s += number
        for record in world.sweep():
            if what == "sweep and schedule again":
                _schedule(world, _header(record, "scheduler-key").decode(), 2, partition)


@given(st.lists(STEP, max_size=60))
@example([("cancel", "a", 1, 2), ("take in and fold", "a", 1, 2)])
@example([("cancel", "a", 1, 0), ("take in", "a", 1, 0)])
def test_the_newest_of_each_key_goes_once_with_copy_and_tombstone_in_whichever_partitions_they_came(steps: list[Any]) -> None:
    world = World()
    for step in steps:
        _step(world, *step)
    for _ in range(200):
        if world.idle():
            break
        world.take_in(100)
        world.fold()
        world.now_s += 10
        world.sweep()
        world.fold()
    assert world.idle(), "something waits for ever"
    _check(world)
    # They were written within a second from now; the table may not know of all of them yet.
    world.fold()
    world.now_s += CANCELS_REMEMBERED_MS // 1_000 + 1
    world.sweep()
    assert not world.bench.live(), "cancels are remembered for ever"


def _check(world: World) -> None:
    log = world.bench.log
    sent = Counter((_header(r, "scheduler-key"), int(r.value() or b"")) for r in log.read(TARGET))
    assert set(sent.values()) <= {1}, "sent twice"
    last: dict[bytes, MemoryRecord] = {}
    for record in sorted(log.read(SCHEDULES), key=lambda record: record.timestamp()[1]):
        if not _is_ours(record):
            last[record.key() or b""] = record
    for key, record in last.items():
        is_schedule = bool(record.value()) and bool(record.headers())
        assert ((key, record.timestamp()[1]) in sent) is is_schedule
    copies = Counter((_header(r, "scheduler-key"), int(r.value() or b"")) for r in log.read(HISTORY))
    assert copies == sent
    tombstones = [r for r in log.read(SCHEDULES) if _is_ours(r)]
    assert all(r.value() is None for r in tombstones)
    places = {(r.partition(), r.offset()): (r.key() or b"", r.timestamp()[1]) for r in log.read(SCHEDULES)}
    assert Counter(places[r.partition(), int(_header(r, "scheduler-done"))] for r in tombstones) == sent
