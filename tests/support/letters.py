"""Letters for a test: sent, acknowledged, and remembered as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from retry.clock import Deadline, pause, wall_ms
from tests.support.reading import COMMITTED, QUIET, read

Headers = Sequence[tuple[str, bytes | None]]
_FLUSH_S = 120.0


class Letter(NamedTuple):
    """A record that a broker acknowledged on a dead-letter topic, and between which times its retry is due."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    due_ms: tuple[int, int] | None

    @property
    def source(self) -> str:
        """The coordinates of the letter, as `retry-source` has them."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class Sender:
    """Sends letters, idempotently, and remembers every one that was acknowledged."""

    def __init__(self, bootstrap_servers: str, **more: object) -> None:
        self.sent: dict[str, Letter] = {}
        self.refused: list[str] = []
        self._servers, self._unplaced = bootstrap_servers, list[Letter]()
        self._producer = Producer({
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "reconnect.backoff.max.ms": 500,
            "logger": QUIET,
            **more,
        })

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        timestamp_ms: int | None = None,
        delays_ms: tuple[int, int] | None = None,
        partition: int = -1,
    ) -> None:
        """Send one letter to a topic.

        Args:
          delays_ms: shortest and longest time, from the letter's timestamp, after which its retry may be due.
        """
        stamp_ms = wall_ms() if timestamp_ms is None else timestamp_ms
        due_ms = (stamp_ms + delays_ms[0], stamp_ms + delays_ms[1]) if delays_ms else None

        def note_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.refused.append(str(error))
                return
            offset = message.offset()
            known = -1 if offset is None else offset
            letter = Letter(message.topic(), message.partition(), known, key, value, list(headers), stamp_ms, due_ms)
            if offset is None:
                self._unplaced.append(letter)
            else:
                self.sent[letter.source] = letter

        self._producer.produce(topic, value, key, partition, note_delivery, timestamp=stamp_ms, headers=list(headers))
        self._producer.poll(0)

    def paced(self, count: int, seconds: float, send: Callable[[int], None]) -> None:
        """Call `send` with 0 … count - 1, spread evenly over a time."""
        deadline = Deadline(seconds)
        for n in range(count):
            while deadline.remaining_s() > seconds * (count - n) / count:
                self._producer.poll(0)
                pause(0.005)
            send(n)

    def acknowledged(self) -> int:
        """How many were, until now."""
        self._producer.poll(0)
        return len(self.sent) + len(self._unplaced)

    def finish(self) -> dict[str, Letter]:
        """Wait until all are acknowledged, and return them by their coordinates."""
        left = self._producer.flush(_FLUSH_S)
        assert (left, self.refused) == (0, [])
        if self._unplaced:
            self._find_places()
        return self.sent

    def find_copies(self) -> dict[str, Letter]:
        """Find letters that this client wrote twice, by the coordinates of the second record: each is a letter of its own.

        Where a broker dies before it answers, the client may send what is unanswered under its next epoch, with new numbers, and
        brokers cannot tell that they have it.
        """
        own = {(each.topic, each.partition, each.key, each.value, each.timestamp_ms): each for each in self.sent.values()}
        found: dict[str, Letter] = {}
        for record in read(self._servers, {each.topic for each in self.sent.values()}, COMMITTED):
            letter = own.get((record.topic, record.partition, record.key, record.value, record.timestamp_ms))
            if letter is not None and (copy := letter._replace(offset=record.offset)).source not in self.sent:
                found[copy.source] = copy
        return found

    def _find_places(self) -> None:
        """Find letters of which brokers said, when they were asked again, only that they had them already."""
        missing = {(letter.topic, letter.partition, letter.key, letter.value): letter for letter in self._unplaced}
        assert len(missing) == len(self._unplaced), "letters that are equal cannot be told apart"
        for record in read(self._servers, {letter.topic for letter in self._unplaced}, COMMITTED):
            content = record.topic, record.partition, record.key, record.value
            if content not in missing:
                continue
            letter = missing[content]._replace(offset=record.offset)
            if letter.source not in self.sent:
                self.sent[letter.source] = letter
                del missing[content]
        assert not missing, f"acknowledged and not there: {list(missing)[:3]}"
        self._unplaced.clear()
