"""How much may pass in how much time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backoff.duration import duration_ms
from backoff.errors import PolicyInvalid

_WRITTEN = re.compile(r"([0-9]{1,9})/([0-9a-z]+)")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `tokens` in any `period_ms`; both at least 1."""

    tokens: int
    period_ms: int


def rate(value: object, path: str = "") -> Limit:
    """A limit as people write it: a whole number, a slash, and a duration or its unit alone.

    >>> rate("500/s"), rate("50000/1d")
    (Limit(tokens=500, period_ms=1000), Limit(tokens=50000, period_ms=86400000))

    Raises:
      PolicyInvalid: it is not such a text; `path` says where it stands.
    """
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise PolicyInvalid(path, f"{repr(value)[:40]} is not a rate; write it like 500/s, 20/5m or 50000/1d")
    period_ms = duration_ms(found[2] if found[2][0].isdigit() else f"1{found[2]}", path)
    if not period_ms:
        raise PolicyInvalid(path, f"{value} counts in no time at all; write it like 500/s, 20/5m or 50000/1d")
    return Limit(int(found[1]), period_ms)
