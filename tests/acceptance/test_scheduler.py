"""`retry scheduler` as users of the Go kafka-message-scheduler know theirs; ids of acceptance items stand in the names."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import pytest

from retry.clock import Deadline, monotonic_s
from retry.kafka import topics
from retry.kafka.local_broker import free_port
from retry.scheduling.messages.embedded import Runner
from tests.bench.machine import rss_mb
from tests.conftest import Schedulings
from tests.support.process import await_that
from tests.support.reading import Tail
from tests.support.scheduler import COMPACTED

pytestmark = pytest.mark.check

# Of a busy machine. Theirs left what was read late until the input fell silent.
_IN_TIME_S = 120.0


def test_1_1_to_1_5_and_1_25_a_schedule_is_sent_with_a_copy_and_a_tombstone_in_its_own_partition(scheduling: Schedulings) -> None:
    s = scheduling()
    instance = s.instance()
    # Held until all of them were shown, however long that takes.
    s.operate("pause", "--all")
    at = int(time.time()) + 4
    # Partitions that no partitioner would choose for all of them: the open bug 53 of the Go scheduler.
    for n in range(6):
        s.schedule(f"id-{n}", at, key=b"target-%d" % n, partition=n % 3, headers=[("mine", b"%d" % n), ("null", None)])
    s.flush()
    await_that("all wait", lambda: s.events(instance)["planned"] == 6)
    # Counted when they are taken in, shown when they are folded, a moment later.
    all_of_them = {f"id-{n}": at for n in range(6)}
    await_that("all are shown", lambda: {each["id"]: each["epoch"] for each in s.ask(instance, "/schedules")} == all_of_them)
    s.operate("resume", "--all")
    found = s.await_sent(6)
    assert Counter(record.key for record in found) == {b"target-%d" % n: 1 for n in range(6)}
    schedules = {r.key: r for r in s.read(s.schedules) if r.value is not None}
    for record in found:
        n = int(record.value[-1:])
        original = schedules[b"id-%d" % n]
        assert record.headers == [
            ("mine", b"%d" % n), ("null", None), ("scheduler-timestamp", b"%d" % (original.timestamp_ms // 1_000)),
            ("scheduler-key", b"id-%d" % n), ("scheduler-topic", s.schedules.encode()),
        ]  # fmt: skip
        assert record.timestamp_ms >= at * 1_000
    copies = {record.key: record for record in s.read(s.history)}
    assert {key: copy.value for key, copy in copies.items()} == {record.key: record.value for record in found}
    assert all(copies[record.key].headers[: len(record.headers)] == record.headers for record in found)
    tombstones = [r for r in s.read(s.schedules) if r.value is None]
    assert sorted((r.key, r.partition) for r in tombstones) == sorted((b"id-%d" % n, n % 3) for n in range(6))
    # Whoever reads what was sent may be sooner than the process that sent it, which counts and forgets it then.
    counts = {"planned": 6, "triggered": 6, "deleted": 6, "missed": 0, "invalid": 0, "other": 0}
    await_that("tombstones are read back", lambda: s.events(instance) == counts)
    await_that("none is shown", lambda: s.ask(instance, "/schedules") == [])
    assert {each["id"] for each in s.ask(instance, "/history/schedules")} == {f"id-{n}" for n in range(6)}
    # Read back, and read again after a restart, nothing is sent twice: its open bug 44.
    instance.terminate()
    s.start(instance)
    s.schedule("one more", time.time())
    s.flush()
    s.await_sent(7)
    assert len(s.sent()) == 7
    s.assert_verified(instance)


@pytest.mark.essential
def test_1_3_the_same_key_again_is_an_update_and_a_null_cancels(scheduling: Schedulings) -> None:
    s = scheduling()
    instance = s.instance()
    # Held until everything has been taken in, however long that takes: nothing may go before it is changed.
    s.operate("pause", "--all")
    now = int(time.time())
    for id_, at, value in (("later", now + 3, b"old"), ("earlier", now + 60, b"old"), ("cancelled", now + 3, b"x")):
        s.schedule(id_, at, value=value)
    s.flush()
    await_that("all wait", lambda: s.events(instance)["planned"] == 3)
    s.schedule("later", now + 6, value=b"new")
    s.schedule("earlier", now + 4, value=b"new")
    s.cancel("cancelled")
    s.schedule("last", now + 7)
    s.flush()
    await_that("all are changed", lambda: (s.events(instance)["planned"], s.events(instance)["deleted"]) == (6, 1))
    s.operate("resume", "--all")
    found = s.await_sent(3)
    assert {record.key: record.value for record in found} == {b"earlier": b"new", b"later": b"new", b"last": b"last"}
    due = {b"earlier": now + 4, b"later": now + 6, b"last": now + 7}
    assert all(record.timestamp_ms >= due[record.key] * 1_000 for record in found)
    await_that("nothing waits", lambda: s.ask(instance, "/schedules") == [])
    assert len(s.sent()) == 3


@pytest.mark.fault("a consumer schedules the same key again the moment it receives it")
def test_1_24_a_key_that_is_scheduled_again_on_receipt_is_never_lost(scheduling: Schedulings) -> None:
    s, keys = scheduling(), 400
    s.instance()
    at = int(time.time()) + 6
    for n in range(keys):
        s.schedule(f"k{n}", at + n % 4)
    s.flush()
    tail, rounds = Tail(s.bootstrap_servers, [s.target], "scheduler-key"), Counter[bytes | None]()

    def all_came_twice() -> bool:
        for record in tail.read():
            rounds[record.key] += 1
            if rounds[record.key] == 1:
                s.schedule((record.key or b"").decode(), time.time() + 1)
        return len(rounds) == keys and min(rounds.values()) >= 2

    await_that("each came twice", all_came_twice)
    s.flush()
    tail.close()
    assert Counter(record.key for record in s.sent()) == {b"k%d" % n: 2 for n in range(keys)}


@pytest.mark.fault("kill -9 in the middle of firing")
@pytest.mark.slow
def test_1_8_kill_9_in_mid_fire_loses_nothing_and_sends_nothing_twice(scheduling: Schedulings) -> None:
    s, held, keys = scheduling(4), 12_000, 15_000
    instance = s.instance(RETRY_BATCH_RECORDS="100")
    # Until all have been taken in, however long that takes.
    s.operate("pause", "--all")
    for n in range(held):
        s.schedule(f"k{n}", time.time(), value=b"x" * 300)
    s.flush()
    await_that("all wait", lambda: s.events(instance)["planned"] == held)
    tail = Tail(s.bootstrap_servers, [s.target], "scheduler-key")
    s.operate("resume", "--all")
    tail.await_seen(held // 4)
    # However fast it is, there is something to fire when it is killed.
    for n in range(held, keys):
        s.schedule(f"k{n}", time.time(), value=b"x" * 300)
    s.flush()
    instance.kill()
    s.start(instance)
    tail.await_seen(keys)
    tail.close()
    for topic in (s.target, s.history):
        found = Counter(record.header("scheduler-key") for record in s.read(topic))
        assert len(found) == keys
        assert set(found.values()) == {1}
    tombstones = Counter(record.key for record in s.read(s.schedules) if record.value is None)
    assert len(tombstones) == keys
    assert set(tombstones.values()) == {1}
    s.assert_verified(instance)


@pytest.mark.slow
def test_1_7_and_1_12_after_downtime_missed_ones_go_first_and_what_was_cancelled_does_not(scheduling: Schedulings) -> None:
    # In one shard, since each shard goes by its own order.
    s = scheduling(1, RETRY_SHARDS="1")
    instance = s.instance()
    # Held until it has ended, however long that takes.
    s.operate("pause", "--all")
    now = int(time.time())
    s.schedule("taken in", now + 15)
    s.schedule("taken in, cancelled", now + 15)
    s.flush()
    await_that("both wait", lambda: s.events(instance)["planned"] == 2)
    instance.terminate()
    s.operate("resume", "--all")
    s.cancel("taken in, cancelled")
    s.schedule("new", now + 14)
    s.schedule("new, cancelled", now + 13)
    s.schedule("new, moved", now + 13, value=b"old")
    # So much that it is read in several batches, with the end of the story in the last of them.
    for n in range(6_000):
        s.schedule(f"far-{n}", now + 5_000)
    s.cancel("new, cancelled")
    s.schedule("new, moved", now + 16)
    s.flush()
    await_that("all is due", lambda: time.time() > now + 17)
    s.start(instance)
    s.schedule("live", time.time())
    s.flush()
    found = [record.header("scheduler-key") for record in s.await_sent(4)]
    assert found == ["new", "taken in", "new, moved", "live"]
    await_that("three are told of as missed", lambda: s.events(instance)["missed"] == 3)


def test_probes_of_the_go_schedulers_table(scheduling: Schedulings) -> None:
    s = scheduling()
    # No compacted topic takes a record without a key.
    s.create({f"{s.id}.plain": {}})
    s.environ["SCHEDULES_TOPICS"] = f"{s.schedules},{s.id}.plain"
    instance = s.instance()
    now = int(time.time())
    epoch, to = "scheduler-epoch", ("scheduler-target-topic", s.target.encode())

    def send_schedule(id_: str, *headers: tuple[str, bytes], value: bytes = b"x") -> None:
        s.send(topic=s.schedules, key=id_.encode(), value=value, headers=list(headers))

    send_schedule("past5", (epoch, b"%d" % (now - 5)), to, ("scheduler-target-key", b"past5"))
    send_schedule("now", (epoch, b"%d" % now), to, ("scheduler-target-key", b"now"))
    send_schedule("empty value", (epoch, b"%d" % (now + 1)), to, ("scheduler-target-key", b"empty"), value=b"")
    send_schedule("no target key", (epoch, b"%d" % (now + 1)), to)
    send_schedule("no epoch", to)
    send_schedule("text", (epoch, b"tomorrow"), to)
    send_schedule("fraction", (epoch, b"%d.5" % now), to)
    send_schedule("milliseconds", (epoch, b"%d000" % now), to)
    send_schedule("negative", (epoch, b"-5"), to)
    send_schedule("negative, again", (epoch, b"-6"), to)
    send_schedule("no target", (epoch, b"%d" % now))
    s.send(topic=f"{s.id}.plain", value=b"x", headers=[(epoch, b"%d" % now), to])
    send_schedule("no such topic", (epoch, b"%d" % now), ("scheduler-target-topic", f"{s.id}.later".encode()))
    s.flush()
    found = s.await_sent(4)
    assert Counter(record.key for record in found) == {b"past5": 1, b"now": 1, b"empty": 1, None: 1}
    await_that("the others are parked", lambda: len(s.read(s.names.parked)) == 8)
    reasons = {record.key: record.header("retry-parked-reason") for record in s.read(s.names.parked)}
    assert reasons == {
        b"no epoch": "no_epoch", b"text": "no_epoch", b"fraction": "no_epoch", b"milliseconds": "epoch_in_ms",
        b"negative": "negative_epoch", b"negative, again": "negative_epoch", b"no target": "no_target", None: "no_key",
    }  # fmt: skip
    tombstones = Counter(record.key for record in s.read(s.schedules) if record.value is None)
    sent = (b"past5", b"now", b"empty value", b"no target key")
    assert tombstones == dict.fromkeys((*sent, b"negative", b"negative, again"), 1)
    # The topic that was missing is made, and nobody starts anything again.
    s.create({f"{s.id}.later": {}})
    await_that("it goes there", lambda: len(s.read(f"{s.id}.later")) == 1)
    assert s.events(instance)["invalid"] == 8
    await_that("none is shown", lambda: s.ask(instance, "/schedules") == [])
    # Neither what was parked nor what compaction may have left without a trace in the changelog is taken for a letter.
    s.assert_verified(instance)


def test_1_10_instances_share_the_load_and_one_takes_over_from_another(scheduling: Schedulings) -> None:
    s, keys = scheduling(4), 600
    first, second = s.instance("a"), s.instance("b")
    both = first, second

    def count_owned_shards() -> list[int]:
        return [json.loads(each.get("/health/ready")[1])["shards_owned"] for each in both]

    await_that("both have shards", lambda: count_owned_shards() == [2, 2])
    # Held until all were shown, however long that takes.
    s.operate("pause", "--all")
    at = int(time.time()) + 2
    for n in range(keys):
        s.schedule(f"k{n}", at + n % 3)
    s.flush()
    await_that("all wait", lambda: sum(s.events(i)["planned"] for i in both) == keys)
    def list_live_schedules() -> list[set[str]]:
        return [{each["id"] for each in s.ask(i, "/live/schedules")} for i in both]

    await_that("all are shown", lambda: sum(map(len, list_live_schedules())) == keys)
    here = list_live_schedules()
    assert all(here)
    assert not here[0] & here[1]
    assert len(here[0] | here[1]) == keys
    first.kill()
    s.operate("resume", "--all")
    found = s.await_sent(keys)
    assert Counter(record.key for record in found) == {b"k%d" % n: 1 for n in range(keys)}


def test_1_11_1_15_and_1_16_patterns_grace_allowed_targets_and_the_file(scheduling: Schedulings, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("kafka.producer.configuration: {partitioner: murmur2_random}\n")
    s = scheduling()
    s.environ |= {
        "CONFIGURATION_FILE": str(tmp_path / "config.yaml"), "SCHEDULE_GRACE_INTERVAL": "1800",
        "SCHEDULES_TOPICS": f"{s.schedules},^{s.id}-team-[ab]$", "SCHEDULER_ALLOWED_TARGETS": s.target,
    }  # fmt: skip
    others = [f"{s.id}-team-{letter}" for letter in "abc"]
    s.create(dict.fromkeys(others, COMPACTED) | {f"{s.id}.elsewhere": {}})
    s.instance()
    now = int(time.time())
    for topic in (s.schedules, *others):
        s.schedule(f"of {topic}", now, schedules_topic=topic, key=b"foobar")
    # With twenty minutes for a slow machine, and within the hour that is always kept of the day before.
    s.schedule("in grace", now - 600)
    s.schedule("too late", now - 2_400)
    s.schedule("forbidden", now, topic=f"{s.id}.elsewhere")
    s.flush()
    found = s.await_sent(4)
    went = {record.header("scheduler-key") for record in found}
    assert went == {"in grace", *(f"of {topic}" for topic in (s.schedules, *others[:2]))}
    # As the Java client would: of three partitions "foobar" goes to the one that its murmur2 hash says.
    assert {record.partition for record in found if record.key == b"foobar"} == {(-790332482 & 0x7FFFFFFF) % 3}
    await_that("two are parked", lambda: len(s.read(s.names.parked)) == 2)
    reasons = {record.key: record.header("retry-parked-reason") for record in s.read(s.names.parked)}
    assert reasons == {b"too late": "past_due", b"forbidden": "target_not_allowed"}
    assert s.read(f"{s.id}.elsewhere") == []


def test_a_schedule_to_a_topic_of_kafka_or_of_the_service_is_parked_and_the_others_go(scheduling: Schedulings) -> None:
    s = scheduling(1, RETRY_SHARDS="1")
    instance, now = s.instance(), int(time.time())
    targets = {b"kafka": "__consumer_offsets", b"ours": s.names.changelog}
    for name, topic in targets.items():
        s.schedule(name.decode(), now, topic=topic, key=name)
    for n in range(20):
        s.schedule(f"k{n}", now + n % 3)
    s.flush()
    assert Counter(record.key for record in s.await_sent(20)) == {b"k%d" % n: 1 for n in range(20)}
    await_that("two are parked", lambda: len(s.read(s.names.parked)) == 2)
    assert {r.key: r.header("retry-parked-reason") for r in s.read(s.names.parked)} == dict.fromkeys(targets, "internal_target")
    assert "again at the next sweep" not in instance.log()
    s.assert_verified(instance)


def test_under_steady_input_nothing_is_left_behind(scheduling: Schedulings) -> None:
    s, keys, rate = scheduling(), 3_000, 500
    s.instance()
    tail, due = Tail(s.bootstrap_servers, [s.target], "scheduler-key"), dict[bytes | None, int]()
    first, began_s, deadline = {f"k{n}" for n in range(keys)}, monotonic_s(), Deadline(_IN_TIME_S)
    # All of the first ones are sent while the input goes on.
    while not first <= tail.seen:
        assert not deadline.has_passed(), f"{len(first - tail.seen)} of the first {keys} were left behind"
        while len(due) < (monotonic_s() - began_s) * rate:
            n = len(due)
            due[b"k%d" % n] = int(time.time()) + 1 + n % 4
            s.schedule(f"k{n}", due[b"k%d" % n])
        tail.read()
    tail.close()
    s.flush()
    found = s.await_sent(len(due))
    assert Counter(record.key for record in found) == dict.fromkeys(due, 1)
    assert min(record.timestamp_ms - due[record.key] * 1_000 for record in found) >= 0


def test_verify_is_told_of_schedules_topics_since_the_changelog_may_know_nothing_of_them(scheduling: Schedulings) -> None:
    s = scheduling(1)
    instance = s.instance()
    # A tombstone of ours, as it is left when everything else was compacted away: it makes no entry.
    s.send(topic=s.schedules, key=b"long ago", value=None, headers=[("scheduler-done", b"41")])
    s.flush()
    await_that("it is read", lambda: s.events(instance)["deleted"] == 1)
    # It counts as read once its transaction is committed; a table that has folded nothing yet is not compared.
    await_that("a table has folded", lambda: s.verified(instance)["tables"]["checked"] > 0)
    s.assert_verified(instance)
    assert s.verified(schedules="others")["lost"] == 1


def test_1_19_a_schedules_topic_that_is_missing_is_made_and_one_that_is_not_compacted_is_told_of(scheduling: Schedulings) -> None:
    s = scheduling(1)
    s.create({f"{s.id}.plain": {"retention.ms": "3600000"}})
    s.environ["SCHEDULES_TOPICS"] = f"{s.id}.plain,{s.id}.made"
    instance = s.instance()
    config = topics.describe(s.admin, [f"{s.id}.made"])[f"{s.id}.made"].config
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact", "-1")
    assert f"{s.id}.plain is not compacted" in instance.log()
    assert f"{s.id}.plain has retention.ms" in instance.log()
    assert not any(f"WARNING retry.scheduling.messages.composition: {s.id}.made" in line for line in instance.log().splitlines())


def test_1_21_a_program_sends_schedules_with_a_scheduler_of_its_own_beside_it(scheduling: Schedulings, tmp_path: Path) -> None:
    s = scheduling(1)
    environ = {"SERVER_ADDR": f"127.0.0.1:{free_port()}", "METRICS_ADDR": f"127.0.0.1:{free_port()}"}
    own = {name: value for name, value in s.environ.items() if name not in os.environ} | environ
    with Runner(own | {"RETRY_DATA_DIR": str(tmp_path / "beside")}, log=tmp_path / "beside.log") as scheduler:
        s.schedule("far", time.time() + 3_600)
        s.schedule("now", time.time())
        s.flush()
        s.await_sent(1)

        def shown() -> list[str]:
            with urlopen(f"{scheduler.url}/schedules", timeout=20) as answer:
                return [each["id"] for each in json.loads(answer.read())]

        await_that("the one that waits is shown", lambda: shown() == ["far"])


@pytest.mark.slow
def test_1_9_memory_does_not_grow_with_what_waits_beyond_the_cache(scheduling: Schedulings) -> None:
    s, keys = scheduling(4), 40_000
    at, value = int(time.time()) + 7_200, os.urandom(1_500)
    instance, rss = None, []
    for part in range(3):
        for n in range(part * keys, (part + 1) * keys):
            s.schedule(f"k{n:06}", at + n % 1_000, value=value)
        s.flush()
        # It finds the first part as a backlog, so that what is measured after that has the largest batches in it. One that runs
        # from the beginning may keep up with what this writes, on a busy machine that is, and has 80 MB less then.
        instance = instance or s.instance(RETRY_TABLE_CACHE_BYTES=str(16 << 20))
        wanted = (part + 1) * keys
        await_that("all wait", lambda of=instance, wanted=wanted: of.metric("retry_entries_waiting") == wanted)  # type: ignore[misc]
        rss.append(rss_mb(instance.pid))
    # Held in memory, each of the later parts would be 57 MB of payload alone; the Go scheduler took 1.8 kB for one of 500 bytes.
    assert rss[2] - rss[1] < 30
    assert rss[2] - rss[0] < 60
