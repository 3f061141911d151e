"""Which records a topic takes, once it has refused one: how large, how old, and whether without a key.

What is known to be refused need not be tried, which undoes a whole transaction. Topics that have refused no record cost nothing
here. What brokers do not tell, since this user may not ask or no configuration says it, is found out by trying:
see `retry.kafka.refused_records`. A record that its topic takes only compressed is sent so, by another producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from confluent_kafka import KafkaError

from retry.clock import monotonic_s
from retry.delay_queue.envelopes import Entry
from retry.kafka.compressed_size import BATCH_HEADER_BYTES, compressed_batch_bytes, fits_compressed

# Less than a record that is refused is put back for: where a limit was raised, nothing is put back twice for the old one.
_BELIEVED_S = 20.0
# Records that were put back come again long before that.
_FORGET_S = 120.0
# Attributes, and how much later than the batch's a record's time and offset are.
_FIXED = 3
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
# Brokers refuse single records for these, whatever else their topic takes. Any other refusal counts for the whole topic.
OF_CONTENT = frozenset({
    KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG, KafkaError.INVALID_MSG_SIZE,
    KafkaError.POLICY_VIOLATION, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
})  # fmt: skip


class RefusedFor(Enum):
    """Kinds of faults for which a topic does not take a record."""

    SIZE = "its size"
    TIME = "its timestamp"
    CONTENT = "what it is"
    SIDE_TOPIC = "the topic of what goes beside it, which takes nothing"


class RecordRefusal(NamedTuple):
    """Why one record is not taken; `why` is a sentence part for people."""

    cause: RefusedFor
    why: str


class TopicLimits(NamedTuple):
    """Bounds of the records that a topic takes, as its configuration says.

    Attributes:
      bytes_max: of a batch, `max.message.bytes`.
      age_ms_max: of a record's timestamp; None where any is taken.
      needs_key: whether it is compacted, so that no record without a key is taken.
    """

    bytes_max: int | None = None
    age_ms_max: int | None = None
    needs_key: bool = False


# Asked what topics take; of some the brokers may not tell.
Ask = Callable[[set[str]], Mapping[str, TopicLimits]]


def cause_of(error: KafkaError) -> RefusedFor | None:
    """Kind of fault of a record that was refused with this error; None where the whole topic refuses."""
    if error.code() in _TOO_LARGE:
        return RefusedFor.SIZE
    if error.code() == KafkaError.INVALID_TIMESTAMP:
        return RefusedFor.TIME
    return RefusedFor.CONTENT if error.code() in OF_CONTENT else None


class RecordLimits:
    """Which records their topics do not take. For several threads.

    Whoever calls `refresh` every second or so keeps fresh what brokers say; what was heard is believed for 20 seconds.

    Args:
      ask: None where nobody is to be asked.
      compressed: whether all producers compress: the sizes of records say nothing then, and all are tried.
    """

    def __init__(self, ask: Ask | None = None, *, compressed: bool = False) -> None:
        self._ask, self._compressed = ask, compressed
        # The limits, and when they were heard; when a record was met that is beyond them.
        self._limits: dict[str, tuple[TopicLimits, float]] = {}
        self._met_at_s: dict[str, float] = {}

    def has_limits(self) -> bool:
        """Whether any topic has refused a record for what the record is."""
        return bool(self._limits)

    def find_refused(
        self, records: Sequence[Entry], now_ms: int, *, may_compress: bool = False
    ) -> dict[int, RecordRefusal]:
        """Records that their topics do not take as far as is known: by position, why.

        Args:
          may_compress: whether what its topic takes only compressed is left out, since it can be sent so.
        """
        return self._beyond(records, self._list_believed(), now_ms, may_compress=may_compress)

    def probe_records(self, records: Sequence[Entry], now_ms: int, *, may_compress: bool = False) -> dict[int, RecordRefusal]:
        """Ask what all their topics take, and find those that are refused; the arguments are those of `find_refused`."""
        limits = self._ask({record.destination for record in records}) if self._ask else {}
        beyond = self._beyond(records, limits, now_ms, may_compress=may_compress)
        met = {records[at].destination for at in [*beyond, *self._find_larger(records, limits)]}
        self._hear({topic: limits[topic] for topic in met})
        return beyond

    def needs_compression(self, records: Sequence[Entry]) -> bool:
        """Whether any of these is known to be taken by its topic only compressed."""
        if not self._limits:
            return False
        limits = self._list_believed()
        larger = self._find_larger(records, limits)
        return any(fits_compressed(records[n], limits[records[n].destination].bytes_max or 0) for n in larger)

    def learn_refusal(self, record: Entry, cause: RefusedFor, now_ms: int, *, compressed: bool = False) -> None:
        """A topic refused a record, and brokers do not tell what it takes: nothing larger or older is tried for a while.

        Args:
          compressed: whether the producer for what goes only compressed was refused it.
        """
        is_hidden = self._compressed and not compressed and cause is RefusedFor.SIZE
        if self._ask is None or cause not in (RefusedFor.SIZE, RefusedFor.TIME) or is_hidden:
            return
        topic = record.destination
        known = self._list_believed().get(topic, TopicLimits())
        if cause is RefusedFor.SIZE:
            size = (compressed_batch_bytes(record) if compressed else batch_bytes(record)) - 1
            known = known._replace(bytes_max=size if known.bytes_max is None else min(size, known.bytes_max))
        else:
            age_ms = max(0, now_ms - (record.timestamp_ms or now_ms) - 1)
            known = known._replace(age_ms_max=age_ms if known.age_ms_max is None else min(age_ms, known.age_ms_max))
        self._met_at_s[topic] = monotonic_s()
        self._hear({topic: known})

    def refresh(self) -> None:
        """Ask anew for the topics that have refused records in the last two minutes, and forget the others."""
        for topic, at_s in list(self._met_at_s.items()):
            if monotonic_s() - at_s > _FORGET_S:
                self._met_at_s.pop(topic, None)
                self._limits.pop(topic, None)
        if self._ask and self._limits:
            self._hear(self._ask(set(self._limits)))

    def _list_believed(self) -> dict[str, TopicLimits]:
        now_s = monotonic_s()
        return {topic: known for topic, (known, at_s) in list(self._limits.items()) if now_s - at_s < _BELIEVED_S}

    def _hear(self, limits: Mapping[str, TopicLimits]) -> None:
        now_s = monotonic_s()
        self._limits |= {topic: (known, now_s) for topic, known in limits.items()}

    def _beyond(
        self, records: Sequence[Entry], limits: Mapping[str, TopicLimits], now_ms: int, *, may_compress: bool
    ) -> dict[int, RecordRefusal]:
        limited = ((n, e, limits[e.destination]) for n, e in enumerate(records) if e.destination in limits)
        found = {n: why for n, e, known in limited if (why := self._why(e, known, now_ms, may_compress=may_compress)) is not None}
        self._note_met(records, found)
        return found

    def _find_larger(self, records: Sequence[Entry], limits: Mapping[str, TopicLimits]) -> list[int]:
        """Positions of records that are larger than what their topics take, uncompressed."""
        sizes = ((n, e, limits[e.destination].bytes_max) for n, e in enumerate(records) if e.destination in limits)
        larger = [n for n, e, bytes_max in sizes if bytes_max is not None and batch_bytes(e) > bytes_max]
        self._note_met(records, larger)
        return larger

    def _note_met(self, records: Sequence[Entry], positions: Iterable[int]) -> None:
        self._met_at_s |= dict.fromkeys((records[n].destination for n in positions), monotonic_s())

    def _why(self, e: Entry, limits: TopicLimits, now_ms: int, *, may_compress: bool) -> RecordRefusal | None:
        topic, (bytes_max, age_ms_max, needs_key) = e.destination, limits
        if needs_key and e.key is None:
            why = f"{topic} is compacted (cleanup.policy), and takes no record without a key"
            return RecordRefusal(RefusedFor.CONTENT, why)
        if bytes_max is not None and not self._compressed and batch_bytes(e) > bytes_max:
            why = f"{topic} takes at most {bytes_max} bytes at once (max.message.bytes)"
            if not may_compress:
                return RecordRefusal(RefusedFor.SIZE, why)
            if not fits_compressed(e, bytes_max):
                return RecordRefusal(RefusedFor.SIZE, f"{why}, and it is larger even compressed")
        if age_ms_max is not None and e.timestamp_ms is not None and now_ms - e.timestamp_ms > age_ms_max:
            why = f"{topic} takes no record whose timestamp is older than {age_ms_max} ms (message.timestamp.before.max.ms)"
            return RecordRefusal(RefusedFor.TIME, why)
        return None


def batch_bytes(e: Entry) -> int:
    """How large the batch is in which a record goes alone and uncompressed; brokers hold that against `max.message.bytes`."""
    body = _FIXED + _field(e.key) + _field(e.value) + _varint(len(e.headers))
    body += sum(_field(name.encode()) + _field(value) for name, value in e.headers)
    return BATCH_HEADER_BYTES + _varint(body) + body


def _field(value: bytes | None) -> int:
    return len(value) + _varint(len(value)) if value else 1


def _varint(number: int) -> int:
    """How many bytes a signed number takes that has seven bits in each."""
    return (number.bit_length() + 7) // 7
