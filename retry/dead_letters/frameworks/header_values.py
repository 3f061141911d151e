"""Header values as the frameworks write them → text or numbers; None where a value is not what it should be.

All are total and bounded: names and ids to 512 bytes, messages to 4,096 characters, stack traces to their last 64 KiB.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NAME_BYTES_MAX = 512
_MESSAGE_CHARS_MAX = 4_096
_MESSAGE_BYTES_MAX = 4 * _MESSAGE_CHARS_MAX
_TRACE_BYTES_MAX = 65_536
_TRACE_TRIES_MAX = 16
_DIGITS_MAX = 19
_CAUSED_BY = b"\nCaused by: "
_INNER = b"\n ---> "
_CLASS = re.compile(rb"[^\s:(]{1,512}(?=[\r\n]|$)")
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


def decode_name(raw: bytes) -> str | None:
    """A name or id: UTF-8, cut at 512 bytes; what is no UTF-8 is replaced. Empty is None."""
    return raw[:_NAME_BYTES_MAX].decode("utf-8", "replace") or None


def message(raw: bytes) -> str | None:
    """Free text, cut at 4,096 characters. Empty is None."""
    return raw[:_MESSAGE_BYTES_MAX].decode("utf-8", "replace")[:_MESSAGE_CHARS_MAX] or None


def digits(raw: bytes) -> int | None:
    """A number from 0 to 2**63 - 1 in ASCII digits: no sign, no blank, no more than 19."""
    if len(raw) <= _DIGITS_MAX and raw.isdigit():
        number = int(raw)
        return number if number <= INT64_MAX else None
    return None


def digits_int32(raw: bytes) -> int | None:
    """Parse a number from 0 to 2**31 - 1 in ASCII digits, such as a partition or a count."""
    number = digits(raw)
    return number if number is not None and number <= INT32_MAX else None


def int32(raw: bytes) -> int | None:
    """4 bytes, big-endian, not negative."""
    return int.from_bytes(raw, "big") if len(raw) == 4 and raw[0] < 128 else None


def int64(raw: bytes) -> int | None:
    """8 bytes, big-endian, not negative."""
    return int.from_bytes(raw, "big") if len(raw) == 8 and raw[0] < 128 else None


def byte_or_int32(raw: bytes) -> int | None:
    """1 byte, as older Spring Kafka counts, or 4."""
    return _parse_unsigned(raw) if len(raw) in (1, 4) else None


def big_integer(raw: bytes) -> int | None:
    """A Java `BigInteger`: two's complement, as many of 1 to 8 bytes as it needs; not negative."""
    return _parse_unsigned(raw) if 1 <= len(raw) <= 8 else None


def digits_or_int32(raw: bytes) -> int | None:
    """A count that applications write by hand, through a mapper that makes it text or 4 bytes."""
    number = digits_int32(raw)
    return int32(raw) if number is None else number


def java_root(raw: bytes) -> str | None:
    """Class of the root cause in a Java stack trace: its last `Caused by:` line; None where it has none.

    Lines of suppressed exceptions are indented, and so not taken for it.
    """
    return _last_class(raw, _CAUSED_BY)


def dotnet_root(raw: bytes) -> str | None:
    """Type of the innermost exception in .NET's `Exception.ToString()`: its last ` ---> ` line; None where it has none."""
    return _last_class(raw, _INNER)


def last_part(raw: bytes) -> str | None:
    """Return the text after the last colon: the queue in `arn:aws:sqs:eu-west-1:123456789012:orders`."""
    return decode_name(raw[-_NAME_BYTES_MAX:].rpartition(b":")[2])


def _parse_unsigned(raw: bytes) -> int | None:
    return int.from_bytes(raw, "big") if raw[0] < 128 else None


def _last_class(raw: bytes, mark: bytes) -> str | None:
    start, end = max(0, len(raw) - _TRACE_BYTES_MAX), len(raw)
    for _ in range(_TRACE_TRIES_MAX):
        at = raw.rfind(mark, start, end)
        if at < 0:
            break
        begin = at + len(mark)
        if found := _class(raw[begin : begin + _NAME_BYTES_MAX + 1].partition(b":")[0]):
            return found
        end = at  # A line of somebody's message, or of a circular reference.
    return None


@lru_cache(1_024)
def _class(text: bytes) -> str | None:
    """The class at the beginning of what stands before a colon: mostly one of few."""
    match = _CLASS.match(text)
    return match[0].decode("utf-8", "replace") if match else None
