"""A scheduler without Kafka: schedules in memory, for tests of what asks the REST API.

    mini = Mini()
    mini.send(client.schedule(topic="online", key=b"1", value=b"x", at=time.time() + 60, schedule_id="a"))
    mini.fire(now_ms)      # what is due by then, as it would be sent

`retry scheduler --mini` serves three schedules, due in one, two and three minutes, each of which is made again when it was sent.
"""

from __future__ import annotations

import asyncio
import logging.config
import signal
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from retry.scheduling import client
from retry import clock
from retry.delay_queue import entry as entries
from retry.scheduling.messages.schedule_request import Cancel, Put, Rules, asked
from retry.scheduling.messages.entry_source import DOOR
from retry.delay_queue.entry import Entry
from retry.record import Headers
from retry.testing.kafka import MemoryRecord
from retry.scheduling.messages.body_decoder import decoded
from retry.scheduling.messages.info import info
from retry.scheduling.messages.logs import logging_of
from retry.scheduling.messages.rest_api import Rest, Sources
from retry.scheduling.messages.search import ALL, Query
from retry.scheduling.messages.settings import SchedulerSettings
from retry.scheduling.messages.schedule_json import Shown, of_entry, of_history

log = logging.getLogger(__name__)

_EXAMPLES = (1, 2, 3)
_MINUTE_MS = 60_000
_LOOK_S = 0.2
_HISTORY_MAX = 1_000


class Sent(NamedTuple):
    """A message as it would be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class Mini:
    """Schedules by key; not for several threads."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, tuple[bytes, Entry, Headers]] = {}
        self._sent: list[Shown] = []
        self._rules, self._offset = Rules(lambda _topic: True), 0

    def send(self, record: Mapping[str, Any], now_ms: int | None = None) -> None:
        """Take in a record of a schedules topic; see `retry.scheduling.client`."""
        now_ms = clock.wall_ms() if now_ms is None else now_ms
        sent = Entry(record["topic"], record["key"], record["value"], list(record["headers"]), None, DOOR)
        message = MemoryRecord(sent, 0, self._offset, now_ms)
        self._offset += 1
        found = asked(message, now_ms, self._rules)
        if isinstance(found, Put):
            lane = entries.named_lane(DOOR, sent.destination, found.target)
            name, stem = entries.name(DOOR, sent.destination, record["key"]), entries.key_stem(sent.destination, 0)
            key = entries.named_key(found.due_at_ms, name, self._offset, stem, self._offset, lane)
            entry = Entry(found.target, found.target_key, sent.value, found.headers, None, DOOR)
            self._waiting[record["key"]] = key, entry, found.history
        elif isinstance(found, Cancel) or record["key"]:
            self._waiting.pop(record["key"], None)

    def fire(self, now_ms: int) -> list[Sent]:
        """What is due, in due order; it waits no longer."""
        due = sorted((entries.due_at_ms(key), name) for name, (key, _, _) in self._waiting.items())
        found = []
        for at_ms, name in due:
            if at_ms <= now_ms:
                _, entry, asked_for = self._waiting.pop(name)
                found.append(Sent(entry.destination, entry.key, entry.value, entry.headers))
                self._sent = [*self._sent, of_history(entry.headers + asked_for, entry.key, entry.value)][-_HISTORY_MAX:]
        return found

    def schedules(self, _wanted: Query = ALL) -> list[Shown]:
        """Those that wait."""
        return [of_entry(key, entry) for key, entry, _ in list(self._waiting.values())]

    def history(self, _wanted: Query = ALL) -> list[Shown]:
        """Those that were sent, the newest thousand."""
        return self._sent


def run(settings: SchedulerSettings) -> None:
    """Serve three schedules until SIGTERM or SIGINT."""
    logging.config.dictConfig(logging_of(settings))
    asyncio.run(_serve(settings))


async def _serve(settings: SchedulerSettings) -> None:
    mini, stopped = Mini(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    for record in _examples(_EXAMPLES):
        mini.send(record)
    decode = partial(decoded, settings.decoder) if settings.decoder else None
    sources = Sources(mini.schedules, mini.schedules, mini.history)
    rest = Rest(sources, partial(info, settings), lambda: True, "mini", decode)
    await rest.start(settings.server.host, settings.server.port)
    while not stopped.is_set():
        for sent in mini.fire(clock.wall_ms()):
            log.info("sent to %s: key %s", sent.topic, sent.key)
            for record in _examples([int(sent.key or 0)]):
                mini.send(record)
        try:
            await asyncio.wait_for(stopped.wait(), _LOOK_S)
        except TimeoutError:
            continue
    await rest.stop()


def _examples(numbers: Any) -> Iterator[Mapping[str, Any]]:
    for n in numbers:
        at = (clock.wall_ms() + n * _MINUTE_MS) // 1_000
        yield client.schedule(topic="topic", key=b"%d" % n, value=b"value %d" % n, at=at, schedule_id=f"schedule-{n}")
