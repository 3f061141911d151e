"""Entries that the replica does not have: what was sent lately, as its own topics have it, and schedules of other schedulers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec

from retry import settings as environment
from retry.clock import Deadline
from retry.console.rows import Scope
from retry.console.web.app import Console
from retry.console.web.formats import duration
from retry.errors import SettingsInvalid
from retry.kafka import topics
from retry.kafka.topic_ends import read_newest_records
from retry.policies.tasks import TEAM as TASKS
from retry.scheduling.messages import search
from retry.scheduling.messages.entry_source import TEAM as SCHEDULES
from retry.scheduling.messages.search import MAX, Query
from retry.scheduling.tasks.waiting_tasks import read_sent_run
from retry.telemetry import call_records
from retry.telemetry.call_records import Called

# Schedules, runs of tasks and calls of timers that were made lately, as their own topics have them: for the pages of history.
#
# What each brings is shown to nobody: neither payloads nor what was answered.

log = logging.getLogger(__name__)

# Of each kind, of all topics and partitions together.
_NEWEST = 10_000
# Whose a history is; calls of timers are of the team that each names.
TEAMS = {"schedule": SCHEDULES, "task": TASKS, "timer": None}


def iterate_sent(console: Console, scope: Scope, kind: str) -> Iterator[dict[str, Any]]:
    """Read what was sent lately, in no order, in the form that `search` takes; runs and calls have an `outcome`, too.

    Only calls of timers are limited to the teams of `scope`. Raises TopicsInvalid, BrokersUnreachable.
    """
    _demand_brokers(console)
    if kind == "timer":
        return _calls(console, scope)
    return _schedules(console) if kind == "schedule" else _runs(console)


def _demand_brokers(console: Console) -> None:
    # Where they were never there this says so at once.
    console.cluster()


def _schedules(console: Console) -> Iterator[dict[str, Any]]:
    topic = environment.copy_environment().get("HISTORY_TOPIC") or "history"
    for each in search.read_sent_schedules(console.settings, topic):
        yield {**each, "team": SCHEDULES, "value": None}


def _runs(console: Console) -> Iterator[dict[str, Any]]:
    about = console.registry().tasks
    outputs = sorted(about.allowed) if about else []
    for topic in outputs:
        for message, headers in read_newest_records(console.settings, topic, lambda n: _NEWEST // (n * len(outputs)) + 1):
            if (run := read_sent_run(message, headers)) is not None:
                key = message.key() or b""
                yield {
                    "id": key.decode("utf-8", "backslashreplace"), "epoch": run.due_ms // 1_000,
                    "timestamp": max(0, message.timestamp()[1]) // 1_000, "topic": "", "target-topic": topic, "team": TASKS,
                    "outcome": f"run {run.number}, in {run.topic}/{run.partition}/{run.offset}",
                }  # fmt: skip


def _calls(console: Console, scope: Scope) -> Iterator[dict[str, Any]]:
    """The topic keeps the last call of each timer at least."""
    topic = topics.build_topic_names(console.settings.app_id).calls
    for message, _ in read_newest_records(console.settings, topic, lambda n: _NEWEST // n + 1):
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


# Schedules of other schedulers, asked by their REST API: each has a changelog of its own, which this console does not follow.

_SETTING = "RETRY_CONSOLE_SCHEDULERS"
_ENTRY = re.compile(r"(?P<name>[\w.-]{1,60})=(?P<url>https?://[^\s/,]+(?:/[^\s,]*)?)", re.ASCII)
_WITHIN_S = 5.0
_BYTES_MAX = 32 << 20
# Of one; ten questions.
_ROWS_MAX = 10 * MAX
_AT_ONCE = 8


# What is shown of one, and it tells what to sort by. Payloads are shown to nobody here: nothing tells whose they are.
Schedule = TypedDict("Schedule", {"id": str, "epoch": int, "timestamp": int, "topic": str, "target-topic": str})
_decode = msgspec.json.Decoder(list[Schedule]).decode


class OtherScheduler(NamedTuple):
    """A scheduler that is asked, at the URL of its REST API, without a slash at the end."""

    name: str
    url: str


class Answer(NamedTuple):
    """The schedules that one scheduler answered with, or why there are none.

    Attributes:
      fault: why there is no answer, or which part of it is missing; empty where it is complete.
    """

    scheduler: str
    schedules: list[Any]
    total: int
    fault: str = ""


def read(text: str) -> list[OtherScheduler]:
    """Parse a setting such as `eu=http://10.0.0.5:8000,us=http://10.1.0.5:8000`; raises SettingsInvalid."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise SettingsInvalid(_SETTING, f"{part!r} is not name=http://host:port")
        found.append(OtherScheduler(match["name"], match["url"].rstrip("/")))
    return found


def ask_schedulers(schedulers: Sequence[OtherScheduler], place: str, query: Query) -> list[Answer]:
    """Ask all schedulers at once for `live` or `history`, each for its rows up to the end of this page."""
    if not schedulers:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(schedulers)), "schedulers") as pool:
        return list(pool.map(lambda each: _fetch_schedules(each, place, query), schedulers))


def _fetch_schedules(scheduler: OtherScheduler, place: str, query: Query) -> Answer:
    wanted, deadline = query.skip + query.rows_max, Deadline(_WITHIN_S)
    rows: list[Schedule] = []
    total, bytes_left = 0, _BYTES_MAX
    try:
        while len(rows) < min(wanted, _ROWS_MAX):
            most = min(wanted - len(rows), MAX)
            url = f"{scheduler.url}/{place}/schedules?{urlencode(_parameters(query, most, len(rows)))}"
            with urlopen(url, timeout=max(0.1, deadline.remaining_s())) as answer:  # noqa: S310 the setting allows http and https alone
                body = answer.read(bytes_left + 1)
                bytes_left -= len(body)
                if bytes_left < 0:
                    return Answer(scheduler.name, [], 0, "its answer is too large; search for less")
                found = _decode(body)
                counted = answer.headers.get("X-Total-Count", "")
            rows += found
            total = int(counted) if counted.isdigit() else len(rows)
            if len(found) < most or len(rows) >= total:
                break
    except (OSError, HTTPException, msgspec.MsgspecError, ValueError) as error:
        return Answer(scheduler.name, [], 0, f"it did not answer: {error}")
    fault = f"only the first {len(rows):,} of its {total:,} are looked at" if len(rows) < min(wanted, total) else ""
    return Answer(scheduler.name, [{**row, "scheduler": scheduler.name} for row in rows], total, fault)


def _parameters(query: Query, most: int, skip: int) -> dict[str, str]:
    given = {
        "schedule-id": query.part, "epoch-from": query.from_s, "epoch-to": query.to_s,
        "sort-by": f"{query.field} {'desc' if query.descending else 'asc'}", "max": most, "skip": skip or None,
    }  # fmt: skip
    return {name: str(value) for name, value in given.items() if value not in (None, "")}
