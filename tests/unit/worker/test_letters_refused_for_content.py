"""Letters that their topic refuses for what they are: put back, tried by themselves, parked with the reason, or held by name."""

from __future__ import annotations

from typing import Any

import pytest

from retry import clock
from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys
from retry.delay_queue.envelopes import Also, Entry, Named, Recurrence, encode
from retry.delivery.admission import Admission
from retry.delivery.redecide import Redecider
from retry.delivery.sweep import ChangelogPartition
from retry.delivery.transaction_batch import DEFER_MS
from retry.intake.attempts import LineageTopic
from retry.intake.build_entry import EntryBuilder
from retry.kafka.record_limits import RecordLimits
from retry.policies.policy_file import parse
from retry.testing.kafka import MemoryCluster, MemoryLog, MemoryRecord, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable
from retry.worker import worker_status
from retry.worker.shards.joint_sweep import joint_sweep
from retry.worker.shards.restore import ShardContext
from retry.worker.shards.shard import Shard
from tests.support.bench import NOW_MS

CHANGELOG = ChangelogPartition("changelog", 0)
POLICIES = "teams: {shop: {topics: [{dead_letters: orders.DLT, retry_to: retry, park_to: parking%s}]}}"
OLD_MS = 3_600_000


class Opened:
    """Every team and topic may be sent to."""

    topics = ("schedules",)

    def permits_target(self, team: str, destination: str) -> bool:
        return True


class World:
    """One shard that is ready, with a real admission and real policies, over a log in memory."""

    def __init__(self, keys: str = "", told: bool = True) -> None:
        self.log, nobody = MemoryLog(lambda: self.now_ms), None
        self.now_ms = NOW_MS
        for topic in ("changelog", "retry", "parking", "parked", "discarded", "lineage"):
            self.log.create(topic)
        self.log.create("outcomes")
        self.log.create("lineage")
        registry = parse(POLICIES % keys, "policies.yaml", digest="")
        builder = EntryBuilder("changelog", "parked", {})
        through: Any = [Opened()]
        self.admission = Admission(
            registry, {"parked", "discarded"}, lambda _: {}, lambda: 1.0, through,
            record_limits=RecordLimits(self.log.limits if told else lambda _: {}),
        )
        unused: Any = nobody
        redecider = Redecider(registry, builder, LineageTopic("lineage", 1))
        self.shard_context = ShardContext(
            MemoryCluster(self.log, "app", "w"), unused, self.admission, redecider, 100, 1 << 20, discarded="discarded",
        )
        self.writer = MemoryTransactionalProducer(self.log, "sweep")
        self.writer.open()
        self.open()

    def open(self) -> None:
        """Take over from whoever had the shard: with an empty table, and without what that one remembered."""
        unused: Any = None
        self.admission.refused_entries.__init__()  # type: ignore[misc]
        self.shard = Shard(CHANGELOG, MemoryTable(), unused, end_offset=0)
        self.fold()

    def put(
        self, value: bytes, key: bytes | None = b"k", to: str = "retry", timestamp_ms: int | None = None, ordered: bool = False,
        reason: bytes | None = None,
    ) -> bytes:  # fmt: skip
        """A letter that waits, due now; its key."""
        offset, stem = len(self.log.read("changelog")), entry_keys.build_key_stem("orders.DLT", 0)
        if ordered:
            stem = entry_keys.hash_record_key("shop", "orders.DLT", key or b"") + stem
        ours = names.make_retry_headers(
            b"%016x" % offset, b"1", b"orders.DLT/0/%d" % offset, b"%d" % NOW_MS, b"shop/orders.DLT", b"1"
        )
        ours += [(names.PARKED_REASON, reason)] if reason else []
        entry = Entry(to, key, value, [("own", b"1"), *ours], timestamp_ms, "shop", NOW_MS)
        entry_key = entry_keys.build_key(self.now_ms, stem, offset, entry_keys.lane("shop", "orders.DLT", to, ordered))
        self._write(entry_key, entry)
        return entry_key

    def put_named(self, value: bytes, **named: Any) -> bytes:
        """A schedule that waits, due now; its key."""
        name, stem = entry_keys.hash_name("door", "schedules", b"n"), entry_keys.build_key_stem("schedules", 0)
        lane = entry_keys.build_named_lane("door", "schedules", "retry")
        key = entry_keys.build_named_key(self.now_ms, name, 7, stem, 7, lane)
        self._write(key, Named("retry", b"k", value, [], None, "door", **named))
        return key

    def _write(self, key: bytes, entry: Entry) -> None:
        self.log.add_record("changelog", key, encode(entry), partition=0)
        self.fold()

    def fold(self) -> None:
        """Bring the table up to the changelog."""
        table = self.shard.table
        new = [r for r in self.log.read("changelog") if r.offset() >= table.next_offset]
        table.apply_records([(r.key() or b"", r.value()) for r in new], self.log.topics["changelog"][0].end, self.now_ms)

    def sweep(self, later_ms: int = 0) -> list[bytes | None]:
        """Sweep until nothing is sent any more, so much later; the values that were."""
        self.now_ms += later_ms
        sent = []
        for _ in range(8):
            swept = joint_sweep([self.shard], self.writer, self.shard_context, self.now_ms)
            assert not self.shard.progress.failing, self.shard.progress.failing
            self.fold()
            sent += [entry.value for each in swept for entry in each.sent]
        return sent

    def read(self, topic: str) -> list[MemoryRecord]:
        """List what consumers see in a topic."""
        return self.log.read(topic)

    def refused(self) -> dict[str, str]:
        """Read which letters single topics refuse, from health."""
        return worker_status.name_refused_letters(worker_status.list_refused_letters([self.shard], self.admission, self.now_ms))

    def waiting(self) -> dict[bytes, bytes]:
        """The fold of the changelog, which the table agrees with."""
        folded = {r.key() or b"": r.value() for r in self.log.read("changelog")}
        live = {key: value for key, value in folded.items() if value is not None}
        table = self.shard.table
        behind = {key: envelope for _, key, envelope in table.page_behind(b"", 1_000)}
        assert dict(row[1:] for row in table.scan_entries(b"", 1_000)) | behind == live
        return live


def list_headers(record: MemoryRecord) -> dict[str, bytes | None]:
    return dict(record.headers() or [])


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic_s", lambda: 0.0)


@pytest.mark.parametrize("fault", ["no key", "invalid"])
@pytest.mark.parametrize("told", [True, False], ids=["configuration told", "configuration not told"])
def test_what_is_refused_is_put_back_then_parked_with_the_reason_and_all_others_go(fault: str, told: bool) -> None:
    world = World(told=told)
    if fault == "no key":
        world.log.needs_key.add("retry")
    else:
        world.log.invalid.add(("retry", b"bad"))
    values = [b"bad" if n in (3, 11) else b"%d" % n for n in range(20)]
    for value in values:
        world.put(value, key=None if value == b"bad" and fault == "no key" else b"k%s" % value)
    good = [value for value in values if value != b"bad"]
    assert world.sweep() == good
    assert set(world.refused()) == {"orders.DLT/0/3", "orders.DLT/0/11"}
    assert not world.admission.list_blocked(world.now_ms)
    assert world.sweep(DEFER_MS - 1) == []
    assert world.sweep(1) == [b"bad", b"bad"]
    parked = world.read("parking")
    assert [(r.value(), list_headers(r)[names.PARKED_REASON], list_headers(r)[names.SOURCE]) for r in parked] == [
        (b"bad", b"refused", b"orders.DLT/0/3"), (b"bad", b"refused", b"orders.DLT/0/11")
    ]
    word = b"cleanup.policy" if fault == "no key" and told else b"validate record"
    assert all(word in (list_headers(r)[names.PARKED_FAULT] or b"") for r in parked)
    assert [r.value() for r in world.read("retry")] == good
    assert (world.waiting(), world.refused()) == ({}, {})


def test_one_that_its_topic_takes_by_then_goes() -> None:
    world = World()
    world.log.invalid.add(("retry", b"bad"))
    world.put(b"bad")
    assert world.sweep() == []
    world.log.invalid.clear()
    assert world.sweep(DEFER_MS) == [b"bad"]
    assert ([r.value() for r in world.read("retry")], world.read("parking"), world.refused()) == ([b"bad"], [], {})


def test_no_letter_is_parked_for_the_fault_of_another() -> None:
    world = World(told=False)
    world.log.invalid.add(("retry", b"bad"))
    for value in (b"bad", b"good"):
        world.put(value)
    # As if nobody had been told apart in time.
    for key in world.waiting():
        world.admission.refused_entries.note_refusal(key, "retry", "both", NOW_MS - DEFER_MS)
    assert sorted(world.sweep()) == [b"bad", b"good"]
    assert ([r.value() for r in world.read("retry")], [r.value() for r in world.read("parking")]) == ([b"good"], [b"bad"])


def test_what_its_parking_topic_refuses_too_is_held_by_name_until_that_takes_it() -> None:
    world = World()
    world.log.invalid |= {("retry", b"bad"), ("parking", b"bad")}
    world.put(b"bad")
    world.sweep()
    world.sweep(DEFER_MS)
    assert world.sweep(DEFER_MS) == []
    (key,) = world.waiting()
    assert entry_keys.is_held(key)
    assert set(world.refused()) == {"orders.DLT/0/0"}
    assert world.refused()["orders.DLT/0/0"].startswith("parking: ")
    # Nothing is tried again at every sweep, and others go, to be retried or parked.
    end = world.log.topics["changelog"][0].end
    world.sweep(1_000)
    assert world.log.topics["changelog"][0].end == end
    world.put(b"other")
    world.put(b"parks", to="parking", reason=b"max_attempts")
    assert sorted(world.sweep()) == [b"other", b"parks"]
    world.open()
    assert world.sweep() == []
    assert set(world.refused()) == {"orders.DLT/0/0"}
    world.log.invalid.clear()
    assert world.sweep(60_000) == [b"bad"]
    assert list_headers(world.read("parking")[-1])[names.PARKED_REASON] == b"refused"
    assert (world.waiting(), world.refused()) == ({}, {})


def test_a_letter_that_is_to_be_discarded_is_held_and_not_parked() -> None:
    world = World()
    world.log.invalid.add(("discarded", b"bad"))
    world.put(b"bad", to="discarded")
    for _ in range(3):
        assert world.sweep(DEFER_MS) == []
    assert [entry_keys.is_held(key) for key in world.waiting()] == [True]
    world.log.invalid.clear()
    world.sweep(60_000)
    assert ([r.value() for r in world.read("discarded")], world.read("parking")) == ([b"bad"], [])


def test_one_that_is_older_than_its_topic_takes_goes_with_the_time_of_now() -> None:
    world = World()
    world.log.age_ms_max["retry"] = OLD_MS
    world.put(b"old", timestamp_ms=NOW_MS - OLD_MS - 1)
    world.put(b"young", timestamp_ms=NOW_MS - OLD_MS)
    assert world.sweep() == [b"old", b"young"]
    old, young = world.read("retry")
    assert (list_headers(old)["retry-timestamp-ms"], old.timestamp()[1]) == (b"%d" % (NOW_MS - OLD_MS - 1), NOW_MS)
    assert ("retry-timestamp-ms" in list_headers(young), young.timestamp()[1]) == (False, NOW_MS - OLD_MS)
    # In front of what is replaced on every pass, so that it stays.
    assert [name for name, _ in old.headers() or []][:3] == ["own", "retry-timestamp-ms", names.ID]


def test_one_that_is_too_old_is_parked_where_its_policy_says_so_and_the_time_is_kept_there_as_well() -> None:
    world = World(", old_timestamp: park")
    world.log.age_ms_max = {"retry": OLD_MS, "parking": OLD_MS}
    world.put(b"old", timestamp_ms=NOW_MS - 2 * OLD_MS)
    world.put(b"young")
    assert world.sweep() == [b"young"]
    assert world.sweep(DEFER_MS) == [b"old"]
    (parked,) = world.read("parking")
    assert list_headers(parked)[names.PARKED_REASON] == b"refused"
    assert b"message.timestamp.before.max.ms" in (list_headers(parked)[names.PARKED_FAULT] or b"")
    assert list_headers(parked)["retry-timestamp-ms"] == b"%d" % (NOW_MS - 2 * OLD_MS)


def test_a_topic_that_refuses_the_time_of_now_refuses_everything() -> None:
    world = World()
    world.log.now_ms = lambda: world.now_ms + OLD_MS
    world.log.age_ms_max["retry"] = OLD_MS - 1
    world.put(b"v")
    assert world.sweep() == []
    (blocked,) = world.admission.list_blocked(world.now_ms).values()
    assert (blocked.startswith("it refuses"), world.refused()) == (True, {})


def test_an_ordered_letter_leaves_its_place_to_the_next_one_only_once_it_is_parked() -> None:
    world = World(", ordered: true")
    world.log.invalid.add(("retry", b"bad"))
    world.put(b"bad", ordered=True)
    world.put(b"next", ordered=True)
    assert world.sweep() == []
    assert sorted(world.sweep(DEFER_MS)) == [b"bad", b"next"]
    assert ([r.value() for r in world.read("retry")], [r.value() for r in world.read("parking")]) == ([b"next"], [b"bad"])


def test_a_scheduled_message_is_parked_with_what_goes_beside_it() -> None:
    world = World()
    world.log.create("history")
    world.log.invalid.add(("retry", b"bad"))
    world.put_named(b"bad", also=(Also("history", None, b"k", b"done"),))
    world.sweep()
    assert world.refused()["schedules/0/7"].startswith("retry: ")
    # A millisecond later than it was due: of one version that counts which is due last.
    assert [world.sweep(DEFER_MS), world.sweep(1)] == [[], [b"bad"]]
    (parked,) = world.read("parked")
    assert (parked.value(), list_headers(parked)[names.PARKED_REASON]) == (b"bad", b"refused")
    assert [r.value() for r in world.read("history")] == [b"done"]
    assert (world.waiting(), world.refused()) == ({}, {})


def test_one_run_that_is_refused_is_parked_and_the_next_one_comes() -> None:
    world = World()
    world.log.invalid.add(("retry", b"bad"))
    plan = Recurrence(run=0, start_ms=NOW_MS, every_ms=60_000, misfire="once", late_ms=60_000)
    world.put_named(b"bad", plan=plan)
    world.sweep()
    assert world.sweep(DEFER_MS) == [b"bad"]
    (parked,) = world.read("parked")
    assert list_headers(parked)[names.PARKED_REASON] == b"refused"
    (key,) = world.waiting()
    assert entry_keys.due_at_ms(key) == NOW_MS + 60_000
    world.log.invalid.clear()
    assert world.sweep(60_000) == [b"bad"]
    assert [r.value() for r in world.read("retry")] == [b"bad"]
