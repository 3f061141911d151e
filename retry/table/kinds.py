"""Which changelog records a table takes in."""

from __future__ import annotations

from collections.abc import Sequence

from retry.entry import END_KEY, FIRST_KEY, LANE_BYTES, ORDERED
from retry.errors import EntryUnreadable
from retry.table.base import CONTROL, Row

# Lane, due time, a topic of one character and its end, partition and offset; an ordered key has its order besides.
_BYTES_MIN = LANE_BYTES + 8 + 2 + 12
_ORDERED_BYTES_MIN = _BYTES_MIN + 8


def checked(rows: Sequence[Row]) -> list[Row]:
    """The last record of each key; nulls of foreign keys, which delete nothing here, left out. All of them, or none.

    Raises:
      EntryUnreadable: a record is neither an entry nor a control.
    """
    found = []
    for key, value in dict(rows).items():
        if _known(key):
            found.append((key, value))
        elif value is not None:
            raise EntryUnreadable(f"a changelog record has the key {key.hex()[:100]}, which is neither entry nor control")
    return found


def _known(key: bytes) -> bool:
    if FIRST_KEY < key < END_KEY:
        return len(key) >= (_BYTES_MIN if key[0] != ORDERED else _ORDERED_BYTES_MIN)
    return key[:1] == CONTROL
