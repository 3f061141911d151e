"""A record of a dead-letter topic → a letter. Total: there is no record that it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from retry.dead_letters import retry_headers as names
from retry.dead_letters.failure import Failure
from retry.dead_letters.frameworks import KNOWN, Aliases, header_values, make_unknown_failure, may_be, recognise
from retry.dead_letters.retry_headers import OURS
from retry.record import Header, Headers, Record, read_headers

# The one thing that may be read from a payload where the policy file asks for it: how many deliveries of it have failed.
#
# A consumer that counts in the body makes another body with each attempt: if it drops headers too, nothing else tells what it
# was.

_MARK = "$"
# More is not looked into: what is asked of every letter must cost little.
_BYTES_MAX = 64 << 10
# Values stay the bytes that they are until one of them is wanted: no number is made of five thousand digits.
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_attempts(value: bytes | None, names: Iterable[str]) -> int:
    """Find the largest count in a JSON body under those of `names` that are paths, like `$.meta.tries`; 0 where it has none.

    A count is a whole number from 0 to 2**31 - 1 in digits. A body that is no JSON object, nested too deeply or over 64 KiB has
    none.

    >>> count_attempts(b'{"id": 1, "retryAttempt": 3}', ["x-tries", "$.retryAttempt"])
    3
    """
    if not value or len(value) > _BYTES_MAX:
        return 0
    return max((_read_path(value, name.split(".")[1:]) for name in names if name.startswith(_MARK)), default=0)


def _read_path(value: bytes, path: list[str]) -> int:
    raw = value
    try:
        for name in path:
            raw = bytes(_members(raw)[name])
    except (msgspec.MsgspecError, KeyError, RecursionError, ValueError):
        return 0
    return header_values.parse_digits_int32(raw) or 0


_ATTEMPT_DIGITS_MAX = 10
_TIME_DIGITS_MAX = 18
# From 2001 to 2286.
_USUAL_DIGITS, _ZERO = 13, ord("0")
_ID_BYTES_MAX = 512
# 2001-09-09 and 9999-12-31: outside lies what was meant as seconds, microseconds or nothing.
LIKELY_MS, _LIKELY_MS_MAX = 1_000_000_000_000, 253_402_300_799_999
_CREATE, _APPEND = 1, 2
NO_TIME = -1
# Headers of ours that say who wrote a letter; a wish says nothing of it.
_SIGNS = frozenset({names.ID, names.SOURCE, names.ATTEMPT})
# Broker-side writers, which may leave the payload where it is.
POINTING = ("share-group", "kafka-streams")
# These give a letter the timestamp of the record that failed (DeadLetterQueueReporter of Connect, KIP-1034 of Streams).
COPYING = frozenset({"kafka-connect", "kafka-streams"})
# Stands for headers that cannot be told; no real one can have a NUL in its name, since the client cuts names there.
_UNREADABLE: tuple[Header, ...] = (("\0", None),)


class Message(Protocol):
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A dead letter as found, and what its headers say.

    Attributes:
      original_headers: the headers that are not ours, in their order, duplicates and nulls included.
      timestamp_ms: the record's own; None where it has none or one before 1970.
      stamped_ms: when the letter was written: its timestamp, or that of the pointer that it stands for; None where it has
        none, or one that its framework copied from the record that failed. A topic with LogAppendTime has its own.
      failure: what the headers of its framework say. No header chooses a topic: the origin named there is used only
        where the policy's allow-list has it.
      retries_made: 0 for a first failure; None where the header is there but is no count.
      first_failed_at_ms, sent_at_ms: None for a first failure; the latter is the due time of the retry that failed.
      retry_at_ms: when the letter asks to be retried; `NO_TIME` where it asks for what is no time.
      counted: failed deliveries by the body, where the policy asks that; 0 where it does not say.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    original_headers: Headers
    timestamp_ms: int | None
    stamped_ms: int | None
    source: bytes
    failure: Failure
    id: bytes | None
    retries_made: int | None
    first_failed_at_ms: int | None
    sent_at_ms: int | None
    retry_at_ms: int | None
    policy: bytes | None = None
    counted: int = 0
    action: bytes | None = None

    def copyable(self) -> bool:
        """Whether all of it can be written again; its headers may be beyond the client."""
        return not self.original_headers or self.original_headers[0] is not _UNREADABLE[0]

    def is_pointer(self) -> bool:
        """Whether it has no payload because its framework wrote only where the payload lies: in the failure's origin."""
        failure = self.failure
        return self.key is None and self.value is None and failure.family in POINTING and None not in (
            failure.origin_topic, failure.origin_partition, failure.origin_offset
        )  # fmt: skip

    def failed_at_ms(self, now_ms: int) -> int:
        """Return when this failure happened: when the letter was written, where that is known and likely, else now.

        Not before the retry that failed was due: some consumers copy the timestamp of the record that they could not process.
        """
        stamp = self.stamped_ms
        if stamp is None or stamp < LIKELY_MS:
            stamp = now_ms
        return stamp if self.sent_at_ms is None else max(stamp, self.sent_at_ms)


def read(message: Message | Any, aliases: Aliases | None = None) -> Letter:
    """Read the letter in a consumed record; `aliases` are header names of the team's own, see `frameworks.recognise`."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    ours: dict[str, bytes | None] = {}
    telling: Headers = []
    original_headers: Headers = []
    headers = read_headers(message)
    for header in _UNREADABLE if headers is None else headers:
        name = header[0]
        if name in OURS:
            ours[name] = header[1]  # Of duplicates the last is the newest.
        else:
            original_headers.append(header)
            if name in KNOWN:
                telling.append(header)
    if aliases or not ours.keys().isdisjoint(_SIGNS):
        telling = [*(original_headers if aliases else telling), *ours.items()]
    value = message.value()
    kind, timestamp_ms = message.timestamp()
    stamp_ms = timestamp_ms if timestamp_ms > 0 and kind in (_CREATE, _APPEND) else None
    source = b"%b/%d/%d" % (topic.encode(), partition, offset)
    lineage, made, first_ms, due_ms, wish_ms = _read_retry_headers(ours) if ours else (None, 0, None, None, None)
    # What tells nothing is not asked any further: the letters of many clients are like that.
    failure = recognise(telling, topic, value, aliases) if telling or may_be(value) else make_unknown_failure(topic)
    counted = count_attempts(value, aliases.get("attempts", ())) if aliases else 0
    if counted > failure.attempts:
        failure = msgspec.structs.replace(failure, attempts=counted)
    # By position, in the order of the attributes: by keyword, reading a letter takes 1.1 to 1.7 times as long.
    return Letter(
        topic, partition, offset, message.key(), value, original_headers, stamp_ms,
        None if kind == _CREATE and failure.family in COPYING else stamp_ms,
        source, failure, lineage, made, first_ms, due_ms, wish_ms, ours.get(names.POLICY), counted, ours.get(names.ACTION),
    )  # fmt: skip


def fill_pointer(pointer: Letter, record: Message | Any) -> Letter | None:
    """Read the letter that a pointer stands for, from the record it names; None where the client cannot tell its headers."""
    headers = read_headers(record)
    if headers is None:
        return None
    letter = read(_copy_record(pointer, record, headers))
    return msgspec.structs.replace(letter, failure=pointer.failure, stamped_ms=pointer.stamped_ms)


def _copy_record(pointer: Letter, record: Message | Any, own: Headers) -> Record:
    """A record as if its framework had copied it: its own headers, then the pointer's in place of those of earlier pointers."""
    replaced = {name for name, _ in pointer.original_headers if name in KNOWN}
    headers = [*(header for header in own if header[0] not in replaced), *pointer.original_headers]
    place = pointer.topic, pointer.partition, pointer.offset
    return Record(place, record.key(), record.value(), headers, record.timestamp())


def _read_retry_headers(ours: dict[str, bytes | None]) -> tuple[bytes | None, int | None, int | None, int | None, int | None]:
    made, first_failed_ms = parse_retries_made(ours.get(names.ATTEMPT, b"0")), parse_moment(ours.get(names.FIRST_FAILED_MS))
    wish_ms = (parse_moment(ours[names.RETRY_AT_MS]) or NO_TIME) if names.RETRY_AT_MS in ours else None
    return parse_lineage_id(ours.get(names.ID)), made, first_failed_ms, parse_moment(ours.get(names.DUE_MS)), wish_ms


def parse_retries_made(raw: bytes | None) -> int | None:
    """Parse the number of the retry that failed, as a letter says it; None where the header holds no number."""
    return parse_integer(raw, _ATTEMPT_DIGITS_MAX)


def parse_integer(raw: bytes | None, digits_max: int) -> int | None:
    """Parse strict ASCII digits: no sign, no blank, no exponent, no more than `digits_max`; None for any other text."""
    return int(raw) if raw and len(raw) <= digits_max and raw.isdigit() else None


def parse_moment(raw: bytes | None) -> int | None:
    """Parse milliseconds since 1970 in ASCII digits; None where they do not fall between 2001 and 9999."""
    number = parse_integer(raw, _TIME_DIGITS_MAX) if raw else None
    return number if number is not None and LIKELY_MS <= number <= _LIKELY_MS_MAX else None


def parse_moments(raws: Iterable[bytes | None]) -> list[int | None]:
    """Parse many times, each as `parse_moment` does; nearly all have 13 digits, and take no call of their own."""
    return [
        int(raw) if raw is not None and len(raw) == _USUAL_DIGITS and raw.isdigit() and raw[0] != _ZERO else parse_moment(raw)
        for raw in raws
    ]


def parse_lineage_id(raw: bytes | None) -> bytes | None:
    """Return the lineage id of a letter that came back; None where the bytes cannot be such an id."""
    return raw if raw and len(raw) <= _ID_BYTES_MAX and raw.isascii() else None
