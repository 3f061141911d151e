"""Header values as the frameworks write them → text or numbers; and the row that says which headers a framework has.

All readers of values are total and bounded: names and ids to 512 bytes, messages to 4,096 characters, stack traces to their last
64 KiB. They return None where a value is not what it should be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

_NAME_BYTES_MAX = 512
_MESSAGE_CHARS_MAX = 4_096
_MESSAGE_BYTES_MAX = 4 * _MESSAGE_CHARS_MAX
_TRACE_BYTES_MAX = 65_536
_TRACE_TRIES_MAX = 16
_DIGITS_MAX = 19
_CAUSED_BY = b"\nCaused by: "
_INNER = b"\n ---> "
# The runtime of .NET puts the number of a native error behind some classes.
_CLASS = re.compile(rb"[^\s:(]{1,512}(?=(?: \((?:0x)?[0-9A-Fa-f]{1,16}\))?(?:[\r\n]|$))")
# Frames of a stack trace are indented: these by a tab, those of .NET by blanks.
_JAVA_FRAME, _DOTNET_FRAME = b"\n\t", b"\n  "
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


def decode_name(raw: bytes) -> str | None:
    """Decode a name or id as UTF-8, cut at 512 bytes; what is no UTF-8 is replaced. None where it is empty."""
    return raw[:_NAME_BYTES_MAX].decode("utf-8", "replace") or None


def message(raw: bytes) -> str | None:
    """Decode free text, cut at 4,096 characters; return None where the text is empty."""
    return raw[:_MESSAGE_BYTES_MAX].decode("utf-8", "replace")[:_MESSAGE_CHARS_MAX] or None


def parse_digits(raw: bytes) -> int | None:
    """Parse a number from 0 to 2**63 - 1 in ASCII digits: no sign, no blank, no more than 19; None for any other text."""
    if len(raw) <= _DIGITS_MAX and raw.isdigit():
        number = int(raw)
        return number if number <= INT64_MAX else None
    return None


def parse_digits_int32(raw: bytes) -> int | None:
    number = parse_digits(raw)
    return number if number is not None and number <= INT32_MAX else None


def parse_int32(raw: bytes) -> int | None:
    """Parse a number in 4 bytes, big-endian; None where it is negative or has another length."""
    return int.from_bytes(raw, "big") if len(raw) == 4 and raw[0] < 128 else None


def parse_int64(raw: bytes) -> int | None:
    """Parse a number in 8 bytes, big-endian; None where it is negative or has another length."""
    return int.from_bytes(raw, "big") if len(raw) == 8 and raw[0] < 128 else None


def parse_byte_or_int32(raw: bytes) -> int | None:
    """Parse a number in 1 byte, as older Spring Kafka counts, or in 4; None where it is negative or has another length."""
    return _parse_unsigned(raw) if len(raw) in (1, 4) else None


def parse_big_integer(raw: bytes) -> int | None:
    """Parse a Java `BigInteger`, two's complement, as many of 1 to 8 bytes as it needs; None where it is negative or longer."""
    return _parse_unsigned(raw) if 1 <= len(raw) <= 8 else None


def parse_digits_or_int32(raw: bytes) -> int | None:
    """Parse a count that applications write by hand, through a mapper that makes it text or 4 bytes; None for anything else."""
    number = parse_digits_int32(raw)
    return parse_int32(raw) if number is None else number


def find_java_root(raw: bytes) -> str | None:
    """Find the class of the root cause in a Java stack trace: its last `Caused by:` line; None where it has none."""
    return _last_class(raw, _CAUSED_BY)


def find_dotnet_root(raw: bytes) -> str | None:
    """Find the innermost exception's type in .NET's `Exception.ToString()`: its last ` ---> ` line; None where it has none."""
    return _last_class(raw, _INNER)


def find_java_message(raw: bytes) -> str | None:
    text = cut_java_root_message(raw)
    return None if text is None else message(text)


def find_dotnet_message(raw: bytes) -> str | None:
    text = cut_dotnet_root_message(raw)
    return None if text is None else message(text)


def cut_java_root_message(raw: bytes) -> bytes | None:
    return _cut_message(raw, _CAUSED_BY, _JAVA_FRAME)


def cut_dotnet_root_message(raw: bytes) -> bytes | None:
    return _cut_message(raw, _INNER, _DOTNET_FRAME)


def take_last_part(raw: bytes) -> str | None:
    """Return the text after the last colon: the queue in `arn:aws:sqs:eu-west-1:123456789012:orders`."""
    return decode_name(raw[-_NAME_BYTES_MAX:].rpartition(b":")[2])


def _parse_unsigned(raw: bytes) -> int | None:
    return int.from_bytes(raw, "big") if raw[0] < 128 else None


def _last_class(raw: bytes, mark: bytes) -> str | None:
    found = _find_last(raw, mark)
    return None if found is None else _class(found[0])


def _cut_message(raw: bytes, mark: bytes, frame: bytes) -> bytes | None:
    found = _find_last(raw, mark)
    if found is None:
        return None
    head, start = found
    if b"\n" in head:
        return None  # The colon that ends it is of a line below.
    end = raw.find(frame, start, start + _MESSAGE_BYTES_MAX)
    return raw[start + 1 : start + _MESSAGE_BYTES_MAX if end < 0 else end].strip() or None


_Root = tuple[bytes, int]
# The stack trace that was looked into last, and for what: its class and its message are asked for in turn.
_last_root: tuple[bytes, bytes, _Root | None] = b"", b"", None


def _find_last(raw: bytes, mark: bytes) -> _Root | None:
    """Find the last line with this mark that names a class: what stands before its colon, and where that is."""
    global _last_root  # noqa: PLW0603
    known_raw, known_mark, found = _last_root
    if raw is not known_raw or mark is not known_mark:
        found = _search_last(raw, mark)
        _last_root = raw, mark, found
    return found


def _search_last(raw: bytes, mark: bytes) -> _Root | None:
    start, end = max(0, len(raw) - _TRACE_BYTES_MAX), len(raw)
    for _ in range(_TRACE_TRIES_MAX):
        at = raw.rfind(mark, start, end)
        if at < 0:
            break
        begin = at + len(mark)
        limit = begin + _NAME_BYTES_MAX + 1
        colon = raw.find(b":", begin, limit)
        head = raw[begin : limit if colon < 0 else colon]
        if _class(head):
            return head, begin + len(head)
        end = at  # A line of somebody's message, or of a circular reference.
    return None


@lru_cache(1_024)
def _class(text: bytes) -> str | None:
    match = _CLASS.match(text)
    return match[0].decode("utf-8", "replace") if match else None


Read = Callable[[bytes], str | int | None]


class HeaderLocation(NamedTuple):
    """A header in which a field may be found.

    Attributes:
      read: value → what it says, None where that makes no sense.
      first: of duplicates the first counts, not the last: for families that write the newest in front.
      plus: what is added to a count, so that it becomes the number of failed deliveries.
    """

    header: str
    read: Read
    first: bool = False
    plus: int = 0


Places = tuple[HeaderLocation, ...]


class Tier(IntEnum):
    """The precedence of a dialect where a letter carries headers of several dialects; the highest wins."""

    OWN = 0
    AD_HOC = 1
    FRAMEWORK = 2


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one framework writes a dead letter.

    Attributes:
      family: its name in `Failure.family`; two dialects may share one.
      marks: sets of header names; a letter that has all names of one of them is of this dialect.
      attempts: all of these are read and the largest count is taken. Of every other field the first place that says
        something, in the order given.
    """

    family: str
    marks: tuple[frozenset[str], ...]
    unless: frozenset[str] = frozenset()
    tier: Tier = Tier.FRAMEWORK
    prepends: bool = False
    origin_topic: Places = ()
    origin_partition: Places = ()
    origin_offset: Places = ()
    origin_timestamp_ms: Places = ()
    consumer_group: Places = ()
    attempts: Places = ()
    exception: Places = ()
    thrown: Places = ()
    cause: Places = ()
    message: Places = ()
    stage: Places = ()
    cause_message: Places = ()

    def is_in(self, names: frozenset[str]) -> bool:
        return self.unless.isdisjoint(names) and any(mark <= names for mark in self.marks)


def any_of(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({name}) for name in names)


def all_of(*names: str) -> tuple[frozenset[str], ...]:
    return (frozenset(names),)


def read_at(read: Read, *headers: str, first: bool = False, plus: int = 0) -> Places:
    return tuple(HeaderLocation(header, read, first, plus) for header in headers)


def locate_name(*headers: str, first: bool = False) -> Places:
    return read_at(decode_name, *headers, first=first)


def locate_text(*headers: str, first: bool = False) -> Places:
    return read_at(message, *headers, first=first)


def count(*headers: str, plus: int = 0, first: bool = False) -> Places:
    return read_at(parse_digits_int32, *headers, plus=plus, first=first)


def locate_number(*headers: str, first: bool = False) -> Places:
    return read_at(parse_digits, *headers, first=first)
