"""What failures of one kind have in common: a number of 64 bits of class, root cause and message, less what differs each time.

Of the message numbers, ids, hexadecimal and quoted text are taken out. What it comes to is part of the outcome.
"""

from __future__ import annotations

import re
from functools import lru_cache

from xxhash import xxh3_64_hexdigest

_CHARS_MAX = 512
# When the cache is full it is emptied; each text has some hundred bytes.
_KNOWN_MAX = 10_000
# Each alternative begins at a quotation mark or at the beginning of a word, so it takes linear time whatever the text.
_DIFFERS = re.compile(
    r"""
    "[^"]*" | `[^`]*` | (?<!\w)'[^']*'
    | \b (?: [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b | [0-9a-fA-F]{8,}\b | [^\W\d]*\d[\w.:+-]* )
    """,
    re.VERBOSE | re.ASCII,
)

_ALIKE = str.maketrans("123456789", "0" * 9)

_ALIKE_BYTES = bytes.maketrans(b"123456789", b"0" * 9)

Failed = tuple[str | None, str | None, str | None]
_known: dict[Failed, str] = {}


def compute_fingerprint(exception: str | None, cause: str | None, message: str | None) -> str | None:
    """Hash a failure to 16 hexadecimal digits; None where nothing is known of it.

    >>> one = compute_fingerprint("java.io.IOException", None, "order 17 of 'Ann'")
    >>> one == compute_fingerprint("java.io.IOException", None, "order 4711 of 'Bob'")
    True
    """
    # All digits are alike here, so what differs in numbers is mostly known already.
    failed = exception, cause, None if message is None else message[:_CHARS_MAX].translate(_ALIKE)
    found = _known.get(failed)
    return found if found is not None else _hash_failure(failed)


def in_common(message: str) -> str:
    """Return the beginning of a message, 512 characters at most, with # in place of numbers, ids and quoted text.

    >>> in_common("order 17 of 'Ann' not found")
    'order # of # not found'
    """
    return _in_common(message[:_CHARS_MAX].translate(_ALIKE))


def normalize_message(message: bytes) -> bytes:
    """Return the first 2,048 bytes of a message in UTF-8, with 0 in place of every digit. Messages with equal results have the
    same fingerprint if class and cause are equal too: only the first 512 characters count, which take so many bytes at most."""
    return message[: 4 * _CHARS_MAX].translate(_ALIKE_BYTES)


# What messages differ in is mostly numbers, and their digits are alike here.
@lru_cache(_KNOWN_MAX // 10)
def _in_common(alike: str) -> str:
    return _DIFFERS.sub("#", alike)


def _hash_failure(failed: Failed) -> str | None:
    exception, cause, message = failed
    if exception is None and cause is None and message is None:
        return None
    texts = exception or "", cause or "", _in_common(message or "")
    found = xxh3_64_hexdigest("\0".join(texts).encode("utf-8", "surrogatepass"))
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known[failed] = found
    return found
