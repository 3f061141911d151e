"""Which records a topic takes, once it has refused one: how large, how old, and whether without a key.

What is known to be refused need not be tried, which undoes a whole transaction. Topics that have refused no record cost nothing
here. What brokers do not tell, since this user may not ask or no configuration says it, is found out by trying:
see `retry.kafka.refused_records`. A record that its topic takes only compressed is sent so, by another producer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from confluent_kafka import KafkaError

from retry.clock import monotonic_s
from retry.delay_queue.envelopes import Entry
from retry.record import count_bytes

# How large a record is once a producer has compressed it with gzip, alone in its batch; brokers hold that against their limits.
#
# gzip, since every client reads it without further packages: stock KafkaJS and aiokafka know no other codec. Which codec a
# letter came with is not known: librdkafka does not tell it of a record that it gives to read. Compressing takes some 40 ms of
# CPU for each megabyte at the first level and 150 ms at the one that producers use, while all other letters wait. So only what
# does not fit otherwise is compressed here, and no further than to where it is too large.

BATCH_HEADER_BYTES = 61
# Of deflate: the first, and the one that librdkafka takes where it is not told another.
_LEVELS = (1, 6)
_GZIP = 31
# Of a batch of one record: attributes, and how much later than the batch's its time and offset are.
_FIXED_BYTES = b"\0\0\0"
# Another build of zlib may make a little more of the same bytes.
_MARGIN_PARTS, _MARGIN_BYTES = 200, 32
_CHUNK_BYTES = 16 << 10


def fits_compressed(record: Entry, bytes_max: int) -> bool:
    """Tell whether a topic that takes batches of so many bytes takes a record that was compressed with gzip."""
    encoded = memoryview(_encode(record))
    return any(_is_within(encoded, level, bytes_max) for level in _LEVELS)


def measure_compressed_batch(record: Entry) -> int:
    """Count the bytes of the batch in which a record goes alone, compressed with gzip as producers do it."""
    return _add_margin(len(zlib.compress(_encode(record), _LEVELS[-1], _GZIP)))


def _is_within(encoded: memoryview, level: int, bytes_max: int) -> bool:
    packer, size = zlib.compressobj(level, wbits=_GZIP), 0
    for at in range(0, len(encoded), _CHUNK_BYTES):
        size += len(packer.compress(encoded[at : at + _CHUNK_BYTES]))
        if _add_margin(size) > bytes_max:
            return False
    return _add_margin(size + len(packer.flush())) <= bytes_max


def _add_margin(size: int) -> int:
    return BATCH_HEADER_BYTES + size + size // _MARGIN_PARTS + _MARGIN_BYTES


def _encode(record: Entry) -> bytes:
    fields = [record.key, record.value]
    headers = [part for name, value in record.headers for part in (name.encode(), value)]
    count = _encode_varint(len(record.headers))
    body = b"".join([_FIXED_BYTES, *map(_encode_field, fields), count, *map(_encode_field, headers)])
    return _encode_varint(len(body)) + body


def _encode_field(value: bytes | None) -> bytes:
    return _encode_varint(-1) if value is None else _encode_varint(len(value)) + value


def _encode_varint(number: int) -> bytes:
    left, groups = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while left > 127:
        groups.append(left & 127 | 128)
        left >>= 7
    groups.append(left)
    return bytes(groups)


# How much may go to a topic at once. Brokers hold a topic's `max.message.bytes` against the batch in which records arrive.
#
# So a batch can be refused of which each record alone would be taken. How large it may be is found out by halving.

class BatchSizeLimits:
    """A limit for each topic on the bytes of records that go together; a topic has none until it refuses a batch.

    Of records that are sent `compressed` a larger one may be taken where a smaller one was refused.
    """

    def __init__(self, *, compressed: bool = False) -> None:
        self.compressed = compressed
        self._bytes_max: dict[str, int] = {}
        self._queued: dict[str, int] = {}

    def begin_batch(self) -> bool:
        """Note that a transaction begins, with nothing queued; returns whether any topic has a limit."""
        self._queued.clear()
        return bool(self._bytes_max)

    def queue_entry(self, e: Entry) -> bool:
        """Count an entry as queued, and return whether what was queued before it must arrive first."""
        limit = self._bytes_max.get(e.destination)
        if limit is None:
            return False
        size, queued = _bytes(e), self._queued.get(e.destination, 0)
        full = queued > 0 and queued + size > limit
        self._queued[e.destination] = size if full else queued + size
        return full

    def alone(self, e: Entry) -> bool:
        """Whether this entry is so large that it never has company: if it is refused, it was too large."""
        return _bytes(e) >= self._bytes_max.get(e.destination, 1 << 62)

    def note_refused(self, together: Iterable[Entry]) -> None:
        """Halve, from now on, how many bytes may go at once to each topic that refused some of the entries together."""
        sizes: dict[str, int] = {}
        for e in together:
            sizes[e.destination] = sizes.get(e.destination, 0) + _bytes(e)
        for topic, size in sizes.items():
            self._bytes_max[topic] = max(1, min(size, self._bytes_max.get(topic, size)) // 2)


def _bytes(e: Entry) -> int:
    return count_bytes(e.key, e.value, e.headers) + 1


# Less than a record that is refused is put back for: where a limit was raised, nothing is put back twice for the old one.
_BELIEVED_S = 20.0
# Records that were put back come again long before that.
_FORGET_S = 120.0
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
# Brokers refuse single records for these, whatever else their topic takes. Any other refusal counts for the whole topic.
OF_CONTENT = frozenset({
    KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG, KafkaError.INVALID_MSG_SIZE,
    KafkaError.POLICY_VIOLATION, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
})  # fmt: skip


class RefusedFor(Enum):
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


def find_cause(error: KafkaError) -> RefusedFor | None:
    """Find why a record was refused with an error: its size, time or content; None where the whole topic refuses."""
    if error.code() in _TOO_LARGE:
        return RefusedFor.SIZE
    if error.code() == KafkaError.INVALID_TIMESTAMP:
        return RefusedFor.TIME
    return RefusedFor.CONTENT if error.code() in OF_CONTENT else None


class RecordLimits:
    """Which records their topics do not take. For several threads.

    Who calls `refresh` every second or so keeps fresh what brokers say, which is believed for 20 seconds. Without `ask` nobody is
    asked. Where all producers compress, sizes say nothing.
    """

    def __init__(self, ask: Ask | None = None, *, compressed: bool = False) -> None:
        self._ask, self._compressed = ask, compressed
        # The limits, and when they were heard; when a record was met that is beyond them.
        self._limits: dict[str, tuple[TopicLimits, float]] = {}
        self._met_at_s: dict[str, float] = {}

    def has_limits(self) -> bool:
        """Whether any topic has refused a record for what the record is."""
        return bool(self._limits)

    def find_refused(self, records: Sequence[Entry], now_ms: int, *, may_compress: bool = False) -> dict[int, RecordRefusal]:
        """Find records that their topics do not take, as far as is known: by position, why.

        With `may_compress` what its topic takes compressed is left out, since it can be sent so.
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
        """Note that a topic refused a record, of which brokers tell no limit: nothing larger or older is tried for a while.

        `compressed` says that the producer for what goes only compressed was refused it.
        """
        is_hidden = self._compressed and not compressed and cause is RefusedFor.SIZE
        if self._ask is None or cause not in (RefusedFor.SIZE, RefusedFor.TIME) or is_hidden:
            return
        topic = record.destination
        known = self._list_believed().get(topic, TopicLimits())
        if cause is RefusedFor.SIZE:
            size = (measure_compressed_batch(record) if compressed else measure_batch(record)) - 1
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
        larger = [n for n, e, bytes_max in sizes if bytes_max is not None and measure_batch(e) > bytes_max]
        self._note_met(records, larger)
        return larger

    def _note_met(self, records: Sequence[Entry], positions: Iterable[int]) -> None:
        self._met_at_s |= dict.fromkeys((records[n].destination for n in positions), monotonic_s())

    def _why(self, e: Entry, limits: TopicLimits, now_ms: int, *, may_compress: bool) -> RecordRefusal | None:
        topic, (bytes_max, age_ms_max, needs_key) = e.destination, limits
        if needs_key and e.key is None:
            return RecordRefusal(RefusedFor.CONTENT, f"{topic} is compacted (cleanup.policy), and takes no record without a key")
        if bytes_max is not None and not self._compressed and measure_batch(e) > bytes_max:
            why = f"{topic} takes at most {bytes_max} bytes at once (max.message.bytes)"
            if not may_compress:
                return RecordRefusal(RefusedFor.SIZE, why)
            if not fits_compressed(e, bytes_max):
                return RecordRefusal(RefusedFor.SIZE, f"{why}, and it is larger even compressed")
        if age_ms_max is not None and e.timestamp_ms is not None and now_ms - e.timestamp_ms > age_ms_max:
            why = f"{topic} takes no record whose timestamp is older than {age_ms_max} ms (message.timestamp.before.max.ms)"
            return RecordRefusal(RefusedFor.TIME, why)
        return None


def measure_batch(e: Entry) -> int:
    """Compute the bytes of a batch with one record alone, uncompressed; brokers hold that against `max.message.bytes`."""
    body = len(_FIXED_BYTES) + _measure_field(e.key) + _measure_field(e.value) + _measure_varint(len(e.headers))
    body += sum(_measure_field(name.encode()) + _measure_field(value) for name, value in e.headers)
    return BATCH_HEADER_BYTES + _measure_varint(body) + body


def _measure_field(value: bytes | None) -> int:
    return len(value) + _measure_varint(len(value)) if value else 1


def _measure_varint(number: int) -> int:
    return (number.bit_length() + 7) // 7
