"""Schedules from the topic through changelog, table and sweep and back, over a log in memory, in any order of steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from retry.intake.batch import BatchResult
from retry.intake.entry_source import QueueLimits
from retry.scheduling import client
from retry.scheduling.messages.entry_source import SchedulesSource
from retry.scheduling.messages.schedule_request import Rules
from retry.testing.kafka import MemoryRecord
from tests.support.bench import NOW_MS, Bench

SCHEDULES, TARGET, HISTORY = "schedules", "online", "history"
PARTITIONS = 3
KEYS = st.sampled_from("ab")
# What brings things about is more frequent than what spoils them.
STEP = st.one_of(
    st.tuples(st.just("schedule"), KEYS, st.integers(-2, 3)),
    st.tuples(st.just("schedule"), KEYS, st.integers(0, 1)),
    st.tuples(st.just("take in and fold"), KEYS, st.integers(1, 4)),
    st.tuples(st.sampled_from(["take in", "fold", "take over", "cancel", "nonsense"]), KEYS, st.integers(1, 4)),
    st.tuples(st.sampled_from(["sweep", "sweep and schedule again"]), KEYS, st.integers(0, 3)),
)


class World:
    """One shard behind the schedules source."""

    def __init__(self) -> None:
        self.bench, self.now_s = Bench(), NOW_MS // 1_000
        for topic, partitions in ((SCHEDULES, PARTITIONS), (TARGET, 2), (HISTORY, 1), ("parked", 1)):
            self.bench.log.create(topic, partitions)
        self.source = SchedulesSource([SCHEDULES], Rules(lambda _: True), HISTORY, "parked", QueueLimits(1, 1 << 20))
        self.read = [0] * PARTITIONS
        # The newest record of each key that the table knows of.
        self.known: dict[bytes, int] = {}
        self.taken: dict[bytes, int] = {}

    def send(self, record: Any) -> None:
        """Write to the schedules topic; the key says where."""
        topic, key, value, headers = record["topic"], record["key"], record["value"], record["headers"]
        self.bench.log.put(topic, key, value, headers, partition=_partition(key))

    def take_in(self, most: int) -> None:
        """Some messages, as one transaction of intake writes them; not folded yet."""
        messages = self.unread()[:most]
        for message in messages:
            self.read[message.partition()] = message.offset() + 1
        result = BatchResult()
        self.source.prepare(messages, self.now_s * 1_000, result)
        assert set(result.entries) <= {0}
        self.bench.write([(row["key"], row["value"]) for row in result.entries[0]], fold=False)
        self.taken |= {m.key() or b"": m.offset() for m in messages if not _is_ours(m)}

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
            assert known[_header(record, "scheduler-key")] == int(record.value() or b""), "it was replaced, and went"
        return sent

    def idle(self) -> bool:
        """Whether all is taken in and nothing waits."""
        return not self.unread() and not self.bench.live()

    def unread(self) -> list[MemoryRecord]:
        """Messages that are not taken in yet."""
        return [m for m in self.bench.log.read(SCHEDULES) if m.offset() >= self.read[m.partition()]]


def _partition(key: bytes) -> int:
    return key[0] % PARTITIONS


def _header(record: MemoryRecord, name: str) -> bytes:
    return dict(record.headers() or [])[name] or b""


def _is_ours(record: MemoryRecord) -> bool:
    return any(name == "scheduler-done" for name, _ in record.headers() or [])


def _schedule(world: World, key: str, in_s: int) -> None:
    # Its value is its offset.
    offset = world.bench.log.topics[SCHEDULES][_partition(key.encode())].end
    at = world.now_s + in_s
    world.send(client.schedule(topic=TARGET, key=b"t" + key.encode(), value=b"%d" % offset, at=at, schedule_id=key))


def _step(world: World, what: str, key: str, number: int) -> None:
    records = {
        "cancel": client.cancel(schedule_id=key),
        "nonsense": {"topic": SCHEDULES, "key": key.encode(), "value": b"no schedule", "headers": []},
    }
    if what == "schedule":
        _schedule(world, key, number)
    elif what in records:
        world.send(records[what])
    elif what == "take over":
        world.bench.open()
    if what.startswith("take in"):
        world.take_in(number)
    if what.endswith("fold"):
        world.fold()
    if what.startswith("sweep"):
        world.now_s += number
        for record in world.sweep():
            if what == "sweep and schedule again":
                _schedule(world, _header(record, "scheduler-key").decode(), 2)


@given(st.lists(STEP, max_size=60))
def test_1_3_to_1_5_the_last_of_each_key_goes_once_with_copy_and_tombstone_whatever_came_when(steps: list[Any]) -> None:
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


def _check(world: World) -> None:
    log = world.bench.log
    sent = Counter((_header(r, "scheduler-key"), int(r.value() or b"")) for r in log.read(TARGET))
    assert set(sent.values()) <= {1}, "sent twice"
    last: dict[bytes, MemoryRecord] = {}
    for record in log.read(SCHEDULES):
        if not _is_ours(record):
            last[record.key() or b""] = record
    for key, record in last.items():
        is_schedule = bool(record.value()) and bool(record.headers())
        assert ((key, record.offset()) in sent) is is_schedule
    copies = Counter((_header(r, "scheduler-key"), int(r.value() or b"")) for r in log.read(HISTORY))
    assert copies == sent
    tombstones = [r for r in log.read(SCHEDULES) if _is_ours(r)]
    assert Counter((r.key() or b"", int(_header(r, "scheduler-done"))) for r in tombstones) == sent
    assert all(r.partition() == _partition(r.key() or b"") and r.value() is None for r in tombstones)
