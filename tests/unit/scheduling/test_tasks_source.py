"""What becomes of each record of a topic of definitions."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from backoff.recurrence import PAUSED_MS
from retry.delay_queue import entry_keys, envelope_codec, envelopes
from retry.errors import SchemaUnavailable
from retry.intake.batch import BatchResult
from retry.intake.entry_source import CANCELS_REMEMBERED_MS, QueueLimits, RecordVersions
from retry.policies.policy_file import parse
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.definition import UNITS_MS, encode_sample, make_samples
from retry.scheduling.tasks.entry_source import TasksSource
from retry.scheduling.tasks.formats import AVRO, JSON, Reader
from retry.testing.memory_table import MemoryTable

NOW_MS = 1_795_000_000_000
TASKS = """\
tasks: {topics: [task-schedules, more], allowed_targets: [bills, mails], shortest: 1ms, misfire: skip, late: 5s, catch_up: 3}
"""
KEY = {"customerId": "acme", "taskName": "bill"}
SHARDS = 4


class Message:
    def __init__(self, key, value, offset=7, topic="task-schedules", partition=2, at_ms=NOW_MS - 500, headers=None):
        self._told = topic, partition, offset, key, value, headers, (1, at_ms)

    topic, partition, offset, key, value, headers, timestamp = (
        (lambda self, n=n: self._told[n]) for n in range(7)
    )  # fmt: skip


def no_registry(number):
    raise SchemaUnavailable(f"schema {number}: there is no registry")


def result(*messages, bytes_max=1_000_000):
    into = BatchResult()
    limits = QueueLimits(SHARDS, bytes_max, RecordVersions())
    source = TasksSource(parse(TASKS, "p").tasks, Reader(no_registry), "retry-parked", limits)
    assert list(source.topics) == ["more", "task-schedules"] and source.permits_target("tasks", "bills")
    assert not source.permits_target("pay", "bills")
    source.prepare(messages, NOW_MS, into)
    return into


def one(message, **options):
    """Key, entry and shard of the only row."""
    into = result(message, **options)
    ((shard, (row,)),) = into.entries.items()
    return row["key"], envelope_codec.PLAIN.decode(row["key"], row["value"]), shard


def definition_of(frequency=None, configurations=None, output_topic="bills", key=KEY):
    config = {"outputTopic": output_topic, "configurations": configurations}
    return {**key, "frequency": frequency, "config": config, "data": {"a": "b"}}


def as_json(value):
    return json.dumps(value).encode()


def task(frequency=None, configurations=None, **more):
    return Message(as_json(KEY), as_json(definition_of(frequency, configurations)), **more)


SECOND = {"frequencyTimeUnit": "SECONDS", "time": 1}


@pytest.mark.parametrize("form", [AVRO, JSON])
def test_0_1_0_7_0_11_a_definition_is_an_entry_for_its_own_topic_in_its_own_bytes(form):
    if form == AVRO:
        definition = formats.encode_avro(definition_of(SECOND), formats.package_schema(formats.DEFINITION_SCHEMA))
        payloads = formats.encode_avro(KEY, formats.package_schema(formats.KEY_SCHEMA)), definition
    else:
        payloads = as_json(KEY), as_json(definition_of(SECOND))
    key, entry, shard = one(Message(*payloads, headers=[("theirs", b"x"), ("task-run", b"99")]))
    name = entry_keys.hash_name("tasks", "task-schedules", b'["acme","bill"]')
    assert (entry_keys.name_of(key), shard) == (name, entry_keys.find_shard(name, SHARDS))
    assert entry_keys.read_source(key) == (NOW_MS + 500, "task-schedules", 2, 7)
    assert entry_keys.lane_of(key) == entry_keys.build_named_lane("tasks", "task-schedules", "bills")
    assert (entry.destination, entry.key, entry.value, entry.team) == ("bills", *payloads, "tasks")
    assert entry.headers == [("theirs", b"x"), ("task-run", b"1"), ("task-due-ms", b"%d" % (NOW_MS + 500))]
    assert entry.timestamp_ms is None


@pytest.mark.parametrize("unit", UNITS_MS)
def test_0_5_the_first_run_is_one_period_after_the_definition(unit):
    key, entry, _ = one(task({"frequencyTimeUnit": unit, "time": 2}))
    assert entry_keys.due_at_ms(key) == NOW_MS - 500 + 2 * UNITS_MS[unit]
    plan = entry.plan
    assert (plan.run, plan.start_ms, plan.every_ms) == (1, NOW_MS - 500, 2 * UNITS_MS[unit])
    assert (plan.misfire, plan.late_ms, plan.catch_up_max) == ("skip", 5_000, 3)


@pytest.mark.parametrize("unit", UNITS_MS)
def test_0_10_one_door_adds_changes_finds_and_deletes_tasks_of_each_unit(unit):
    """Do what the seed has a handler of each unit for: add, get, delete, and how long a period is."""
    table = MemoryTable()

    def list_periods(message):
        rows = [(row["key"], row["value"]) for of_shard in result(message).entries.values() for row in of_shard]
        table.apply_records(rows, table.next_offset + len(rows), NOW_MS)
        return [envelopes.decode_named(table.get(key)).plan.every_ms for _, key, _ in table.scan_entries(b"", 10)]

    assert list_periods(task({"frequencyTimeUnit": unit, "time": 1})) == [UNITS_MS[unit]]
    assert list_periods(task({"frequencyTimeUnit": unit, "time": 3}, offset=8)) == [3 * UNITS_MS[unit]]
    assert list_periods(Message(as_json(KEY), None, offset=9)) == []


def test_0_9_customers_have_tasks_of_the_same_name_each_of_its_own():
    def name(customer, job, topic="task-schedules"):
        key = {"customerId": customer, "taskName": job}
        return entry_keys.name_of(one(Message(as_json(key), as_json(definition_of(SECOND, key=key)), topic=topic))[0])

    found = [name("acme", "bill"), name("bcme", "bill"), name("acme", "mail"), name("acme", "bill", "more"), name("acmeb", "ill")]
    found += [name("a\0b", "c"), name("a", "b\0c"), name('a","b', "c"), name("a", 'b","c')]
    assert len(set(found)) == 9 and name("acme", "bill") == found[0]


def test_0_9_a_task_has_one_name_whatever_the_form_of_its_key():
    binary = Message(formats.encode_avro(KEY, formats.package_schema(formats.KEY_SCHEMA)), as_json(definition_of(SECOND)))
    assert entry_keys.name_of(one(binary)[0]) == entry_keys.name_of(one(task(SECOND))[0])


def test_0_14_a_null_is_a_cancel_of_what_was_before_it():
    key, entry, shard = one(Message(as_json(KEY), None, offset=9))
    planned, _, same = one(task(SECOND))
    assert entry_keys.lane_of(key) == entry_keys.CANCEL
    assert entry_keys.due_at_ms(key) == NOW_MS + CANCELS_REMEMBERED_MS
    assert (entry_keys.name_of(key), shard) == (entry_keys.name_of(planned), same)
    assert entry.destination == ""


def test_0_14_without_a_frequency_it_is_once_and_now():
    key, entry, _ = one(task())
    assert entry_keys.due_at_ms(key) == NOW_MS - 500 and (entry.plan.every_ms, entry.plan.cron) == (0, "")
    later, _, _ = one(task(None, {"schedule.start": "2030-01-01T00:00:00Z"}))
    assert entry_keys.due_at_ms(later) == 1_893_456_000_000


def test_a_start_of_its_own_is_the_first_run_and_the_grid_of_all_others():
    start = {"schedule.start": "2030-01-01T00:00:00Z"}
    key, entry, _ = one(task(SECOND, start))
    assert (entry_keys.due_at_ms(key), entry.plan.run) == (1_893_456_000_000, 0)
    hours = {"frequencyTimeUnit": "HOURS", "time": 1}
    key, entry, _ = one(task(hours, {"schedule.start": "2020-01-01T00:30:00Z"}))
    assert NOW_MS - 500 <= entry_keys.due_at_ms(key) < NOW_MS + 3_600_000 and entry_keys.due_at_ms(key) % 3_600_000 == 1_800_000
    assert entry_keys.due_at_ms(key) == entry.plan.start_ms + entry.plan.run * 3_600_000
    assert (b"%d" % entry.plan.run, b"%d" % entry_keys.due_at_ms(key)) == (entry.headers[-2][1], entry.headers[-1][1])


def test_cron_goes_by_the_clocks_of_its_zone():
    key, entry, _ = one(task(None, {"schedule.cron": "30 2 * * *", "schedule.timeZone": "Asia/Kolkata"}))
    assert entry_keys.due_at_ms(key) % 86_400_000 == 75_600_000 and entry_keys.due_at_ms(key) > NOW_MS - 500
    assert (entry.plan.cron, entry.plan.zone, entry.plan.run) == ("30 2 * * *", "Asia/Kolkata", 0)


def test_a_definition_whose_runs_are_all_over_ends_its_task():
    key, _, _ = one(task(SECOND, {"schedule.end": "2020-01-01T00:00:00Z"}))
    assert entry_keys.lane_of(key) == entry_keys.CANCEL


@pytest.mark.parametrize("at_ms", [0, -1, 5, NOW_MS + 10**9])
def test_a_time_that_cannot_be_is_now(at_ms):
    assert entry_keys.due_at_ms(one(task(SECOND, at_ms=at_ms))[0]) == NOW_MS + 1_000


def test_what_a_task_says_of_itself_goes_before_the_policy_file():
    _, entry, _ = one(task(SECOND, {"schedule.misfire": "all", "schedule.late": "1s", "schedule.catchUp": "9"}))
    assert (entry.plan.misfire, entry.plan.late_ms, entry.plan.catch_up_max) == ("all", 1_000, 9)


class Unreadable(Message):
    def headers(self):
        raise SystemError


PARKED = [
    (Message(None, as_json(definition_of(SECOND))), "bad_task", "no key"),
    (Message(b"acme/bill", as_json(definition_of(SECOND))), "bad_task", "not Avro"),
    (Message(as_json({"customerId": "acme"}), as_json(definition_of(SECOND))), "bad_task", "taskName"),
    (Message(b"{", None), "bad_task", "not JSON"),
    (Message(as_json(KEY), b""), "bad_task", "not Avro"),
    (Message(as_json(KEY), as_json(definition_of(SECOND, key={"customerId": "else"}))), "bad_task", "'acme' in the key"),
    (Message(as_json(KEY), as_json(definition_of(SECOND, output_topic="secrets"))), "target_not_allowed", "secrets is not among"),
    (Message(as_json(KEY), as_json(definition_of({"cron": "* * * *"}))), "bad_task", "five fields"),
    (Message(b"\0\0\0\0\5abc", None), "no_schema", "there is no registry"),
    (Message(as_json(KEY), b"\0\0\0\0\5abc"), "no_schema", "there is no registry"),
    (Unreadable(as_json(KEY), as_json(definition_of(SECOND))), "unreadable_headers", "UTF-8"),
]


@pytest.mark.parametrize(("message", "reason", "fault"), PARKED, ids=[f"{reason} {fault}" for _, reason, fault in PARKED])
def test_what_cannot_be_used_is_parked_as_it_is_with_the_reason(message, reason, fault):
    key, entry, _ = one(message)
    headers = dict(entry.headers)
    assert (entry.destination, entry.key, entry.value) == ("retry-parked", message.key(), message.value())
    assert headers["retry-parked-reason"] == reason.encode() and fault in headers["retry-parked-fault"].decode()
    assert headers["task-source"] == b"task-schedules/2/7" and "retry-source" not in headers
    assert entry_keys.read_source(key) == (NOW_MS, "task-schedules", 2, 7)
    # It is nobody's definition: what was defined before stays.
    assert entry_keys.name_of(key) != entry_keys.hash_name("tasks", "task-schedules", b'["acme","bill"]')


def test_two_records_that_are_parked_do_not_replace_each_other():
    rows = [row for rows in result(Message(b"?", None), Message(b"?", None, offset=8)).entries.values() for row in rows]
    assert len({entry_keys.name_of(row["key"]) for row in rows}) == 2


def test_a_period_shorter_than_allowed_is_parked():
    tasks = parse(TASKS.replace("1ms", "1m"), "p").tasks
    into = BatchResult()
    limits = QueueLimits(SHARDS, 10**6, RecordVersions())
    TasksSource(tasks, Reader(no_registry), "retry-parked", limits).prepare([task(SECOND)], NOW_MS, into)
    ((_, (row,)),) = into.entries.items()
    assert b"shorter than tasks.shortest" in dict(envelopes.decode_named(row["value"]).headers)["retry-parked-fault"]


def test_a_definition_that_fits_nowhere_is_parked_by_reference():
    whole = task(SECOND, {"theirs": "x" * 2_000})
    _, entry, _ = one(whole, bytes_max=1_000)
    assert (entry.destination, entry.key, entry.value) == ("retry-parked", whole.key(), None)
    assert dict(entry.headers)["retry-parked-reason"] == b"too_large"


def test_one_bad_record_does_not_keep_the_others_from_coming_in():
    made = [Message(*encode_sample(sample), offset=n) for n, sample in enumerate(islice(make_samples(3, ["bills"]), 50))]
    into = result(*made[:25], Message(None, b"?", offset=90), *made[25:], Message(made[0].key(), None, offset=91))
    assert into.decided == {("tasks", "schedule"): 50, ("tasks", "park"): 1, ("tasks", "cancel"): 1}
    assert sum(map(len, into.entries.values())) == 52


def test_0_2_tasks_are_spread_over_the_shards():
    made = [Message(*encode_sample(sample), offset=n) for n, sample in enumerate(islice(make_samples(3, ["bills"]), 400))]
    counts = [len(rows) for rows in result(*made).entries.values()]
    assert len(counts) == SHARDS and min(counts) > 60


def test_the_same_record_always_comes_to_the_same_row():
    jitter = {"schedule.jitter": "900ms"}
    assert result(task(SECOND, jitter)).entries == result(task(SECOND, jitter)).entries
    assert 0 <= entry_keys.due_at_ms(one(task(SECOND, jitter))[0]) - (NOW_MS + 500) <= 900


@pytest.mark.parametrize("configurations", [{}, {"schedule.start": "2026-01-01"}, {"schedule.end": "2100-01-01"}])
def test_a_paused_definition_is_never_due_and_takes_the_place_of_what_was_there(configurations):
    running, _, shard = one(task(SECOND, configurations))
    paused, entry, same_shard = one(task(SECOND, {**configurations, "schedule.paused": "true"}, offset=8))
    assert entry_keys.due_at_ms(paused) == PAUSED_MS and entry_keys.due_at_ms(running) < PAUSED_MS
    assert shard == same_shard
    # Whoever sends it by hand gets this run, and no other one.
    assert envelopes.find_next_run(entry.plan, NOW_MS + 1, NOW_MS + 1) is None
    resumed, _, _ = one(task(SECOND, {**configurations, "schedule.paused": "false"}))
    assert entry_keys.due_at_ms(resumed) == entry_keys.due_at_ms(running)


def test_a_paused_definition_whose_end_is_over_is_deleted():
    over = {"schedule.end": "2020-01-01", "schedule.paused": "true"}
    assert result(task(SECOND, over)).decided == {("tasks", "cancel"): 1}
