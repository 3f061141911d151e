"""A record of a dead-letter topic → a letter. Total: there is no record that it refuses."""

from __future__ import annotations

from typing import Protocol

import msgspec

from retry.entry import Headers
from retry.sources import headers as names

_ATTEMPT_DIGITS_MAX = 10
_TIME_DIGITS_MAX = 18
_ID_BYTES_MAX = 512
# 2001-09-09 and 9999-12-31: outside lies what was meant as seconds, microseconds or nothing.
_PLAUSIBLE_MS = (1_000_000_000_000, 253_402_300_799_999)
_CREATE_OR_APPEND = (1, 2)


class Message(Protocol):
    """The part of a consumed record that is read here; confluent_kafka.Message has it."""

    def topic(self) -> str: ...  # noqa: D102
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def headers(self) -> Headers | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A dead letter as found, and what its headers say.

    Attributes:
      kept: the headers that are not ours, in their order, duplicates and nulls included.
      timestamp_ms: the record's own; None where it has none or one before 1970.
      id: the lineage: what came back with the letter, else its own coordinates.
      source: the letter's coordinates, `topic/partition/offset`.
      retries_made: 0 for a first failure; None where the header is there but is no count.
      exception: class as the framework names it.
      first_failed_at_ms: None for a first failure.
      sent_at_ms: no later than this failure: the due time of the retry that failed. None for a first failure.
      wish: raw value of `retry-at-ms`; None where the header is not there.
      origin: topic that the framework names, or that the dead-letter topic's name implies.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    kept: Headers
    timestamp_ms: int | None
    id: bytes
    source: bytes
    retries_made: int | None
    exception: str | None
    first_failed_at_ms: int | None
    sent_at_ms: int | None
    wish: bytes | None
    origin: str | None

    def failed_at_ms(self, now_ms: int) -> int:
        """When this failure happened, as far as the record can tell.

        Its timestamp, where it has one; not before the retry that failed was due, since some consumers copy the
        timestamp from the record that they could not process.
        """
        stamp = now_ms if self.timestamp_ms is None else self.timestamp_ms
        return stamp if self.sent_at_ms is None else max(stamp, self.sent_at_ms)


def read(message: Message) -> Letter:
    """The letter in a consumed record."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    found: dict[str, bytes | None] = {}
    kept: Headers = []
    for header in message.headers() or ():
        name = header[0]
        if name in names.READ:
            found[name] = header[1]  # Of duplicates the last is the newest.
            if name in names.OURS:
                continue
        kept.append(header)
    kind, stamp = message.timestamp()
    source = f"{topic}/{partition}/{offset}".encode()
    return Letter(
        topic, partition, offset, message.key(), message.value(), kept,
        stamp if kind in _CREATE_OR_APPEND and stamp > 0 else None,
        *(_ours(found, source) if found else (source, source, 0, None, None, None, None, _implied(topic))),
    )  # fmt: skip


def _ours(found: dict[str, bytes | None], source: bytes) -> tuple[object, ...]:
    attempt = found.get(names.ATTEMPT, b"0")
    due_ms, first_ms = found.get(names.DUE_MS), found.get(names.FIRST_FAILED_MS)
    wish = (found[names.RETRY_AT_MS] or b"") if names.RETRY_AT_MS in found else None
    return (
        _lineage(found.get(names.ID)) or source,
        source,
        integer(attempt, _ATTEMPT_DIGITS_MAX),
        _text(found, names.EXCEPTION),
        moment(first_ms),
        moment(due_ms),
        wish,
        _text(found, names.ORIGIN_TOPIC) or _implied(source.decode().rsplit("/", 2)[0]),
    )


def integer(raw: bytes | None, digits_max: int) -> int | None:
    """The number in strict ASCII digits, or None: no sign, no blank, no exponent, no more than `digits_max`."""
    return int(raw) if raw and len(raw) <= digits_max and raw.isdigit() else None


def moment(raw: bytes | None) -> int | None:
    """Milliseconds since 1970 in ASCII digits, if they fall between 2001 and 9999; else None."""
    number = integer(raw, _TIME_DIGITS_MAX)
    return number if number is not None and _PLAUSIBLE_MS[0] <= number <= _PLAUSIBLE_MS[1] else None


def _lineage(raw: bytes | None) -> bytes | None:
    return raw if raw and len(raw) <= _ID_BYTES_MAX and raw.isascii() else None


def _text(found: dict[str, bytes | None], candidates: tuple[str, ...]) -> str | None:
    for name in candidates:
        raw = found.get(name)
        if raw:
            return raw[:_ID_BYTES_MAX].decode("utf-8", "replace")
    return None


def _implied(topic: str) -> str | None:
    for suffix in names.DEAD_LETTER_SUFFIXES:
        if topic.endswith(suffix):
            return topic.removesuffix(suffix) or None
    return None
