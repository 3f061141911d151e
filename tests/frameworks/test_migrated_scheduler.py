"""The real Go scheduler's topic moves here and back while schedules wait, and each message is sent once, by one of the two."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Schedulings
from tests.integration.test_migrate_schedules import Migration, now_s
from tests.support.ports import free_port
from tests.support.process import await_that, end
from tests.support.reading import Record
from tests.support.scheduler import Scheduling
from tests.support.tools import missing

pytestmark = pytest.mark.release

SOURCE = Path(__file__).with_name("go_scheduler")
_END_S, _BUILD_S = 30.0, 280.0


def build_go_scheduler(folder: Path) -> Path:
    """The Go scheduler, compiled; its module and librdkafka are of its own go.mod."""
    if shutil.which("go") is None or shutil.which("gcc") is None:
        missing("no Go, or no C compiler for its client")
    program = folder / "go-scheduler"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCE, check=True, timeout=_BUILD_S)
    return program


@contextmanager
def running(program: Path, s: Scheduling, group: str) -> Iterator[None]:
    """The Go scheduler on the topics of a test."""
    # What was due yesterday is sent, too: the test may run over midnight.
    told = {"GROUP_ID": group, "SINCE_DELTA": "-1"} | {
        name: f"127.0.0.1:{free_port()}" for name in ("SERVER_ADDR", "METRICS_ADDR")
    }
    with (s.folder / "go-scheduler.log").open("ab") as log:
        process = subprocess.Popen([program], env={**os.environ, **s.environ, **told}, stdout=log, stderr=log)
        try:
            yield
        finally:
            end(process, _END_S)


def keys(records: list[Record]) -> set[bytes | None]:
    return {record.key for record in records}


def test_schedules_of_the_go_scheduler_are_sent_once_whoever_has_them(scheduling: Schedulings, tmp_path: Path) -> None:
    s, program = scheduling(3), build_go_scheduler(tmp_path)
    migration, group, began_s = Migration(s), f"{s.id}.go", now_s()
    names = {due_s: [b"after-%d-%d" % (due_s, n) for n in range(4)] for due_s in (15, 75, 150)}
    for due_s, ids in names.items():
        for id_ in ids:
            s.schedule(id_.decode(), began_s + due_s)
    s.schedule("cancelled", began_s + 75)
    s.cancel("cancelled")
    s.flush()
    with running(program, s, group):
        # It ends what it has sent with a tombstone, to the partition that its own client chooses.
        ended = {*names[15], b"cancelled"}
        await_that("the first are ended", lambda: keys([r for r in s.read(s.schedules) if not r.value]) >= ended)
        busy = migration.run(*migration.there(), "--group", group)
        assert f"members of the scheduler {group} run" in busy.stdout
    assert keys(s.sent()) == set(names[15])

    there = migration.told(*migration.there(), "--group", group, "--yes")
    assert (there["moved"], there["replaced"]) == (8, 0)
    assert there["after"][s.schedules]["schedules"] == 0
    instance = s.instance(SCHEDULES_TOPICS=migration.moved)
    await_that("ours sends the next", lambda: keys(s.sent()) >= {*names[15], *names[75]})
    instance.terminate()

    back = migration.told(*migration.back(), "--yes")
    assert (back["moved"], back["after"][migration.moved]["schedules"]) == (4, 0)
    with running(program, s, group):
        await_that("it sends the last", lambda: keys(s.sent()) >= {id_ for ids in names.values() for id_ in ids})
    assert Counter(record.key for record in s.sent()) == dict.fromkeys((id_ for ids in names.values() for id_ in ids), 1)
    by_key = {record.key: record.header("scheduler-topic") for record in s.sent()}
    assert [by_key[ids[0]] for ids in names.values()] == [s.schedules, migration.moved, s.schedules]
