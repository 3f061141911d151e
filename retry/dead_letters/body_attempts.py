"""The one thing that may be read from a payload where the policy file asks for it: how many deliveries of it have failed.

A consumer that counts in the body makes another body with each attempt: if it drops headers too, nothing else tells what it was.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from retry.dead_letters.frameworks import header_values

_MARK = "$"
# More is not looked into: what is asked of every letter must cost little.
_BYTES_MAX = 64 << 10
# Values stay the bytes that they are until one of them is wanted: no number is made of five thousand digits.
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_attempts(value: bytes | None, names: Iterable[str]) -> int:
    """The largest count that a JSON body has under those of `names` that are paths, like `$.meta.tries`; 0 where it has none.

    A count is a whole number from 0 to 2**31 - 1, written in digits alone. Whatever else stands there, a body that is no JSON
    object, one that is nested too deeply, and one of more than 64 KiB count as one that has none.

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
    return header_values.digits_int32(raw) or 0
