"""The section `tasks` of a policy file: what it gives, and what is refused with line, path and reason."""

from __future__ import annotations

import pytest

from backoff.rate_limit import Limit
from retry.errors import PolicyFileInvalid
from retry.policies.policy_file import parse

TEAMS = """\
teams:
  pay:
    topics:
      - dead_letters: pay.DLT
        retry_to: pay.retry
      - dead_letters: {pattern: 'old\\..*'}
        retry_to: pay.retry
"""
TASKS = """\
tasks:
  topics: [task-schedules]
  allowed_targets: [bills, mails]
"""


def test_what_is_left_out_has_a_usual_value():
    registry = parse(TEAMS + TASKS, "p.yaml")
    tasks = registry.tasks
    assert (tasks.topics, tasks.allowed, tasks.park_to) == ({"task-schedules"}, {"bills", "mails"}, None)
    assert (tasks.format, tasks.misfire, tasks.late_ms) == ("auto", "once", 60_000)
    assert (tasks.catch_up_max, tasks.shortest_ms) == (100, 100)
    assert registry.defines("task-schedules") and not registry.defines("pay.DLT")
    assert registry.list_targets() == {"pay.retry", "bills", "mails"}
    assert registry.permits_target("tasks", "bills")
    assert not registry.permits_target("tasks", "pay.retry") and not registry.permits_target("pay", "bills")
    assert registry.retry_targets() == {"pay.retry"} and registry.parking() == set()


def test_everything_may_be_said():
    more = ["park_to: bad-tasks", "format: avro", "misfire: all", "late: 5s", "catch_up: 9", "shortest: 1ms", "rate: 100/s"]
    registry = parse(TASKS + "".join(f"  {line}\n" for line in [*more, "budget: 9/1d"]), "p.yaml")
    tasks = registry.tasks
    assert (tasks.park_to, tasks.format, tasks.misfire, tasks.late_ms, tasks.catch_up_max, tasks.shortest_ms) == (
        "bad-tasks", "avro", "all", 5_000, 9, 1,
    )  # fmt: skip
    assert registry.parking() == {"bad-tasks"} and registry.permits_target("tasks", "bad-tasks")
    assert registry.team_limits == {"tasks": (Limit(100, 1_000), Limit(9, 86_400_000))}


def test_a_file_without_the_section_has_no_tasks():
    registry = parse(TEAMS, "p.yaml")
    assert registry.tasks is None and not registry.knows("tasks") and not registry.defines("task-schedules")


REFUSED = [
    ("tasks:\n", 1, "tasks", "expected `mapping`"),
    ("tasks: {topics: [t]}\n", 1, "tasks", "allowed_targets is missing"),
    ("tasks:\n  topics: []\n  allowed_targets: []\n", 2, "tasks.topics", "length"),
    (TASKS + "  topic: t\n", 4, "tasks.topic", "did you mean topics?"),
    ("tasks:\n  topics:\n  - good\n  - 'b*d'\n  allowed_targets: []\n", 4, "tasks.topics[1]", "is not a topic name"),
    ("tasks:\n  topics: [t, t]\n  allowed_targets: []\n", 2, "tasks.topics[1]", "given twice"),
    ("tasks:\n  topics: [t]\n  allowed_targets: [a, __b]\n", 3, "tasks.allowed_targets[1]", "internal to Kafka"),
    ("tasks:\n  topics: [t]\n  allowed_targets: [t]\n", 3, "tasks.allowed_targets[0]", "a task would define tasks"),
    ("tasks:\n  topics: [t]\n  allowed_targets: []\n  park_to: t\n", 4, "tasks.park_to", "a task would define tasks"),
    (TEAMS + "tasks: {topics: [pay.DLT], allowed_targets: []}\n", 8, "tasks.topics[0]", "read as dead letters"),
    (TEAMS + "tasks: {topics: [old.tasks], allowed_targets: []}\n", 8, "tasks.topics[0]", "read as dead letters"),
    (TEAMS + "tasks: {topics: [pay.retry], allowed_targets: []}\n", 8, "tasks.topics[0]", "letters may be sent to pay.retry"),
    (TEAMS + "tasks: {topics: [t], allowed_targets: [old.one]}\n", 8, "tasks.allowed_targets[0]", "read as dead letters"),
    (TASKS + "  format: xml\n", 4, "tasks.format", "auto, avro, confluent, json"),
    (TASKS + "  misfire: twice\n", 4, "tasks.misfire", "once, skip, all"),
    (TASKS + "  late: 5\n", 4, "tasks.late", "write it like"),
    (TASKS + "  late: 0s\n", 4, "tasks.late", "shorter than 1s"),
    (TASKS + "  catch_up: 0\n", 4, "tasks.catch_up", ">= 1"),
    (TASKS + "  shortest: fast\n", 4, "tasks.shortest", "write it like"),
    (TASKS + "  rate: fast\n", 4, "tasks.rate", "write it like"),
    (TASKS + TEAMS.replace("pay:", "tasks:"), 5, "teams.tasks", "another name"),
    (TASKS + "targets: {nowhere: {rate: 1/s}}\n", 4, "targets.nowhere", "no task, may go there"),
]


@pytest.mark.parametrize(("text", "line", "path", "told"), REFUSED, ids=[told for *_, told in REFUSED])
def test_mistakes_are_refused_with_line_path_and_reason(text, line, path, told):
    with pytest.raises(PolicyFileInvalid) as caught:
        parse(text, "p.yaml")
    assert (caught.value.line, caught.value.path) == (line, path)
    assert told in caught.value.reason
