"""The console's replica on a real broker: it says what the commands say, follows what happens, keeps notes, and is built anew."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import TopicPartition

from retry.console.folding import folding_process
from retry.console.folding.folds import Folds
from retry.console.folding.follower import Follower
from retry.console.folding.replica_file import ReplicaFile
from retry.console.folding.reports import Report
from retry.console.reading.replica import Replica
from retry.console.rows import FailureState
from retry.errors import CursorStale, FilterInvalid, RebuildInProgress
from retry.kafka import offset_ranges
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import EVERYTHING
from retry.policies.policy_file import load
from retry.settings import Settings
from tests.conftest import Deploy
from tests.support.committed_offsets import commit_offsets
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Headers, Sender
from tests.unit.kafka.test_child_process import alive

pytestmark = pytest.mark.check

WAITING, PARKED = 12, 9
DEFAULTS = "{group: shop, backoff: {kind: constant, delay: 1h}, jitter: none}"
RULES = "rules: [{exception: '*.Bad', park: true}]"
FILTERS = (
    "", "state:waiting", "exception:*.Bad", "header.tenant:odd key:1*", 'message:"ORDER 1"', "due:<2h", "-team:testers",
    "attempt:1 -key:0",
)  # fmt: skip


def failure_headers(exception: str, n: int) -> Headers:
    return [
        ("kafka_dlt-exception-fqcn", b"com.acme.Wrapper"),
        ("kafka_dlt-exception-cause-fqcn", b"com.acme." + exception.encode()),
        ("kafka_dlt-exception-message", b"order %d of 'Ann' is late" % n),
        ("tenant", b"even" if n % 2 == 0 else b"odd"),
    ]


@pytest.fixture
def taken_in(deploy: Deploy) -> Deployment:
    """A deployment in which some letters wait and some are parked; its worker runs."""
    deployment = deploy({"orders": 2}, shards=2, defaults=DEFAULTS, topic_keys=RULES, environ={"RETRY_POSITIONS_EVERY_S": "1"})
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(WAITING + PARKED):
        sender.send(topic, b"%d" % n, b'{"order": {"id": %d}}' % n, failure_headers("Slow" if n < WAITING else "Bad", n))
    sender.finish()
    worker = deployment.worker().start().await_ready()
    await_that("those that park have left", lambda: worker.metric("retry_entries_sent_total") == PARKED)
    await_that("the others wait", lambda: worker.metric("retry_entries_waiting") == WAITING)
    return deployment


def settings_of(deployment: Deployment) -> Settings:
    return Settings(
        bootstrap_servers=deployment.bootstrap_servers, app_id=deployment.app_id, shards=deployment.shards,
        policies=deployment.policy_file,
    )  # fmt: skip


def replica_of(deployment: Deployment, path: Path) -> Replica:
    registry = load(deployment.policy_file)
    made = Replica(settings_of(deployment), lambda: registry, path)
    made.start()
    return made


@pytest.fixture
def open_replica(taken_in: Deployment, tmp_path: Path) -> Iterator[Callable[[], Replica]]:
    """Makes replicas of that deployment over one file."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(replica_of(taken_in, tmp_path / "console" / "replica.sqlite")))


def live(replica: Replica) -> Replica:
    await_that("the replica is live", lambda: replica.freshness().state == "live" and replica.freshness().as_of_ms is not None)
    return replica


def list_printed_names(deployment: Deployment, *words: str) -> set[str]:
    told = deployment.command("letters", "--json", *words)
    assert told.returncode == 0, told.stderr
    rows: list[dict[str, Any]] = [json.loads(line) for line in told.stdout.splitlines()]
    return {row["name"] for row in rows}


def list_names(replica: Replica, text: str = "") -> set[str]:
    return {row.name for row in replica.list_letters(None, parse(text)).rows}


@pytest.mark.slow
def test_it_says_what_the_commands_say_and_follows_what_happens(
    taken_in: Deployment, open_replica: Callable[[], Replica]
) -> None:
    replica = live(open_replica())
    assert len(list_names(replica)) == WAITING + PARKED
    for text in FILTERS:
        assert list_names(replica, text) == list_printed_names(taken_in, text), text
    with pytest.raises(FilterInvalid, match="payloads"):
        replica.list_letters(None, parse("value.$.order.id=15"))
    now = replica.load_now(None)
    assert (now.waiting, now.parked, now.overdue, now.new_groups) == (WAITING, PARKED, 0, 2)
    assert sum(bar.count for bar in now.due) == WAITING
    assert sum(now.failed_by_hour) == WAITING + PARKED
    assert all(shard.next_offset == shard.end_offset for shard in now.shards)
    assert replica.load_now(frozenset({"others"})).waiting == 0
    await_that("the worker is heard", lambda: [(w.shards, w.is_silent) for w in replica.load_now(None).workers] == [(2, False)])

    first = replica.list_letters(None, parse("state:waiting")).rows[0]
    found = replica.payloads.find_letter(None, first.name)
    assert found is not None and json.loads(found.value or b"")["order"]["id"] == int(first.key or b"")
    assert replica.payloads.find_letter(frozenset({"others"}), first.name) is None
    scanned = replica.payloads.scan(None, parse("value.$.order.id=15"))
    assert ([row.key for row in scanned.rows], scanned.why_ended, scanned.looked_at) == ([b"15"], "all", WAITING + PARKED)

    told = taken_in.command("pause", "--team", "testers", "--reason", "bank is down")
    assert told.returncode == 0, told.stderr
    await_that("the pause is shown", lambda: [held.reason for held in replica.load_now(None).held] == ["bank is down"])
    assert [held.letters for held in replica.load_now(frozenset({"testers"})).held] == [WAITING]
    assert replica.load_now(frozenset({"others"})).held == ()
    assert taken_in.command("resume", "--team", "testers").returncode == 0
    await_that("it is over", lambda: not replica.load_now(None).held)

    (parked,) = replica.list_letters(None, parse("state:parked key:12")).rows
    for letter_filter in (f"key:{(first.key or b'').decode()}", "state:parked key:12"):
        told = taken_in.command("act", "retry", letter_filter, "--yes", "--wait", "1m")
        assert told.returncode == 0, told.stderr
    await_that("both have gone", lambda: replica.load_now(None).waiting + replica.load_now(None).parked == WAITING + PARKED - 2)
    departed = replica.find_departed(None, parked.name)
    assert departed is not None and (departed.letter, departed.lineage) == (parked.letter, parked.lineage)
    assert replica.find_departed(frozenset({"others"}), parked.name) is None
    assert replica.find_departed(None, parked.name.rpartition("/")[0] + "/999") is None
    await_that("the audit is shown", lambda: sum(row.done for row in replica.list_audit_rows(None).rows) == 2)
    assert replica.list_audit_rows(frozenset({"others"})).rows == []
    assert first.lineage is not None
    await_that("it was sent", lambda: "sent" in {event.what for event in replica.lineage(None, first.lineage or "")})
    assert next(event.what for event in replica.lineage(None, first.lineage)) == "failed"
    assert "passed" not in {event.what for event in replica.lineage(None, first.lineage)}
    commit_all(taken_in)
    await_that("it is passed", lambda: "passed" in {event.what for event in replica.lineage(None, first.lineage or "")})
    known = lambda: [(each.attempt, each.sent, each.pending) for each in replica.load_now(None).recovery]  # noqa: E731
    await_that("its recovery counts", lambda: known() == [(1, 1, 0)])


def commit_all(deployment: Deployment) -> None:
    """Commit offsets as a consumer that has read all retries: the offset before the mark of the last transaction."""
    (topic,) = deployment.retry_topics()
    places = offset_ranges.partitions_of(deployment.admin, topic.__eq__, 15.0)
    read = {place: end - 1 for place, end in offset_ranges.find_stable_offsets(deployment.admin, places).items() if end}
    offsets = [TopicPartition(*place, offset) for place, offset in read.items()]
    commit_offsets(deployment.bootstrap_servers, "shop", offsets)


def test_notes_are_shown_at_once_and_groups_are_merged_split_and_resolved(open_replica: Callable[[], Replica]) -> None:
    replica = live(open_replica())
    few, many = sorted(replica.list_groups(None, EVERYTHING).rows, key=lambda each: each.count)
    assert (few.parked, many.waiting) == (PARKED, WAITING)
    replica.notes.set_note(few.id, owner="ann", note="the bank", link="https://tickets/1", by="bob")
    shown = replica.find_group(None, few.id)
    assert shown is not None and (shown.owner, shown.note, shown.link) == ("ann", "the bank", "https://tickets/1")

    change = replica.notes.merge([few.id], many.id, "bob")
    assert [each.count for each in replica.list_groups(None, EVERYTHING).rows] == [WAITING + PARKED]
    merged = replica.find_group(None, few.id)
    assert merged is not None and (merged.id, merged.merged) == (many.id, (few.id,))
    assert [id_ for id_, *_ in replica.notes.changes(many.id)] == [change]
    assert replica.notes.undo_regrouping(change, "bob")
    assert len(replica.list_groups(None, EVERYTHING).rows) == 2

    split = replica.notes.split(many.id, "topic", "bob")
    assert {each.id.partition("~")[0] for each in replica.list_groups(None, EVERYTHING).rows} == {few.id, many.id}
    assert many.id not in {each.id for each in replica.list_groups(None, EVERYTHING).rows}
    assert replica.notes.undo_regrouping(split, "bob")

    replica.notes.resolve(few.id, "bob")
    assert [each.id for each in replica.list_groups(None, EVERYTHING).rows] == [many.id]
    assert [each.id for each in replica.list_groups(None, EVERYTHING, show=FailureState.RESOLVED).rows] == [few.id]
    replica.notes.save_filter("late", "due:<1h", "testers", "bob")
    assert [each.name for each in replica.notes.filters(frozenset({"testers"}))] == ["late"]
    assert replica.notes.filters(frozenset({"others"})) == []


@pytest.mark.slow
def test_it_goes_on_from_its_file_and_builds_anew_what_is_of_no_use(
    taken_in: Deployment, open_replica: Callable[[], Replica], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = live(open_replica())
    page = first.list_letters(None, EVERYTHING, limit=5)
    assert page.after is not None
    first.close()

    again = live(open_replica())
    assert len(again.list_letters(None, EVERYTHING, page.after).rows) == WAITING + PARKED - 5
    again.close()

    file = tmp_path / "console" / "replica.sqlite"
    whole = file.read_bytes()
    for rubbish in (b"no database at all", whole[:4096] + bytes(len(whole) - 4096)):
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        file.write_bytes(rubbish)
        replica = open_replica()
        await_that("it is built anew", lambda: _shows(replica, WAITING + PARKED))  # noqa: B023 awaited here
        with pytest.raises(CursorStale):
            replica.list_letters(None, EVERYTHING, page.after)
        replica.close()

    fails, fold = [KeyError("a mistake of ours")], Folds.project_partitions
    monkeypatch.setattr(
        Folds, "project_partitions", lambda folds, *given: raise_error(fails.pop()) if fails else fold(folds, *given)
    )
    _reads_anew_after_a_mistake(taken_in, tmp_path / "replica.sqlite", caplog)


def test_pages_go_on_while_the_process_that_folds_is_killed_and_while_it_hangs_and_a_corrupt_file_is_built_anew(
    taken_in: Deployment, open_replica: Callable[[], Replica], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(folding_process, "_OLD_S", 3.0)
    monkeypatch.setattr(folding_process, "_SILENT_S", 3.0)
    replica = live(open_replica())
    first = folding(replica)
    os.kill(first, signal.SIGKILL)
    await_that("its end is known", lambda: "has ended with -9, and is started again" in caplog.text)
    assert _shows(replica, WAITING + PARKED)
    assert taken_in.command("pause", "--team", "testers", "--reason", "bank is down").returncode == 0
    await_that("another one folds on", lambda: [held.reason for held in replica.load_now(None).held] == ["bank is down"])
    second = folding(replica)
    assert (second != first, live(replica).freshness().trouble) == (True, "")

    os.kill(second, signal.SIGSTOP)
    await_that("it is shown as old", lambda: replica.freshness().state == "old")
    assert replica.freshness().trouble == "nothing was heard of brokers for 3 s"
    assert _shows(replica, WAITING + PARKED)
    os.kill(second, signal.SIGCONT)
    live(replica)

    file = tmp_path / "console" / "replica.sqlite"
    file.write_bytes(bytes(file.stat().st_size))
    file.with_name(file.name + "-wal").write_bytes(b"")
    await_that("it is found to be corrupt", lambda: not _shows(replica, WAITING + PARKED))
    await_that("it is built anew", lambda: _shows(replica, WAITING + PARKED))
    assert live(replica).freshness().trouble == ""
    replica.close()
    assert not alive(folding(replica))


def folding(replica: Replica) -> int:
    process = replica._follower._process
    assert process is not None
    return process.pid


def _reads_anew_after_a_mistake(deployment: Deployment, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, told, ends = ReplicaFile(path), list[Report](), threading.Event()
    follower = Follower(settings_of(deployment), lambda: load(deployment.policy_file), file, told.append, ends)
    running = threading.Thread(target=follower.run)
    running.start()
    await_that("it is live", lambda: told and told[-1].file_id)
    ends.set()
    running.join()
    assert "the replica failed, and is built anew" in caplog.text
    assert any("KeyError" in report.trouble for report in told)
    assert told[-1].trouble == ""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM letters").fetchone() == (WAITING + PARKED,)


def raise_error(error: Exception) -> NoReturn:
    raise error


def _shows(replica: Replica, letters: int) -> bool:
    try:
        return len(replica.list_letters(None, EVERYTHING).rows) == letters
    except RebuildInProgress:
        return False
