"""Single records that are written at once, each acknowledged by itself: what has no transaction to be part of."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from retry import clock
from retry.errors import BrokersUnreachable, RecordUnwritten
from retry.kafka import authorization, client_config
from retry.kafka.client_config import Config, build_asking_config, connect_admin
from retry.kafka.closing import discard_queued, flush
from retry.settings import Settings

log = logging.getLogger(__name__)

_WITHIN_S = 30.0


def send_records(settings: Settings, topic: str, records: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Send keys and values, and return how many they were; raises BrokersUnreachable where not all were taken."""
    connect_admin(settings)
    refused: list[str] = []
    # As the Java client does: whoever else writes the same keys finds the same partitions.
    own = {"linger.ms": 5, "partitioner": "murmur2_random", "message.timeout.ms": 20_000}
    producer = client_config.make_producer({**build_asking_config(settings), **own})
    count = 0

    def note_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refused.append(authorization.describe_refusal(error, authorization.WRITE, topic=topic))

    try:
        for key, value in records:
            producer.produce(topic, value, key, on_delivery=note_delivery)
            producer.poll(0)
            count += 1
        unwritten = flush(producer, _WITHIN_S) + len(refused)
        why = refused[0] if refused else "no answer"
    except (KafkaException, BufferError) as error:
        raise BrokersUnreachable(settings.bootstrap_servers, str(error)) from error
    finally:
        discard_queued(producer)
    if unwritten:
        raise BrokersUnreachable(settings.bootstrap_servers, f"{unwritten} of {count} records for {topic}: {why}")
    return count


# No longer: see `retry.kafka.closing`.
_POLL_S = 0.15
_LEAVE_S = 5.0
# What ends each producer at once, a right that is missing say, must not have clients open one for each request.
_REOPEN_S = 1.0

Settle = Callable[[int | RecordUnwritten], None]
_Ended = tuple["asyncio.Future[int]", int | RecordUnwritten]


class Records:
    """An idempotent producer; for several threads and event loops.

    An error that ends the producer for good fails what is under way, and another is opened.
    """

    def __init__(self, config: Config) -> None:
        self._config, self._lock = {**config, "error_cb": self._on_error}, threading.Lock()
        self._producer = client_config.make_producer(self._config)
        self._opened_s, self._fatal = clock.monotonic_s(), ""
        self._ended: dict[asyncio.AbstractEventLoop, list[_Ended]] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> Future[int]:
        """Write a record; the future has its offset once all copies have it, or `RecordUnwritten`."""
        done: Future[int] = Future()
        # Whoever waits may give up; the record is under way all the same.
        done.set_running_or_notify_cancel()
        try:
            self._produce(topic, partition, key, value, partial(_complete_future, done))
        except RecordUnwritten as refused:
            done.set_exception(refused)
        return done

    async def write_record(self, topic: str, partition: int, key: bytes, value: bytes | None) -> int:
        """Write a record, and return its offset once all copies have it; raises RecordUnwritten where that is not known."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        self._produce(topic, partition, key, value, lambda result: self._ended.setdefault(loop, []).append((done, result)))
        return await done

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes | None, settle: Settle) -> None:
        def note_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                settle(message.offset() or 0)
            else:
                settle(RecordUnwritten(self._fatal or authorization.describe_refusal(error, authorization.WRITE, topic=topic)))

        with self._lock:
            produce: Any = self._producer.produce
            try:
                produce(topic, value, key, partition, note_delivery)
            except (BufferError, KafkaException) as error:
                raise RecordUnwritten(self._fatal or str(error)) from error

    def _on_error(self, error: KafkaError) -> None:
        # Whatever else is told the client mends by itself, and its log says so.
        if error.fatal():
            self._fatal = f"the producer ended: {error.str()}"

    def _run(self) -> None:
        while not self._closing.is_set():
            self._serve(_POLL_S)
            if self._fatal and clock.monotonic_s() - self._opened_s > _REOPEN_S:
                self._reopen()

    def _serve(self, within_s: float) -> None:
        """Tell of what has ended; those that wait in one loop all at once."""
        try:
            self._producer.poll(within_s)
        except KafkaException as error:
            self._fatal = self._fatal or f"the producer ended: {error}"
        self._wake()

    def _wake(self) -> None:
        for loop in list(self._ended):
            # A loop that is closed has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle_all, self._ended.pop(loop, []))

    def _reopen(self) -> None:
        log.error("%s; what is under way fails, and another is opened", self._fatal)
        with self._lock:
            discard_queued(self._producer)
            self._wake()
            try:
                self._producer = client_config.make_producer(self._config)
            finally:
                self._opened_s = clock.monotonic_s()
            self._fatal = ""

    def close(self) -> None:
        deadline = clock.Deadline(_LEAVE_S)
        while len(self._producer) and not self._fatal and not deadline.has_passed():
            clock.pause(_POLL_S / 10)
        self._closing.set()
        self._thread.join()
        discard_queued(self._producer)
        self._wake()


def _complete_future(done: Future[int] | asyncio.Future[int], result: int | RecordUnwritten) -> None:
    if isinstance(result, RecordUnwritten):
        done.set_exception(result)
    else:
        done.set_result(result)


def _settle_all(ended: Iterable[_Ended]) -> None:
    for done, result in ended:
        # Of one whose client is gone nobody waits any more.
        if not done.done():
            _complete_future(done, result)
