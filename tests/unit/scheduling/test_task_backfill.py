"""Runs that a backfill plans for a task, and definitions that are written again in their own form."""

from __future__ import annotations

import json

import pytest

from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelopes import Named, Recurrence
from retry.errors import ActionRefused, SchemaUnavailable, TaskInvalid
from retry.scheduling.tasks import formats
from retry.scheduling.tasks.formats import Reader
from retry.scheduling.tasks.waiting_tasks import RUNS_MAX, Task, plan_backfill

HOUR_MS = 3_600_000
BEGAN_MS = 1_767_225_600_000
AVRO_TEXTS = tuple(formats.schema_text(name) for name in formats.DEFINITION_SCHEMA)


def make_task(**plan):
    headers = [("tenant", b"acme"), ("task-run", b"7"), ("task-due-ms", b"1")]
    entry = Named("bills", b"key", b"value", headers, None, "tasks", plan=Recurrence(7, BEGAN_MS, **plan))
    return Task("acme/bill", Source(BEGAN_MS, "definitions", 0, 3), entry, entry.plan)


def list_due_times(task, from_ms, to_ms):
    return [int(dict(run.headers)["task-due-ms"]) for run in plan_backfill(task, from_ms, to_ms)]


def test_runs_of_a_period_keep_its_rhythm_with_both_ends_and_before_its_start():
    task = make_task(every_ms=HOUR_MS, jitter_ms=1_000, end_ms=BEGAN_MS)
    expected = [BEGAN_MS + n * HOUR_MS for n in range(-2, 4)]
    assert list_due_times(task, expected[0], expected[-1]) == expected
    assert list_due_times(task, expected[0] - 1, expected[-1] + 1) == expected
    assert list_due_times(task, expected[0] + 1, expected[-1] - 1) == expected[1:-1]


def test_runs_of_a_cron_expression_are_those_of_its_zone():
    task = make_task(cron="0 6 * * *", zone="Europe/Berlin")
    day_ms = 24 * HOUR_MS
    # 29 March 2026, when the clocks of that zone change.
    summer_ms = 1_774_742_400_000
    expected = [summer_ms - day_ms + 5 * HOUR_MS, summer_ms + 4 * HOUR_MS]
    assert list_due_times(task, summer_ms - day_ms, summer_ms + day_ms) == expected


def test_a_run_has_what_its_definition_has_and_no_number():
    (run,) = plan_backfill(make_task(every_ms=HOUR_MS), BEGAN_MS, BEGAN_MS)
    assert (run.destination, run.key, run.value) == ("bills", b"key", b"value")
    assert run.headers == [("tenant", b"acme"), ("task-backfill", b"true"), ("task-due-ms", b"%d" % BEGAN_MS)]


@pytest.mark.parametrize(
    ("plan", "hours", "said"),
    [({"every_ms": HOUR_MS}, 0.5, "no run from"), ({"every_ms": 1_000}, 5, f"more than {RUNS_MAX:,}"), ({}, 5, "runs once")],
)
def test_a_backfill_that_asks_for_nothing_or_too_much_is_refused(plan, hours, said):
    with pytest.raises(ActionRefused, match=said):
        plan_backfill(make_task(**plan), BEGAN_MS + 1, BEGAN_MS + 1 + int(hours * HOUR_MS))
    assert len(plan_backfill(make_task(every_ms=1_000), BEGAN_MS, BEGAN_MS + (RUNS_MAX - 1) * 1_000)) == RUNS_MAX


def frame_payload(payload, number=5):
    return b"\0" + number.to_bytes(4, "big") + payload


DEFINITION = {
    "customerId": "acme", "taskName": "bill", "frequency": {"frequencyTimeUnit": "SECONDS", "time": 1},
    "config": {"outputTopic": "bills", "configurations": None}, "data": {"a": "b"},
}  # fmt: skip
CHANGED = {**DEFINITION, "config": {"outputTopic": "bills", "configurations": {"schedule.paused": "true"}}}


@pytest.mark.parametrize("kind", ["json", "avro", "framed avro", "framed json"])
def test_a_definition_is_written_again_in_its_own_form(kind):
    reader = Reader(lambda _number: ("AVRO", AVRO_TEXTS) if kind == "framed avro" else ("JSON", ("{}",)))
    payload = json.dumps(DEFINITION).encode()
    if "avro" in kind:
        payload = formats.encode_avro(DEFINITION, formats.package_schema(formats.DEFINITION_SCHEMA))
    former = frame_payload(payload) if "framed" in kind else payload
    written = reader.encode_definition(former, CHANGED)
    assert reader.definition(written) == CHANGED and formats.find_form(written) == formats.find_form(former)
    assert "framed" not in kind or written[:5] == former[:5]


def test_a_definition_that_its_schema_does_not_take_or_that_has_none_is_refused():
    def no_registry(number):
        raise SchemaUnavailable(f"schema {number}: there is no registry")

    avro = formats.encode_avro(DEFINITION, formats.package_schema(formats.DEFINITION_SCHEMA))
    with pytest.raises(TaskInvalid, match="does not take it"):
        Reader(no_registry).encode_definition(avro, {**CHANGED, "frequency": "often"})
    with pytest.raises(SchemaUnavailable):
        Reader(no_registry).encode_definition(frame_payload(avro), CHANGED)
