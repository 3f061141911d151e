"""A record that no consumer has given, read as `confluent_kafka.Message` is; and the types of headers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

Header = tuple[str, bytes | None]
Headers = list[Header]
# Topic, partition, and the offset of a record in it.
PartitionId = tuple[str, int]
RecordLocation = tuple[str, int, int]

CREATE_TIME = 1


class Record:
    """A record that comes from an entry, a pointer or a test; its timestamp is a kind (1: by producer, 2: by broker), and ms."""

    def __init__(
        self, location: RecordLocation, key: bytes | None, value: bytes | None, headers: Headers, timestamp: tuple[int, int]
    ) -> None:
        self._location, self._key, self._value, self._headers, self._timestamp = location, key, value, headers, timestamp

    def topic(self) -> str:
        return self._location[0]

    def partition(self) -> int:
        return self._location[1]

    def offset(self) -> int:
        return self._location[2]

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp


def stamp_ms(record: Any) -> int | None:
    """Return the timestamp of a record in milliseconds since 1970, to write the record again with; None where it has none."""
    kind, at_ms = record.timestamp()
    return at_ms if kind and at_ms > 0 else None


def count_bytes(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    """Count the bytes of a key, a value and headers together; a null counts as nothing."""
    return len(key or b"") + len(value or b"") + sum(len(name) + len(said or b"") for name, said in headers)


def decode_text(raw: bytes | None) -> str | None:
    """Decode a header or a key as text, with a replacement character for what is no UTF-8; None for a null."""
    return None if raw is None else raw.decode(errors="replace")


def encode_base64(raw: bytes | None) -> str | None:
    """Encode a key, a value or a header in base64, as text for JSON; None for a null."""
    return None if raw is None else base64.b64encode(raw).decode()


def encode_base64_headers(headers: Headers) -> list[tuple[str, str | None]]:
    """Encode the values of headers in base64, for JSON; names stay as they are."""
    return [(name, encode_base64(value)) for name, value in headers]


def read_headers(record: Any) -> Headers | None:
    """Return the headers of a consumed record; None where the client cannot: there are too many, or a name is no UTF-8."""
    try:
        return record.headers() or []
    except SystemError:
        return None
