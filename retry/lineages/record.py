"""What was sent lately: the fold of all packed records, for one thread that folds and asks."""

from __future__ import annotations

from typing import NamedTuple

from retry.lineages.generation import Generation, slots_for
from retry.lineages.levels import Level, Levels
from retry.lineages.packed import ATTEMPT_MAX, MATCHED, unpack

_LEVELS_PER_LINEAGE = 1 / 16
_LEVELS_MIN = 64


class Known(NamedTuple):
    """What is known of a lineage.

    Attributes:
      id: its number.
      attempts: the sends decided so far.
      first_failed_ms: when its first attempt failed, rounded down to a second.
      due_ms: when its last send is due, rounded down to a second; 0 where that came back or the letter was parked.
    """

    id: int
    attempts: int
    first_failed_ms: int
    due_ms: int


class Lineages:
    """The last lineages that something was sent for: no fewer than half of `limit`, no more than `limit`.

    There are two generations. What is new or changes is in the young one; when that is full, the old one is dropped and
    the young one is old. About 55 bytes a lineage, and a third more where equal letters abound.

    Args:
      limit: the most lineages that are remembered.
    """

    def __init__(self, limit: int) -> None:
        self._rows_max = max(1, limit // 2)
        self._slots = slots_for(self._rows_max)
        self._young, self._old = Generation(self._slots), Generation(1)
        self._levels = Levels(max(_LEVELS_MIN, int(limit * _LEVELS_PER_LINEAGE)))

    def __len__(self) -> int:
        """How many rows there are; a lineage that was found in the old generation and changed since counts twice."""
        return self._young.rows + self._old.rows

    def bytes_used(self) -> int:
        """Memory of the arrays; that of equal letters is not counted."""
        return self._young.bytes_used() + self._old.bytes_used()

    def sends(self, lineage_id: int) -> Known | None:
        """What is known of a lineage; None where nothing was sent lately."""
        for generation in (self._young, self._old):
            if row := generation.row_of(lineage_id):
                return _known(generation, row)
        return None

    def returned(self, fingerprint: int, now_ms: int, window_ms: int, skip: int = 0) -> Known | None:
        """The send that a letter without headers comes back from; None where it is a new letter.

        It is outstanding, was due by now, and has the lowest attempt of those. Nothing is taken: the fold does that, when
        the letter's row says `matched`.

        Args:
          window_ms: longest time since the first failure.
          skip: how many letters with this fingerprint the batch at hand has matched before this one.
        """
        due_s, first_s = now_ms // 1_000, (now_ms - window_ms) // 1_000
        if fingerprint in self._levels:
            level = self._levels.find(fingerprint, due_s, first_s, skip)
            return Known(level.id, level.attempt, level.first_s * 1_000, level.due_s * 1_000) if level else None
        generation, row = self._only(fingerprint)
        if not row or skip or generation.due_s[row] > due_s or generation.first_s[row] < first_s:
            return None
        return _known(generation, row)

    def is_out(self, fingerprint: int, attempt: int, now_ms: int) -> bool:
        """Whether a send of this attempt with this fingerprint was due and has not come back."""
        if fingerprint in self._levels:
            return self._levels.has(fingerprint, attempt, now_ms // 1_000)
        generation, row = self._only(fingerprint)
        return row > 0 and generation.attempts[row] == attempt and generation.due_s[row] <= now_ms // 1_000

    def fold(self, packed: bytes) -> None:
        """Take in what one batch decided.

        Raises:
          LineageUnreadable: see `unpack`; nothing of it was taken in.
        """
        levels = self._levels
        for lineage_id, fingerprint, due_s, first_s, attempt, flags in unpack(packed):
            if self._young.rows >= self._rows_max:
                self._young, self._old = Generation(self._slots), self._young
            young, old = self._young, self._old
            known = young.row_of(lineage_id) or old.row_of(lineage_id)
            if known or flags or fingerprint in levels or young.last_of(fingerprint) or old.last_of(fingerprint):
                self._fold_known(lineage_id, fingerprint, due_s, first_s, attempt, flags)
            elif attempt:
                young.link(young.add(lineage_id, fingerprint, due_s, first_s, attempt))

    def _fold_known(
        self, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempt: int, flags: int
    ) -> None:
        generation, row = self._find(lineage_id)
        taken = 0
        if flags & MATCHED:
            taken = self._take(fingerprint, attempt - 1 if attempt else self._lowest(fingerprint, due_s))
        elif row and generation.due_s[row] and attempt != 1:
            sent = generation.attempts[row]
            taken = self._take(generation.fingerprints[row], min(attempt - 1, sent) if attempt else sent)
        if attempt:
            attempt = min(max(attempt, taken + 1), ATTEMPT_MAX)
            self._send(generation, row, (lineage_id, fingerprint, due_s, first_s, attempt))
        elif row:
            generation.due_s[row] = 0

    def _send(self, generation: Generation, row: int, sent: tuple[int, int, int, int, int]) -> None:
        young = self._young
        lineage_id, fingerprint, due_s, first_s, attempt = sent
        only = self._credit(fingerprint, Level(attempt, 1, due_s, first_s, lineage_id))
        if row:
            # The first failure stays what it was, and attempts never become fewer, whatever a letter says of itself.
            first_s, attempt = generation.first_s[row], max(attempt, generation.attempts[row])
        if row and generation is young:
            young.unlink(row)
            young.fingerprints[row], young.due_s[row], young.attempts[row] = fingerprint, due_s, attempt
        else:
            generation.due_s[row] = 0
            row = young.add(lineage_id, fingerprint, due_s, first_s, attempt)
        if only:
            young.link(row)

    def _credit(self, fingerprint: int, credit: Level) -> bool:
        """Count a send where there are more with this fingerprint; whether it is the only one."""
        if fingerprint not in self._levels:
            generation, row = self._only(fingerprint)
            if not row:
                return True
            times = generation.due_s[row], generation.first_s[row]
            self._levels.add(fingerprint, Level(generation.attempts[row], 1, *times, generation.ids[row]))
            generation.unlink(row)
        self._levels.add(fingerprint, credit)
        return False

    def _take(self, fingerprint: int, attempt: int) -> int:
        if fingerprint in self._levels:
            return self._levels.take(fingerprint, attempt)
        generation, row = self._only(fingerprint)
        if not row:
            return 0
        generation.due_s[row] = 0
        return generation.attempts[row]

    def _lowest(self, fingerprint: int, due_s: int) -> int:
        level = self._levels.find(fingerprint, due_s, 0)
        return level.attempt if level else 0

    def _find(self, lineage_id: int) -> tuple[Generation, int]:
        row = self._young.row_of(lineage_id)
        return (self._young, row) if row else (self._old, self._old.row_of(lineage_id))

    def _only(self, fingerprint: int) -> tuple[Generation, int]:
        """The row of the only outstanding send with a fingerprint that has no levels; row 0 where there is none."""
        for generation in (self._young, self._old):
            row = generation.last_of(fingerprint)
            if row and generation.due_s[row]:
                return generation, row
        return self._old, 0


def _known(generation: Generation, row: int) -> Known:
    times_ms = generation.first_s[row] * 1_000, generation.due_s[row] * 1_000
    return Known(generation.ids[row], generation.attempts[row], *times_ms)
