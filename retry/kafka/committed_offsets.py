"""Asks what consumer groups have committed, in a process of its own, which may end without a word.

Where the coordinator of a group moves, a client of librdkafka that asked for its offsets reads through a null pointer (2.16, its
issue 5040): signal 11. So `retry.kafka.committed_offsets_process` asks. It is started with the first question, and again where it
has ended; what was not answered by then is answered with the error that passes, so that whoever asks does so again.

A client also breaks off a process that ends: an answer that comes when Python has gone reads through a null pointer, too. So all
clients are closed before that, and whoever asks one then waits until the process has ended. To close one may never end (see
`retry.kafka.cluster`): a thread does it that exists from the beginning, since a process that ends can start none.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, wraps
from threading import Event, Lock, Thread
from typing import IO, Any, cast

import orjson
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from retry.clock import monotonic_s, pause

_PROGRAM = (sys.executable, "-m", "retry.kafka.committed_offsets_process")
# Files of certificates that this process holds open; see `retry.kafka.connection`.
_HELD_FILE = re.compile(r"/proc/self/fd/(\d+)")
# By then it has ended, or hangs, which a watchdog is to see.
_ENDING_S = 10.0
# To close a client takes milliseconds, or as long as a thread of it waits for brokers.
_CLOSED_WITHIN_S = 10.0

log = logging.getLogger(__name__)

Answer = Future[ConsumerGroupTopicPartitions]
_CLIENTS: weakref.WeakSet[IsolatedAdminClient] = weakref.WeakSet()
_ENDS, _ALL_CLOSED = Event(), Event()


class IsolatedAdminClient(AdminClient):
    """An admin client that lives on where asking for the offsets of a group ends a client; for any thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(dict(config))
        self._config = {name: value for name, value in config.items() if isinstance(value, str | int | float)}
        self._asking = Lock()
        self._questions: _Questions | None = None
        self._calling, self._calls, self._is_closed = Lock(), 0, False
        self.made_at_s = monotonic_s()
        _CLIENTS.add(self)
        _start_closing_thread()

    def close(self) -> None:
        """Close it for good, unless a thread waits for its answer: that would be left with what is there no more."""
        with self._calling:
            self._is_closed = True
            if not self._calls:
                self.__exit__(None, None, None)

    @contextmanager
    def count_call(self) -> Iterator[None]:
        """Count a call as long as it takes; where the client is closed, wait for the process to end, and raise KafkaException."""
        with self._calling:
            is_closed = self._is_closed
            self._calls += not is_closed
        if is_closed:
            # Of a thread that Python does not wait for; an error might end the process with another code.
            pause(_ENDING_S)
            raise KafkaException(KafkaError(KafkaError._DESTROY, "this process ends, and asks nothing more"))
        try:
            yield
        finally:
            with self._calling:
                self._calls -= 1

    def list_consumer_group_offsets(  # type: ignore[override]
        self, list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions], **_options: Any
    ) -> dict[str, Answer]:
        """Ask what groups have committed, of all their partitions, as the method of `AdminClient` does."""
        with self.count_call(), self._asking:
            if self._questions is None or self._questions.has_ended:
                self._questions = self._start()
            questions = self._questions
        return {each.group_id: questions.request_offsets(each.group_id) for each in list_consumer_group_offsets_request}

    def _start(self) -> _Questions:
        held = [int(n) for value in self._config.values() for n in _HELD_FILE.findall(str(value))]
        # A session of its own: what a terminal sends to this process ends the other one by the end of its input.
        process = subprocess.Popen(  # noqa: S603
            _PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=held, start_new_session=True,
        )  # fmt: skip
        sends, answers = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        questions = _Questions(sends)
        questions.send_line(self._config)

        def read_answers() -> None:
            with answers:
                questions.read_answers(answers)
            process.wait()

        Thread(target=read_answers, name="offsets of groups", daemon=True).start()
        # It ends with its input: when this client is given up, and however this process ends.
        weakref.finalize(self, _close, sends)
        return questions


def _count_calls(ask: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(ask)
    def ask_and_count(client: IsolatedAdminClient, *args: Any, **options: Any) -> Any:
        with client.count_call():
            return ask(client, *args, **options)

    return ask_and_count


for _name, _ask in inspect.getmembers(AdminClient, callable):
    if not _name.startswith("_") and _name not in vars(IsolatedAdminClient):
        setattr(IsolatedAdminClient, _name, _count_calls(_ask))


class _Questions:
    """Keeps the questions that one process is asked, until each is answered or the process `has_ended`."""

    def __init__(self, sends: IO[bytes]) -> None:
        self._sends, self._lock, self._open = sends, Lock(), dict[int, tuple[str, Answer]]()
        self.has_ended, self._asked = False, 0

    def request_offsets(self, group: str) -> Answer:
        answer: Answer = Future()
        with self._lock:
            if self.has_ended:
                answer.set_exception(_build_end_error())
                return answer
            self._asked += 1
            self._open[self._asked] = group, answer
            self.send_line([self._asked, group])
        return answer

    def send_line(self, message: object) -> None:
        """Send one line; where the process has ended, whoever reads its answers tells all that wait."""
        with suppress(BrokenPipeError):
            self._sends.write(orjson.dumps(message) + b"\n")
            self._sends.flush()

    def read_answers(self, lines: Iterable[bytes]) -> None:
        """Read answers until the process ends, and let nobody wait beyond that."""
        for line in lines:
            if not line.endswith(b"\n"):
                # It ended while it wrote.
                break
            number, offsets, error = orjson.loads(line)
            with self._lock:
                group, answer = self._open.pop(number)
            if error is None:
                answer.set_result(ConsumerGroupTopicPartitions(group, [TopicPartition(*each) for each in offsets]))
            else:
                answer.set_exception(KafkaException(KafkaError(*error)))
        with self._lock:
            self.has_ended = True
        for _, answer in self._open.values():
            answer.set_exception(_build_end_error())


def _build_end_error() -> KafkaException:
    why = "the client that asked has ended, as it does where the coordinator of a group moves"
    return KafkaException(KafkaError(KafkaError.NOT_COORDINATOR, why))


@cache
def _start_closing_thread() -> None:
    Thread(target=_close_clients, name="close admin clients", daemon=True).start()


def _close_clients() -> None:
    _ENDS.wait()
    # The newest first: one that lost its brokers was replaced. Held here, none is let go of by the thread that ends the process.
    clients = sorted(_CLIENTS, key=lambda client: client.made_at_s, reverse=True)
    try:
        for client in clients:
            client.close()
    finally:
        _ALL_CLOSED.set()


@atexit.register
def _await_clients_closed() -> None:
    _ENDS.set()
    if _CLIENTS and not _ALL_CLOSED.wait(_CLOSED_WITHIN_S):
        log.warning("an admin client has not closed within %.0f s, and is left behind", _CLOSED_WITHIN_S)


def _close(file: IO[bytes]) -> None:
    with suppress(BrokenPipeError):
        file.close()
