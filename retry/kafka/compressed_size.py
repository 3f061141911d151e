"""How large a record is once a producer has compressed it with gzip, alone in its batch; brokers hold that against their limits.

gzip, since every client reads it without further packages: stock KafkaJS and aiokafka know no other codec. Which codec a letter
came with is not known: librdkafka does not tell it of a record that it gives to read. Compressing takes some 40 ms of CPU for
each megabyte at the first level and 150 ms at the one that producers use, so only what does not fit otherwise is compressed here.
"""

from __future__ import annotations

import zlib

from retry.delay_queue.envelopes import Entry

BATCH_HEADER_BYTES = 61
# Of deflate: the first, and the one that librdkafka takes where it is not told another.
_LEVELS = (1, 6)
_GZIP = 31
# Of a batch of one record: attributes, and how much later than the batch's its time and offset are.
_FIXED = b"\0\0\0"
# Another build of zlib may make a little more of the same bytes.
_MARGIN_PARTS, _MARGIN_BYTES = 200, 32


def fits_compressed(record: Entry, bytes_max: int) -> bool:
    """Tell whether a topic that takes batches of so many bytes takes a record that was compressed with gzip."""
    encoded = _encode(record)
    return any(_batch_bytes(encoded, level) <= bytes_max for level in _LEVELS)


def compressed_batch_bytes(record: Entry) -> int:
    """Count the bytes of the batch in which a record goes alone, compressed with gzip as producers do it."""
    return _batch_bytes(_encode(record), _LEVELS[-1])


def _batch_bytes(encoded: bytes, level: int) -> int:
    size = len(zlib.compress(encoded, level, _GZIP))
    return BATCH_HEADER_BYTES + size + size // _MARGIN_PARTS + _MARGIN_BYTES


def _encode(record: Entry) -> bytes:
    """Encode what is compressed of a batch that has one record."""
    fields = [record.key, record.value]
    headers = [part for name, value in record.headers for part in (name.encode(), value)]
    parts = [_FIXED, *(_field(each) for each in fields), _varint(len(record.headers)), *(_field(each) for each in headers)]
    body = b"".join(parts)
    return _varint(len(body)) + body


def _field(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(number: int) -> bytes:
    """Write a signed number in groups of seven bits, as records have their lengths."""
    left, groups = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while left > 127:
        groups.append(left & 127 | 128)
        left >>= 7
    groups.append(left)
    return bytes(groups)
