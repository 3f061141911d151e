"""`retry migrate scheduler` on a real broker: schedules move from topic to topic once each, through kill -9, and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer

from retry import clock
from tests.conftest import Schedulings
from tests.support.process import ROOT, await_that
from tests.support.quotas import limit_producer
from tests.support.reading import QUIET, Tail
from tests.support.scheduler import COMPACTED, Scheduling

pytestmark = pytest.mark.check

HOUR_S = 3_600


class Migration:
    """A scheduler with another schedules topic, and `retry migrate scheduler` between the two."""

    def __init__(self, scheduling: Scheduling) -> None:
        self.scheduling, self.moved = scheduling, f"{scheduling.id}.moved"
        scheduling.create({self.moved: COMPACTED})

    def asked(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "retry", "migrate", "scheduler", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = self.scheduling.environ
        return subprocess.run(self.asked(*arguments), cwd=ROOT, env=environ, capture_output=True, text=True, check=False)

    def told(self, *arguments: str) -> dict[str, Any]:
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def there(self) -> tuple[str, ...]:
        return "--from", self.scheduling.schedules, "--to", self.moved

    def back(self) -> tuple[str, ...]:
        return "--from", self.moved, "--to", self.scheduling.schedules


def now_s() -> float:
    return clock.wall_ms() / 1_000


@pytest.mark.slow
def test_schedules_are_shown_moved_sent_from_there_and_moved_back(scheduling: Schedulings) -> None:
    s = scheduling(3)
    migration, later = Migration(s), now_s() + 2 * HOUR_S
    for n in range(30):
        s.schedule(f"later-{n}", later)
    s.schedule("later-0", later, value=b"anew")
    for n in (1, 2):
        s.cancel(f"later-{n}")
    # As the Go scheduler ends what it has sent: a null with the headers of the message.
    s.send(topic=s.schedules, key=b"later-3", value=None, headers=[("scheduler-key", b"later-3"), ("scheduler-topic", b"t")])
    s.send(topic=s.schedules, key=b"stranger", value=b"v", headers=[("a", b"1")], partition=1)
    s.send(topic=s.schedules, key=b" ", value=b"v", headers=[("scheduler-epoch", b"4000000000")], partition=2)
    s.schedule("soon", now_s() + 3)
    s.flush()

    dry = migration.told("--from", s.schedules)["before"][s.schedules]
    assert (dry["schedules"], dry["targets"], dry["others"]) == (28, {s.target: 28}, {"no_epoch": 1, "no_key": 1})
    assert dry["when"]["later"] == 27 and len(dry["places"]) == 2
    shown = migration.run(*migration.there())
    assert f"{s.schedules}: 28 schedules wait" in shown.stdout
    assert f"--yes moves the schedules to {migration.moved}" in shown.stdout
    assert s.read(migration.moved) == []

    # Somebody schedules and cancels there already: what comes later must not be replaced by what came before.
    s.schedule("later-4", later + HOUR_S, value=b"newer", schedules_topic=migration.moved)
    s.send(topic=migration.moved, key=b"later-5", value=None, headers=[])
    s.flush()
    done = migration.told(*migration.there(), "--yes")
    assert (done["moved"], done["replaced"]) == (26, 2)
    assert (done["after"][s.schedules]["schedules"], done["after"][migration.moved]["schedules"]) == (0, 27)
    assert done["after"][s.schedules]["others"] == {"no_epoch": 1, "no_key": 1}
    again = migration.told(*migration.there(), "--yes")
    assert (again["moved"], again["replaced"]) == (0, 0)

    before = {(r.partition, r.key): r for r in s.read(s.schedules) if r.value is not None}
    for record in s.read(migration.moved):
        if record.value is not None and record.value != b"newer":
            was = before[record.partition, record.key]
            assert (record.value, record.headers, record.timestamp_ms) == (was.value, was.headers, was.timestamp_ms)

    instance = s.instance(SCHEDULES_TOPICS=migration.moved)
    await_that("all are taken in", lambda: s.events(instance)["planned"] == 27)
    assert [record.key for record in s.await_sent(1)] == [b"soon"]
    await_that("26 are left", lambda: len(s.ask(instance, "/schedules")) == 26)
    assert "members of the scheduler" in migration.run(*migration.back()).stdout
    instance.terminate()

    back = migration.told(*migration.back(), "--yes")
    assert (back["moved"], back["replaced"]) == (26, 0)
    assert (back["after"][migration.moved]["schedules"], back["after"][s.schedules]["schedules"]) == (0, 26)
    # What waited in the changelog of the scheduler is cancelled by that.
    instance = s.start(instance)
    await_that("nothing waits", lambda: s.ask(instance, "/schedules") == [])
    instance.terminate()
    assert [record.key for record in s.sent()] == [b"soon"]


def test_a_move_that_is_killed_goes_on_and_moves_each_schedule_once(scheduling: Schedulings) -> None:
    s, count = scheduling(3), 20_000
    migration, later = Migration(s), now_s() + HOUR_S
    for n in range(count):
        s.schedule(f"k{n}", later + n)
    s.flush()
    tail = Tail(s.bootstrap_servers, [migration.moved], header="scheduler-epoch")
    asked = migration.asked(*migration.there(), "--yes")
    running = subprocess.Popen(asked, cwd=ROOT, env=s.environ, stdout=subprocess.DEVNULL)
    tail.await_seen(1)
    running.send_signal(signal.SIGKILL)
    running.wait()
    tail.close()
    # An update that comes between the two runs.
    s.schedule("k0", later + 5 * HOUR_S, value=b"anew")
    s.flush()
    done = migration.told(*migration.there(), "--yes")
    assert 0 < done["moved"] < count + 1 and done["after"][s.schedules]["schedules"] == 0
    came = Counter(record.key for record in s.read(migration.moved))
    assert set(came) == {b"k%d" % n for n in range(count)}
    assert came.total() - count <= 1 and {key for key, times in came.items() if times > 1} <= {b"k0"}
    newest = [record.value for record in s.read(migration.moved) if record.key == b"k0"]
    assert newest[-1] == b"anew"
    nulls = [record for record in s.read(s.schedules) if record.value is None]
    assert len(nulls) == came.total()


@pytest.mark.slow
def test_behind_a_quota_that_is_slower_than_a_transaction_all_is_moved_in_smaller_ones(scheduling: Schedulings) -> None:
    s, count = scheduling(1), 1_200
    migration, later = Migration(s), now_s() + HOUR_S
    for n in range(count):
        s.schedule(f"k{n}", later + n, value=os.urandom(5_000))
    s.flush()
    limit_producer(s.bootstrap_servers, s.id, 200_000)
    done = migration.run(*migration.there(), "--yes", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["moved"], told["replaced"], told["after"][s.schedules]["schedules"]) == (count, 0, 0)
    assert Counter(record.key for record in s.read(migration.moved)) == Counter(b"k%d" % n for n in range(count))


def test_a_topic_that_cannot_take_them_is_refused(scheduling: Schedulings) -> None:
    s = scheduling(2)
    migration = Migration(s)
    s.schedule("k", now_s() + HOUR_S)
    s.flush()
    s.partitions = 3
    s.create({f"{s.id}.wide": COMPACTED})
    for arguments, words in (
        (("--from", s.schedules, "--to", f"{s.id}.wide", "--yes"), "has 2 partitions"),
        (("--from", s.schedules, "--to", f"{s.id}.gone"), f"there is no topic {s.id}.gone"),
    ):
        ended = migration.run(*arguments)
        assert ended.returncode == 1 and words in ended.stderr and "Traceback" not in ended.stderr
    assert migration.run("--from", s.schedules, "--yes").returncode == 2
    live = Consumer({"bootstrap.servers": s.bootstrap_servers, "group.id": s.id, "enable.auto.commit": False, "logger": QUIET})
    live.subscribe([s.schedules])
    await_that("it is a member", lambda: live.poll(0.1) or live.assignment())
    assert "1 members of the scheduler" in migration.run(*migration.there()).stdout
    live.close()
    assert s.read(migration.moved) == []
