"""A scheduler without Kafka: schedules in memory, for tests of what asks the REST API.

    mini = Mini()
    mini.send_record(client.schedule(topic="online", key=b"1", value=b"x", at=time.time() + 60, schedule_id="a"))
    mini.fire(now_ms)      # what is due by then, as it would be sent

`retry scheduler --mini` serves three schedules, due in one, two and three minutes, each of which is made again when it was sent.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from retry import clock
from retry.process.logs import configure_logs
from retry.record import CREATE_TIME, Headers, Record
from retry.scheduling import client
from retry.scheduling.messages.rest_api import ScheduleSources, build_rest_server, read_rest_certificate
from retry.scheduling.messages.schedule_request import Cancel, Put, Rules, read_request
from retry.scheduling.messages.search import ALL, Query, ScheduleJson, read_history_schedule
from retry.scheduling.messages.settings import SchedulerSettings, build_scheduler_logging

log = logging.getLogger(__name__)

_EXAMPLES = (1, 2, 3)
_MINUTE_MS = 60_000
_POLL_S = 0.2
_HISTORY_MAX = 1_000


class FiredMessage(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class _WaitingMessage(NamedTuple):
    due_at_ms: int
    message: FiredMessage
    shown: ScheduleJson


class Mini:
    """Schedules by key; not for several threads."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, _WaitingMessage] = {}
        self._sent: list[ScheduleJson] = []
        self._rules = Rules(lambda _topic: True)

    def send_record(self, record: Mapping[str, Any], now_ms: int | None = None) -> None:
        """Take in a record of a schedules topic; see `retry.scheduling.client`."""
        now_ms = clock.wall_ms() if now_ms is None else now_ms
        key, value = record["key"], record["value"]
        schedule = Record((record["topic"], 0, 0), key, value, list(record["headers"]), (CREATE_TIME, now_ms))
        request = read_request(schedule, now_ms, self._rules)
        if isinstance(request, Put):
            message = FiredMessage(request.target, request.target_key, value, request.headers)
            shown = read_history_schedule(request.headers + request.history, request.target_key, value)
            self._waiting[key] = _WaitingMessage(request.due_at_ms, message, {**shown, "epoch": request.due_at_ms // 1_000})
        elif isinstance(request, Cancel) or key:
            self._waiting.pop(key, None)

    def fire(self, now_ms: int) -> list[FiredMessage]:
        """Send what is due, in due order; it waits no longer."""
        keys = sorted((waits.due_at_ms, key) for key, waits in self._waiting.items() if waits.due_at_ms <= now_ms)
        fired = [self._waiting.pop(key) for _, key in keys]
        self._sent = [*self._sent, *(each.shown for each in fired)][-_HISTORY_MAX:]
        return [each.message for each in fired]

    def schedules(self, _query: Query = ALL) -> list[ScheduleJson]:
        return [each.shown for each in list(self._waiting.values())]

    def list_sent_schedules(self, _query: Query = ALL) -> list[ScheduleJson]:
        return self._sent


def run(settings: SchedulerSettings) -> None:
    """Serve three schedules until SIGTERM or SIGINT."""
    configure_logs(build_scheduler_logging(settings))
    asyncio.run(_serve(settings))


async def _serve(settings: SchedulerSettings) -> None:
    mini, stopped = Mini(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    for record in _examples(_EXAMPLES):
        mini.send_record(record)
    sources = ScheduleSources(mini.schedules, mini.schedules, mini.list_sent_schedules)
    server = build_rest_server(settings, sources, lambda: True, "mini", read_rest_certificate(settings))
    server.start()
    while not stopped.is_set():
        for sent in mini.fire(clock.wall_ms()):
            log.info("sent to %s: key %s", sent.topic, sent.key)
            for record in _examples([int(sent.key or 0)]):
                mini.send_record(record)
        try:
            await asyncio.wait_for(stopped.wait(), _POLL_S)
        except TimeoutError:
            continue
    server.stop()


def _examples(numbers: Iterable[int]) -> Iterator[Mapping[str, Any]]:
    for n in numbers:
        at = (clock.wall_ms() + n * _MINUTE_MS) // 1_000
        yield client.schedule(topic="topic", key=b"%d" % n, value=b"value %d" % n, at=at, schedule_id=f"schedule-{n}")
