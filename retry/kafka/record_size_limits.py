"""How large a record a topic takes, once it has refused one. What is larger need not be tried, which undoes a whole transaction.

Topics that have refused none cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from retry.clock import monotonic_s
from retry.delay_queue.envelopes import Entry

# Less than a record that is too large is put back for: where a limit was raised, nothing is put back twice for the old one.
_BELIEVED_S = 20.0
# Records that were put back come again long before that.
_FORGET_S = 120.0
_BATCH_HEADER = 61
# Attributes, and how much later than the batch's a record's time and offset are.
_FIXED = 3

# Asked for the `max.message.bytes` of topics; of some the brokers may not tell.
Ask = Callable[[set[str]], Mapping[str, int]]


class RecordSizeLimits:
    """Which records are larger than what their topics take. For several threads.

    Whoever calls `refresh` every second or so keeps fresh what brokers say; what was heard is believed for 20 seconds.

    Args:
      ask: None where records are compressed on their way: their sizes say nothing then, and all are tried.
    """

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        # The limit, and when it was heard; when a record was met that is larger.
        self._limits: dict[str, tuple[int, float]] = {}
        self._met_at_s: dict[str, float] = {}

    def limited(self) -> bool:
        """Whether any topic has refused a record for its size."""
        return bool(self._limits)

    def too_large(self, records: Sequence[Entry]) -> dict[int, str]:
        """Records that are larger than what their topics take as far as is known: by position, what to say of each."""
        return self._larger(records, self._believed())

    def look(self, records: Sequence[Entry]) -> dict[int, str]:
        """The same, asked anew of all their topics."""
        limits = self._ask({record.destination for record in records}) if self._ask else {}
        larger = self._larger(records, limits)
        self._hear({records[at].destination: limits[records[at].destination] for at in larger})
        return larger

    def refused(self, record: Entry) -> None:
        """A topic refused a record for its size, and brokers do not tell what it takes."""
        if self._ask:
            topic, most = record.destination, batch_bytes(record) - 1
            self._met_at_s[topic] = monotonic_s()
            self._hear({topic: min(most, self._believed().get(topic, most))})

    def refresh(self) -> None:
        """Ask anew for the topics that have refused records in the last two minutes, and forget the others."""
        for topic, at_s in list(self._met_at_s.items()):
            if monotonic_s() - at_s > _FORGET_S:
                self._met_at_s.pop(topic, None)
                self._limits.pop(topic, None)
        if self._ask and self._limits:
            self._hear(self._ask(set(self._limits)))

    def _believed(self) -> dict[str, int]:
        now_s = monotonic_s()
        return {topic: most for topic, (most, at_s) in list(self._limits.items()) if now_s - at_s < _BELIEVED_S}

    def _hear(self, limits: Mapping[str, int]) -> None:
        now_s = monotonic_s()
        self._limits |= {topic: (most, now_s) for topic, most in limits.items()}

    def _larger(self, records: Sequence[Entry], limits: Mapping[str, int]) -> dict[int, str]:
        limited = ((n, e) for n, e in enumerate(records) if e.destination in limits)
        larger = {n: e.destination for n, e in limited if batch_bytes(e) > limits[e.destination]}
        self._met_at_s |= dict.fromkeys(larger.values(), monotonic_s())
        return {n: f"{topic} takes at most {limits[topic]} bytes at once (max.message.bytes)" for n, topic in larger.items()}


def batch_bytes(e: Entry) -> int:
    """How large the batch is in which a record goes alone and uncompressed; brokers hold that against `max.message.bytes`."""
    body = _FIXED + _field(e.key) + _field(e.value) + _varint(len(e.headers))
    body += sum(_field(name.encode()) + _field(value) for name, value in e.headers)
    return _BATCH_HEADER + _varint(body) + body


def _field(value: bytes | None) -> int:
    return len(value) + _varint(len(value)) if value else 1


def _varint(number: int) -> int:
    """How many bytes a signed number takes that has seven bits in each."""
    return (number.bit_length() + 7) // 7
