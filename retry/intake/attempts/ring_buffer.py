"""The newest so many lineages of one team, found by lineage and by fingerprint: 42 bytes each, and about 26 for the two indexes.

A send is named by its number, which only grows; its row lies at that number modulo the length of the ring, and the newest takes
the place of the oldest. Both indexes are chains from newer to older: one for each slot, with the newest number in `heads`. A
chain ends at a number whose row is gone, since all behind it are older. A dict takes three times the memory and finds nothing
faster.

    lineage u64 | next by lineage u64 | fingerprint u64 | next by fingerprint u64 | due u32 | first failed u32 | attempts u16
"""

from __future__ import annotations

import math
import secrets
import sys
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from mmap import mmap
from struct import Struct

from retry.intake.attempts.lineages import LineageFields

_ROW = Struct("<QQQQIIH")
_SIZE = _ROW.size
_ENTRY, _NEXT, _NAMES, _STATE = Struct("<QQ"), Struct("<Q"), Struct("<Q8xQ"), Struct("<IIH")
_AT_FINGERPRINT, _AT_STATE = 16, 32
# Stands for what comes next by fingerprint, in a row that is not in the chain of its own.
_NOT_LINKED = (1 << 64) - 1


class Ring:
    """At most `rows_max` rows. 0 is the number of none; a number is good until its row is gone.

    A fingerprint has one row in its chain, by `link` and `unlink`, so that equal letters do not lengthen it.
    """

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self._slots = _slots_for(rows_max)
        self._lineages, self._fingerprints = (array("Q", bytes(8 * self._slots)) for _ in range(2))
        # Memory that the system gives page by page as it is written to, and that never moves.
        self._rows = mmap(-1, rows_max * _SIZE)
        # So begun, the number of a row that is gone is never below 0.
        self._newest = rows_max
        # Rows up to this number are gone, though their place is not taken yet.
        self._dropped = 0
        self._young_rows = rows_max // 2

    def __len__(self) -> int:
        # Numbers up to the size of the ring were never given.
        return self._newest - max(self._newest_gone(), self.rows_max)

    def _newest_gone(self) -> int:
        return max(self._newest - self.rows_max, self._dropped)

    def limit_rows(self, rows: int) -> None:
        """Let the oldest rows go where there are more than so many; half as many are young from now on."""
        self._dropped, self._young_rows = max(self._dropped, self._newest - rows), rows // 2

    def resize(self, rows_max: int) -> Ring:
        """Make a ring of this size of the newest rows, as they are."""
        ring, kept = Ring(rows_max), min(len(self), rows_max)
        rows, slots, by_lineage, by_fingerprint = ring._rows, ring._slots, ring._lineages, ring._fingerprints
        for number, fields in enumerate(self._unpack_newest(kept), rows_max + 1):
            lineage_id, _, fingerprint, behind, due_s, first_s, attempts = fields
            slot = lineage_id % slots
            if behind != _NOT_LINKED:
                other = fingerprint % slots
                behind, by_fingerprint[other] = by_fingerprint[other], number
            row = lineage_id, by_lineage[slot], fingerprint, behind, due_s, first_s, attempts
            _ROW.pack_into(rows, number % rows_max * _SIZE, *row)
            by_lineage[slot] = number
        ring._newest += kept
        return ring

    def _unpack_newest(self, count: int) -> Iterator[tuple[int, ...]]:
        """The newest so many rows, the oldest of them first."""
        oldest = self._row_at(self._newest - count + 1)
        behind = min(oldest + count * _SIZE, len(self._rows))
        yield from _ROW.iter_unpack(self._rows[oldest:behind])
        yield from _ROW.iter_unpack(self._rows[: oldest + count * _SIZE - behind])

    def bytes_used(self) -> int:
        """Return the bytes of memory of the rows that were ever written, and of both indexes."""
        return len(self) * _SIZE + sys.getsizeof(self._lineages) + sys.getsizeof(self._fingerprints)

    def find_lineage(self, lineage_id: int) -> int:
        number, rows, rows_max = self._lineages[lineage_id % self._slots], self._rows, self.rows_max
        gone = self._newest - rows_max
        # Not by a call: each letter asks here.
        if gone < self._dropped:
            gone = self._dropped
        while number > gone:
            id_of_row, after = _ENTRY.unpack_from(rows, number % rows_max * _SIZE)
            if id_of_row == lineage_id:
                return number
            number = after
        return 0

    def find_fingerprint(self, fingerprint: int) -> int:
        number, rows, rows_max = self._fingerprints[fingerprint % self._slots], self._rows, self.rows_max
        gone = self._newest - rows_max
        # Not by a call: each letter asks here.
        if gone < self._dropped:
            gone = self._dropped
        while number > gone:
            fingerprint_of_row, after = _ENTRY.unpack_from(rows, number % rows_max * _SIZE + _AT_FINGERPRINT)
            if fingerprint_of_row == fingerprint:
                return number
            number = after
        return 0

    def find_linked(self, fingerprints: Iterable[int]) -> list[int]:
        """List the positions of those fingerprints that are linked to a row: as `find_fingerprint` does, for many in one call."""
        heads, slots, rows, rows_max, found = self._fingerprints, self._slots, self._rows, self.rows_max, list[int]()
        gone = self._newest_gone()
        for position, fingerprint in enumerate(fingerprints):
            number = heads[fingerprint % slots]
            while number > gone:
                fingerprint_of_row, number = _ENTRY.unpack_from(rows, number % rows_max * _SIZE + _AT_FINGERPRINT)
                if fingerprint_of_row == fingerprint:
                    found.append(position)
                    break
        return found

    def is_young(self, number: int) -> bool:
        """Whether it is in the newer half."""
        return number > self._newest - self._young_rows

    def read_identity(self, number: int) -> tuple[int, int]:
        return _NAMES.unpack_from(self._rows, number % self.rows_max * _SIZE)

    def get_state(self, number: int) -> tuple[int, int, int]:
        return _STATE.unpack_from(self._rows, number % self.rows_max * _SIZE + _AT_STATE)

    def set_state(self, number: int, due_s: int, first_s: int, attempts: int) -> None:
        _STATE.pack_into(self._rows, self._row_at(number) + _AT_STATE, due_s, first_s, attempts)

    def admit(self, sends: Iterable[LineageFields], more: Container[int], otherwise: Callable[[LineageFields], None]) -> None:
        """Take in sends of which nearly all are first ones of letters that are not there: a new row, linked to its fingerprint.

        Sends of fingerprints that are in `more`, or are known, go to `otherwise`, in their order, which may change rows.
        """
        rows, rows_max, slots = self._rows, self.rows_max, self._slots
        by_lineage, by_fingerprint, dropped = self._lineages, self._fingerprints, self._dropped
        for send in sends:
            lineage_id, fingerprint, due_s, first_s, attempt, flags = send
            slot, other = lineage_id % slots, fingerprint % slots
            before, behind, gone = by_lineage[slot], by_fingerprint[other], self._newest - rows_max
            if gone < dropped:
                gone = dropped
            # Where the slots are empty, nothing is there.
            if (
                attempt != 1 or flags or fingerprint in more or (before > gone and self.find_lineage(lineage_id))
                or (behind > gone and self.find_fingerprint(fingerprint))
            ):  # fmt: skip
                otherwise(send)
                continue
            # The same as `append_row` and `link` in one step.
            self._newest = number = self._newest + 1
            at = number % rows_max * _SIZE
            rows[at : at + _SIZE] = _ROW.pack(lineage_id, before, fingerprint, behind, due_s, first_s, attempt)
            by_lineage[slot] = by_fingerprint[other] = number

    def append_row(self, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempts: int) -> int:
        """Write a new row, and return its number; a full ring overwrites the oldest row.

        The new row hides older rows of the same lineage. It is found by its fingerprint only after `link` was called.
        """
        self._newest = number = self._newest + 1
        at, slot = self._row_at(number), lineage_id % self._slots
        older = self._lineages[slot]
        self._rows[at : at + _SIZE] = _ROW.pack(lineage_id, older, fingerprint, _NOT_LINKED, due_s, first_s, attempts)
        self._lineages[slot] = number
        return number

    def link(self, number: int, fingerprint: int) -> None:
        former = self.find_fingerprint(fingerprint)
        if former == number:
            return
        if former:
            self.unlink(former)
        slot = fingerprint % self._slots
        before, after = 0, self._fingerprints[slot]
        while after > number:
            before, after = after, self._read_next(after)
        _ENTRY.pack_into(self._rows, self._row_at(number) + _AT_FINGERPRINT, fingerprint, after)
        self._join(slot, before, number)

    def unlink(self, number: int) -> None:
        """Remove a row from the chain of its fingerprint; do nothing where the row is not in the chain."""
        slot = self.read_identity(number)[1] % self._slots
        before, here = 0, self._fingerprints[slot]
        while here > number:
            before, here = here, self._read_next(here)
        if here == number:
            self._join(slot, before, self._read_next(number))
            _NEXT.pack_into(self._rows, self._row_at(number) + _AT_FINGERPRINT + _NEXT.size, _NOT_LINKED)

    def _read_next(self, number: int) -> int:
        return _NEXT.unpack_from(self._rows, self._row_at(number) + _AT_FINGERPRINT + _NEXT.size)[0]

    def _join(self, slot: int, before: int, after: int) -> None:
        if before:
            _NEXT.pack_into(self._rows, self._row_at(before) + _AT_FINGERPRINT + _NEXT.size, after)
        else:
            self._fingerprints[slot] = after

    def _row_at(self, number: int) -> int:
        return number % self.rows_max * _SIZE


def _slots_for(rows: int) -> int:
    """A prime number of slots, half again as many as rows; who writes letters cannot guess it, and so put all ids into one chain.
    """
    slots = rows * 3 // 2 + secrets.randbelow(rows // 4 + 64)
    while slots < 2 or any(slots % divisor == 0 for divisor in range(2, math.isqrt(slots) + 1)):
        slots += 1
    return slots
