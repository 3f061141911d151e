"""What waits by a name is cancelled by the record that its own way in takes for a cancel, where its way in reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from retry.console.acting import named_pages, other_entries, standing_actions
from retry.console.acting.named_pages import CancelRecord, build_cancel_record
from retry.console.web.formats import format_for_picker
from retry.console.web.rights import Role, Viewer
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Call, Entry, Named
from retry.intake.batch import BatchResult
from retry.intake.entry_source import EntrySource, QueueLimits, RecordVersions
from retry.policies.policy_file import parse
from retry.record import Headers
from retry.scheduling.messages.entry_source import SchedulesSource
from retry.scheduling.messages.schedule_request import Rules
from retry.scheduling.tasks.entry_source import TasksSource
from retry.scheduling.tasks.formats import Reader
from retry.scheduling.timers import entry_source as timers
from retry.telemetry import call_records
from retry.telemetry.call_records import Called
from retry.testing.kafka import MemoryRecord
from retry.testing.memory_table import MemoryTable
from tests.support.acting_console import ActingConsole
from tests.support.console import NOW_MS, letter

SHARDS = 4
LIMITS = QueueLimits(SHARDS, 1 << 20, RecordVersions())
TASKS = "tasks: {topics: [task-schedules], allowed_targets: [bills], shortest: 1ms}\n"
ANN, EVE = Viewer("ann", {"schedules": Role.OPERATOR, "shop": Role.OPERATOR}), Viewer("eve", {"bank": Role.ADMIN})


def schedule(key: bytes, value: bytes | None, offset: int) -> MemoryRecord:
    headers = [("scheduler-target-topic", b"online"), ("scheduler-epoch", b"%d" % (NOW_MS // 1_000 + 60))] if value else []
    return MemoryRecord(Entry("schedules", key, value, headers, None, ""), 2, offset, NOW_MS)


def definition(value: object, offset: int) -> MemoryRecord:
    key = json.dumps({"customerId": "acme", "taskName": "bill"}).encode()
    body = None if value is None else json.dumps(value).encode()
    return MemoryRecord(Entry("task-schedules", key, body, [], None, ""), 2, offset, NOW_MS)


def rows(source: EntrySource, *messages: MemoryRecord) -> list[tuple[bytes, bytes]]:
    into = BatchResult()
    source.prepare(messages, NOW_MS, into)
    return [(row["key"], row["value"]) for some in into.entries.values() for row in some]


def read_only_entry(table: MemoryTable) -> tuple[entry_keys.Source, Named]:
    ((_, key, envelope),) = table.scan_entries(b"", 10)
    return entry_keys.read_source(key), envelopes.decode_named(envelope)


def table(*changes: tuple[bytes, bytes]) -> MemoryTable:
    made = MemoryTable()
    made.apply_records(list(changes), len(changes), NOW_MS)
    return made


def test_a_schedule_is_cancelled_by_a_null_in_its_own_partition() -> None:
    source = SchedulesSource(["schedules"], Rules(lambda _: True), "history", "parked", LIMITS)
    (first,) = rows(source, schedule(b"vid1", b"video", 41))
    record = build_cancel_record(*read_only_entry(table(first)), "changelog", SHARDS, NOW_MS)
    assert record == CancelRecord("schedules", 2, b"vid1", None)
    cancelled = rows(source, schedule(b"vid1", None, 42))
    assert table(first, *cancelled).scan_entries(b"", 10) == []


def test_a_task_is_cancelled_by_a_null_in_its_own_partition() -> None:
    source = TasksSource(parse(TASKS, "p").tasks, Reader(lambda _: pytest.fail("no schema")), "parked", LIMITS)  # type: ignore[arg-type]
    frequency = {"frequencyTimeUnit": "MINUTES", "time": 5}
    body = {"customerId": "acme", "taskName": "bill", "frequency": frequency, "config": {"outputTopic": "bills"}, "data": None}
    (first,) = rows(source, definition(body, 7))
    record = build_cancel_record(*read_only_entry(table(first)), "changelog", SHARDS, NOW_MS)
    assert record == CancelRecord("task-schedules", 2, definition(None, 8).key() or b"", None)
    assert table(first, *rows(source, definition(None, 8))).scan_entries(b"", 10) == []


def test_a_timer_is_cancelled_as_its_api_does_it() -> None:
    def timer(version: int) -> tuple[bytes, bytes]:
        call = Call("https://example.com/hook", id="tmr_1")
        due_ms = NOW_MS + 60_000
        key, entry = timers.build_timer_entry(
            "tmr_1", "shop", "https://example.com:443", due_ms, version, b"{}", [], call, b"mark"
        )
        return key, envelopes.encode(entry)

    first = timer(NOW_MS - 1)
    record = build_cancel_record(*read_only_entry(table(first)), "changelog", SHARDS, NOW_MS)
    assert record is not None
    assert (record.topic, record.partition) == ("changelog", entry_keys.find_shard(timers.hash_timer_id("tmr_1"), SHARDS))
    assert record.value is not None
    assert table(first, (record.key, record.value)).scan_entries(b"", 10) == []
    # One that is made anew later has a greater version.
    again = timer(NOW_MS + 1)
    assert len(table(first, (record.key, record.value), again).scan_entries(b"", 10)) == 1


def test_what_only_waits_to_be_parked_cannot_be_cancelled() -> None:
    parked = Named("parked", b"k", b"v", [], None, "schedules", None, ())
    assert build_cancel_record(entry_keys.Source(1, "schedules", 0, 1), parked, "changelog", SHARDS, NOW_MS) is None
    letter_of_shop = Named("orders.retry", b"k", b"v", [], None, "shop", None, ())
    assert build_cancel_record(entry_keys.Source(1, "schedules", 0, 1), letter_of_shop, "changelog", SHARDS, NOW_MS) is None


class Written:
    """Stands in for the producer; remembers what was written."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def write(self, *record: Any) -> Future[int]:
        self.records.append(record)
        done: Future[int] = Future()
        done.set_result(1)
        return done

    def close(self) -> None:
        pass


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[ActingConsole]:
    made = ActingConsole()
    source = SchedulesSource(["schedules"], Rules(lambda _: True), "history", "parked", LIMITS)
    where, entry = read_only_entry(table(*rows(source, schedule(b"vid1", b"video", 41))))
    name = str(where)
    row = {"kind": "schedule", "state": "waiting", "topic": "schedules", "target": "online", "due_at_ms": where.due_at_ms}
    made.replica.rows = [
        letter(1, "schedules", name=name, label="vid1", **row),
        letter(2, "schedules", **{**row, "name": "1/schedules/0/9", "label": "vid2 <b>", "due_at_ms": NOW_MS + 5_000}),
        letter(3, "bank", kind="timer", state="waiting", name="1/timers/0/1", label="tmr_1", due_at_ms=NOW_MS),
    ]  # fmt: skip
    found = SimpleNamespace(entry=entry, team="schedules")
    payloads: Any = SimpleNamespace(find_letter=lambda _scope, wanted: found if wanted == name else None)
    made.replica.payloads = payloads
    monkeypatch.setattr(standing_actions, "await_shown", lambda _holds: None)
    monkeypatch.setattr(type(made.console), "cluster", lambda _: SimpleNamespace(admin=None))
    described = SimpleNamespace(partitions=SHARDS)
    monkeypatch.setattr(named_pages.topics, "describe", lambda _, names: dict.fromkeys(names, described))
    yield made
    made.close()


def test_a_cancel_is_in_the_audit_and_then_where_its_way_in_reads_it(
    console: ActingConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    monkeypatch.setattr(named_pages, "Records", lambda _: written)
    name = console.replica.rows[0].name
    form = {"kind": "schedule", "name": name, "reason": "not needed"}
    assert console.ask(EVE, "POST", "/entries/cancel", form).status_code == 404
    looks = Viewer("vic", {"schedules": Role.VIEWER, "x": Role.OPERATOR})
    assert console.ask(looks, "POST", "/entries/cancel", form).status_code == 403
    assert console.ask(ANN, "POST", "/entries/cancel", {**form, "name": "1/schedules/0/77"}).status_code == 404
    assert (written.records, console.audit.told) == ([], [])
    done = console.ask(ANN, "POST", "/entries/cancel", form)
    assert (done.status_code, done.headers["location"]) == (303, "/schedules")
    assert written.records == [("schedules", 2, b"vid1", None)]
    assert console.audit.told == [("cancel", "ann", "not needed", [name], ["schedules"])]


def test_schedules_are_searched_as_on_the_go_admin_page(console: ActingConsole) -> None:
    page = console.ask(ANN, "GET", "/schedules").text
    assert page.index("vid2 &lt;b&gt;") < page.index(">vid1<")
    assert "2 found" in page
    assert "vid2" not in console.ask(ANN, "GET", "/schedules?schedule-id=vid1").text
    later = NOW_MS // 1_000 + 30
    assert "vid2" not in console.ask(ANN, "GET", f"/schedules?epoch-from={later}&epoch-to=&max=&sort-by=epoch+desc").text
    assert "1 found" in console.ask(ANN, "GET", f"/schedules?epoch-to={later}").text
    assert console.ask(ANN, "GET", "/schedules?max=1").text.count("<tr data-row>") == 1
    wrong = console.ask(ANN, "GET", "/schedules?epoch-from=soon")
    assert (wrong.status_code, "epoch-from: &#39;soon&#39; is no moment" in wrong.text) == (400, True)
    # As a browser writes what was picked.
    page = console.ask(ANN, "GET", f"/schedules?epoch-from=2026-09-21T14:13&epoch-to={format_for_picker(str(later))}").text
    assert all(part in page for part in ("1 found", f'value="{format_for_picker(str(later))}"', 'value="2026-09-21T14:13:00"'))
    assert "tmr_1" not in console.ask(ANN, "GET", "/timers").text
    assert "tmr_1" in console.ask(EVE, "GET", "/timers").text


def test_history_is_searched_in_the_same_way_by_who_sees_schedules(
    console: ActingConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {"id": "vid0", "epoch": NOW_MS // 1_000, "timestamp": 5, "topic": "schedules", "value": "c2VjcmV0"}
    monkeypatch.setattr(
        other_entries.search, "read_sent_schedules", lambda _settings, topic: [{**sent, "target-topic": topic}]
    )
    page = console.ask(ANN, "GET", "/schedules/history").text
    assert ("vid0" in page, "<td>history</td>" in page, "c2VjcmV0" in page) == (True, True, False)
    assert console.ask(EVE, "GET", "/schedules/history").status_code == 404


def test_history_of_tasks_and_timers_is_there_for_their_teams(console: ActingConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    console.registry = parse(TASKS, "p")

    def newest(_settings: Any, topic: str, most: Any) -> Iterator[tuple[MemoryRecord, Headers]]:
        assert most(2) == 5_001
        calls = topic.endswith("-calls")
        call = Called("tmr_1", "bank", "hooks.example", "", 2, NOW_MS, 0, NOW_MS, "parked", 410, "Gone", "gone", None, "s3cret")
        values = [call_records.to_json(call), b"{}"] if calls else [b"s3cret", b"s3cret"]
        for n, value in enumerate(values):
            # Of what else is in an output topic, nothing is said.
            headers: Headers = [("task-run", b"7"), ("task-due-ms", b"%d" % NOW_MS)] if n == 0 else []
            yield MemoryRecord(Entry(topic, b"acme/bill", value, headers, None, ""), 1, 41 + n, NOW_MS), headers

    monkeypatch.setattr(other_entries, "read_newest_records", newest)
    runs = Viewer("tom", {"tasks": Role.VIEWER})
    page = console.ask(runs, "GET", "/tasks/history").text
    assert ("1 found" in page, "run 7, in bills/1/41" in page, "acme/bill" in page, "s3cret" in page) == (True, True, True, False)
    assert "0 found" in console.ask(runs, "GET", "/tasks/history?epoch-from=2999-01-01T00:00").text
    page = console.ask(EVE, "GET", "/timers/history").text
    told = "parked because of gone: attempt 2 took 0 s, status 410, Gone"
    assert ("1 found" in page, told in page, "s3cret" in page) == (True, True, False)
    for viewer, path, status in ((runs, "/timers/history", 200), (EVE, "/tasks/history", 404), (ANN, "/tasks/history", 404)):
        answer = console.ask(viewer, "GET", path)
        assert (answer.status_code, "tmr_1" in answer.text, "bill" in answer.text) == (status, False, False)
