"""Which changelog records a table takes in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retry.entry import END_KEY, FIRST_KEY, LANE_BYTES
from retry.errors import EntryUnreadable
from retry.table.base import CONTROL, Row

_SHORTEST = LANE_BYTES + 8 + 1


def checked(rows: Sequence[Row]) -> Iterator[Row]:
    """The last record of each key; nulls of foreign keys, which delete nothing here, left out.

    Raises:
      EntryUnreadable: a record is neither an entry nor a control.
    """
    for key, value in dict(rows).items():
        if (FIRST_KEY < key < END_KEY and len(key) > _SHORTEST) or key[:1] == CONTROL:
            yield key, value
        elif value is not None:
            raise EntryUnreadable(f"a changelog record has the key {key.hex()[:100]}, which is neither entry nor control")
