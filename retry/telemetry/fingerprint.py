"""What failures of one kind have in common: 64 bits of the root cause's class and message, less what differs each time.

Of the message numbers, ids, hexadecimal and quoted data are taken out, see `message_pattern`. What it comes to is part of the
outcome.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from retry.telemetry import message_pattern

# How much of a message counts, in UTF-8, and how much more is looked at to tell what an error code is.
_BYTES_MAX, _CODE_BYTES_MAX = 2_048, 64
# When the cache is full it is emptied; each text has some hundred bytes.
_KNOWN_MAX = 10_000

# An error code, as in `status code 503`: a word, and what follows it. Which digits there are does not decide whether it is one.
_NUMBER = rb"-?\d{1,5}(?!\w|[.:,-]\d)"
_AFTER_WORD = re.compile(rb"[^\w\n]{1,3}" + _NUMBER)
_CODE_WORDS = (
    (b"code", _AFTER_WORD),
    (b"status", _AFTER_WORD),
    (b"errno", _AFTER_WORD),
    (b"error", re.compile(rb"[ =(#'\[]{1,2}" + _NUMBER)),
    (b"sqlstate", re.compile(rb"[^\w\n]{1,3}[0-9a-z]{5}(?!\w)")),
    (b"http/", re.compile(rb"\d(?:\.\d)? \d{3}(?!\w)")),
)
# Other codes, as that of a postal address, are data.
_OF_ERRORS = tuple(b"status error response exit return vendor result reply sql".split())
_OF_ERRORS_BYTES_MAX = 10

_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_CLASS_ALIKE = str.maketrans("123456789", "0" * 9)
_MARK = bytes.maketrans(message_pattern.DIGITS.encode(), message_pattern.MARKED.encode())

# Where a wrapper's message goes on with the class of what it was put around.
_INNER = re.compile(r"(?<![\w.$])(?:[\w$]+\.)+[\w$]+(?=(?: \((?:0x)?[0-9A-Fa-f]{1,16}\))?(?:: |$))", re.ASCII)
_THROWN = ("Exception", "Error", "Failure", "Fault", "Throwable")
_IS_NESTED = "nested exception is "
# Such words, at the very end of a text.
_NESTED_CHARS = 32
_NESTED = re.compile(r"(?:;\s*nested exception is|[(]?[Cc]aused by:?|:)?\s*\Z")


class FailureKind(NamedTuple):
    """Failures of one fingerprint: their class, None where they have none, and the words of their messages."""

    exception: str | None
    message: str


_known: dict[tuple[str | None, bytes | None], str] = {}


def compute_fingerprint(exception: str | None, message: str | None) -> str | None:
    """Compute the fingerprint of a failure, 16 hexadecimal digits; None where nothing is known of the failure.

    Args:
      exception: class of the root cause, as far as it is known.
      message: of the root cause, or of what was put around it.

    >>> one = compute_fingerprint("java.io.IOException", "order 17 of 'Ann'")
    >>> one == compute_fingerprint("java.io.IOException", "order 4711 of 'Bob'")
    True
    """
    # All digits are alike here, so what differs in numbers is mostly known already.
    failed = exception, None if message is None else _encode_alike(message)
    found = _known.get(failed)
    return found if found is not None else _hash_failure(failed)


def in_common(exception: str | None, message: str) -> FailureKind:
    """Return class and words that all failures of this kind have, with # in place of numbers, ids and quoted data.

    Where the message goes on with that of an inner exception, it is the inner one that counts.

    >>> in_common("a.Failed", "order 17 of 'Ann' not found")
    FailureKind(exception='a.Failed', message='order # of # not found')
    >>> in_common("a.Wrapper", "order 17 failed; nested exception is java.net.ConnectException: Connection refused")
    FailureKind(exception='java.net.ConnectException', message='Connection refused')
    """
    return _in_common(exception, _encode_alike(message))


def fold_digits(message: bytes) -> bytes:
    """Return the first 2,112 bytes of a message in UTF-8, with 0 in place of every digit.

    Messages with equal results have the same fingerprint if their classes and their error codes are equal too.
    """
    return message[: _BYTES_MAX + _CODE_BYTES_MAX].translate(_ALIKE)


def find_codes(message: bytes) -> list[slice]:
    """Find the places of the error codes in a message, the same for all messages that `fold_digits` makes equal."""
    codes: list[slice] = []
    folded = message[: _BYTES_MAX + _CODE_BYTES_MAX].lower()
    for word, after in _CODE_WORDS:
        at = folded.find(word)
        while at >= 0:
            end = at + len(word)
            if (found := after.match(folded, end)) and (word != b"code" or _is_of_error(folded, at)):
                codes.append(slice(end, found.end()))
            at = folded.find(word, end)
    return codes


def _is_of_error(folded: bytes, at: int) -> bool:
    """Whether the word `code` at this place is not another kind of code: whatever stands before it says of which it is."""
    before = folded[max(0, at - _OF_ERRORS_BYTES_MAX) : at]
    return not (before[-1:].isalpha() or before[-1:] in (b" ", b"_")) or before.rstrip(b" _").endswith(_OF_ERRORS)


def _encode_alike(message: str) -> bytes:
    """The first 2,048 bytes of a message in UTF-8, with 0 in place of every digit that is not of an error code."""
    head = message[: _BYTES_MAX + _CODE_BYTES_MAX].encode("utf-8", "replace")
    codes = find_codes(head)
    if codes:
        marked = bytearray(head)
        for code in codes:
            marked[code] = head[code].translate(_MARK)
        head = bytes(marked)
    return head[:_BYTES_MAX].translate(_ALIKE)


# What messages differ in is mostly numbers, and their digits are alike here.
@lru_cache(_KNOWN_MAX // 10)
def _in_common(exception: str | None, alike: bytes) -> FailureKind:
    # The last character may be cut.
    text = alike.decode("utf-8", "ignore")
    inner = _find_inner(text)
    if inner is None:
        return FailureKind(exception, message_pattern.find_common_text(text))
    said = text[inner.end() :].partition(": ")[2].strip()
    if not said:
        # What has no message of its own is told apart by what was put around it.
        before = text[: inner.start()].rstrip()
        said = before[:-_NESTED_CHARS] + _NESTED.sub("", before[-_NESTED_CHARS:])
    return FailureKind(inner[0], message_pattern.find_common_text(said))


def _find_inner(text: str) -> re.Match[str] | None:
    """Find the class of the innermost exception that a message names, with that exception's own message behind it."""
    inner = None
    if _IS_NESTED in text or any(word in text for word in _THROWN):
        for found in _INNER.finditer(text):
            if found[0].endswith(_THROWN) or text.endswith(_IS_NESTED, 0, found.start()):
                inner = found
    return inner


def _hash_failure(failed: tuple[str | None, bytes | None]) -> str | None:
    if failed == (None, None):
        return None
    exception, message = _in_common(failed[0], failed[1] or b"")
    # Compilers number classes that have no name.
    texts = (exception or "").translate(_CLASS_ALIKE), message
    found = xxh3_64_hexdigest("\0".join(texts).encode("utf-8", "surrogatepass"))
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[failed] = found
    return found
