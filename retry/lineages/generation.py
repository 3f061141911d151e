"""One half of the record: lineages in columns, found by lineage and by fingerprint.

A row is a number from 1 on; 0 is none. Both indexes are chains: `by_…` has the first row of each slot and `next_by_…`
the one after each row. Every lineage is in its chain; a row is in the chain of its fingerprint while it is the last send
with that fingerprint, so that equal letters do not lengthen it. A Python dict takes more than twice the memory.
"""

from __future__ import annotations

import math
import secrets
import sys
from array import array

_CHUNK_ROWS = 1_024


class Generation:
    """Up to as many lineages as its user puts in.

    Attributes:
      rows: how many there are.
      ids, fingerprints: 64-bit numbers.
      due_s: due second of the last send; 0 where it has come back or was parked.
      first_s: second of the first failure.
      attempts: sends so far.
    """

    __slots__ = (
        "attempts", "by_fingerprint", "by_id", "due_s", "fingerprints", "first_s", "ids", "next_by_fingerprint",
        "next_by_id", "room", "rows", "slots",
    )  # fmt: skip

    def __init__(self, slots: int) -> None:
        self.slots, self.rows, self.room = slots, 0, 0
        self.by_id, self.by_fingerprint = array("I", bytes(4 * slots)), array("I", bytes(4 * slots))
        self.ids, self.fingerprints = array("Q"), array("Q")
        self.due_s, self.first_s, self.attempts = array("I"), array("I"), array("H")
        self.next_by_id, self.next_by_fingerprint = array("I"), array("I")

    def row_of(self, lineage_id: int) -> int:
        """The row of a lineage."""
        row = self.by_id[lineage_id % self.slots]
        while row and self.ids[row] != lineage_id:
            row = self.next_by_id[row]
        return row

    def last_of(self, fingerprint: int) -> int:
        """The row of the last send with a fingerprint."""
        row = self.by_fingerprint[fingerprint % self.slots]
        while row and self.fingerprints[row] != fingerprint:
            row = self.next_by_fingerprint[row]
        return row

    def add(self, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempts: int) -> int:
        """A row for a lineage that has none; it is not in the chain of its fingerprint yet."""
        self.rows = row = self.rows + 1
        if row >= self.room:
            self._make_room()
        self.ids[row], self.fingerprints[row] = lineage_id, fingerprint
        self.due_s[row], self.first_s[row], self.attempts[row] = due_s, first_s, attempts
        slot = lineage_id % self.slots
        self.next_by_id[row] = self.by_id[slot]
        self.by_id[slot] = row
        return row

    def link(self, row: int) -> None:
        """This is the last send with its fingerprint."""
        fingerprint = self.fingerprints[row]
        if former := self.last_of(fingerprint):
            self.unlink(former)
        slot = fingerprint % self.slots
        self.next_by_fingerprint[row] = self.by_fingerprint[slot]
        self.by_fingerprint[slot] = row

    def unlink(self, row: int) -> None:
        """This is no longer the last send with its fingerprint, if it was."""
        slot = self.fingerprints[row] % self.slots
        here = self.by_fingerprint[slot]
        if here == row:
            self.by_fingerprint[slot] = self.next_by_fingerprint[row]
            return
        while here:
            before, here = here, self.next_by_fingerprint[here]
            if here == row:
                self.next_by_fingerprint[before] = self.next_by_fingerprint[row]
                return

    def _columns(self) -> tuple[array[int], ...]:
        own = self.ids, self.fingerprints, self.due_s, self.first_s, self.attempts
        return *own, self.next_by_id, self.next_by_fingerprint

    def _make_room(self) -> None:
        # An item is set in half the time that it takes to append one.
        self.room += _CHUNK_ROWS
        for column in self._columns():
            column.frombytes(bytes(_CHUNK_ROWS * column.itemsize))

    def bytes_used(self) -> int:
        """Memory of all arrays."""
        return sum(map(sys.getsizeof, (*self._columns(), self.by_id, self.by_fingerprint)))


def slots_for(rows: int) -> int:
    """A prime number of slots, a little above the rows, that nobody outside can guess.

    Ids come from headers, so anybody who writes letters may choose them; with a number known or composite they could all
    be put into one chain.
    """
    slots = rows + secrets.randbelow(rows // 4 + 64)
    while slots < 2 or any(slots % divisor == 0 for divisor in range(2, math.isqrt(slots) + 1)):
        slots += 1
    return slots
