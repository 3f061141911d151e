"""Schedules, runs of tasks and calls of timers that were made lately, as their own topics have them: for the pages of history.

What each brings is shown to nobody: neither payloads nor what was answered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from retry import settings as environment
from retry.console.replica.rows import Scope
from retry.console.web.app import Console
from retry.console.web.formats import duration
from retry.kafka import topics
from retry.policies.tasks import TEAM as TASKS
from retry.scheduling.messages import stored_schedules
from retry.scheduling.messages.entry_source import TEAM as SCHEDULES
from retry.scheduling.newest_records import newest_records
from retry.scheduling.tasks.waiting_tasks import sent_run
from retry.telemetry import call_records
from retry.telemetry.call_records import Called

log = logging.getLogger(__name__)

# Of each kind, of all topics and partitions together.
_NEWEST = 10_000
# Whose a history is; calls of timers are of the team that each names.
TEAMS = {"schedule": SCHEDULES, "task": TASKS, "timer": None}


def iterate_sent(console: Console, scope: Scope, kind: str) -> Iterator[dict[str, Any]]:
    """Read what was sent lately, in no order, in the form that `search` takes; runs and calls have an `outcome`, too.

    Args:
      scope: the teams whose calls of timers are wanted; schedules and runs are not filtered by it.

    Raises:
      TopicsInvalid: a topic cannot be read.
      BrokersUnreachable: nobody answered.
    """
    _demand_brokers(console)
    if kind == "timer":
        return _calls(console, scope)
    return _schedules(console) if kind == "schedule" else _runs(console)


def _demand_brokers(console: Console) -> None:
    # Where they were never there this says so at once.
    console.cluster()


def _schedules(console: Console) -> Iterator[dict[str, Any]]:
    topic = environment.of_process().get("HISTORY_TOPIC") or "history"
    for each in stored_schedules.read_sent_schedules(console.settings, topic):
        yield {**each, "team": SCHEDULES, "value": None}


def _runs(console: Console) -> Iterator[dict[str, Any]]:
    """A run is a record of an output topic, in which other records may be, too."""
    about = console.registry().tasks
    outputs = sorted(about.allowed) if about else []
    for topic in outputs:
        for message, headers in newest_records(console.settings, topic, lambda n: _NEWEST // (n * len(outputs)) + 1):
            if (run := sent_run(message, headers)) is not None:
                key = message.key() or b""
                yield {
                    "id": key.decode("utf-8", "backslashreplace"), "epoch": run.due_ms // 1_000,
                    "timestamp": max(0, message.timestamp()[1]) // 1_000, "topic": "", "target-topic": topic, "team": TASKS,
                    "outcome": f"run {run.number}, in {run.topic}/{run.partition}/{run.offset}",
                }  # fmt: skip


def _calls(console: Console, scope: Scope) -> Iterator[dict[str, Any]]:
    """The topic keeps the last call of each timer at least."""
    topic = topics.build_topic_names(console.settings.app_id).calls
    for message, _ in newest_records(console.settings, topic, lambda n: _NEWEST // n + 1):
        try:
            call = call_records.read(message.value() or b"")
        except ValueError:
            # It is counted and told where the same topic is read by `retry api`.
            continue
        if scope is None or call.team in scope:
            yield {
                "id": call.id, "epoch": call.due_ms // 1_000, "timestamp": call.at_ms // 1_000, "topic": call.team,
                "target-topic": call.host, "team": call.team, "outcome": _outcome(call),
            }  # fmt: skip


def _outcome(call: Called) -> str:
    """Describe in words how a call of a timer ended.

    >>> _outcome(Called("t", "shop", "h", "", 2, 9, 400, 1, "parked", 503, None, "max_attempts", None, ""))
    'parked because of max_attempts: attempt 2 took 0.4 s, status 503'
    """
    decision = "it is called again" if call.decision == "retry" else call.decision
    because = f" because of {call.reason}" if call.reason else ""
    told = [f"attempt {call.attempt} took {duration(call.took_ms)}"]
    told += [f"status {call.status}"] if call.status is not None else []
    told += [call.error] if call.error else []
    return f"{decision}{because}: {', '.join(told)}"
