"""What was sent lately: the fold of all packed records, for one thread that folds and asks."""

from __future__ import annotations

import msgspec

from retry.intake.attempts.equal_letters import Level, Levels
from retry.intake.attempts.lineage_codec import ATTEMPT_MAX, MATCHED, unpack
from retry.intake.attempts.ring_buffer import Ring

# A level takes some 300 bytes, a lineage 70.
_LINEAGES_PER_LEVEL = 32
_LEVELS_MIN = 64


class Known(msgspec.Struct, frozen=True, gc=False):
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

    The one that was new longest ago is forgotten first, unless something was sent for it since it came into the older
    half. A lineage whose key or value changes on the way takes the place of one more each time. About 70 bytes a lineage,
    and some fifteen more where equal letters abound.

    Args:
      limit: the most lineages that are remembered.
    """

    def __init__(self, limit: int) -> None:
        self._ring = Ring(max(2, limit))
        self._levels = Levels(max(_LEVELS_MIN, limit // _LINEAGES_PER_LEVEL))
        self._equal = self._levels.by_fingerprint

    def __len__(self) -> int:
        """How many rows there are; copies that a newer row hides count too."""
        return len(self._ring)

    def bytes_used(self) -> int:
        """Memory of rows and indexes; that of equal letters is not counted."""
        return self._ring.bytes_used()

    def sends(self, lineage_id: int) -> Known | None:
        """What is known of a lineage; None where nothing was sent lately."""
        number = self._ring.of_lineage(lineage_id)
        if not number:
            return None
        due_s, first_s, attempts = self._ring.state(number)
        if due_s and self._equal:
            # An equal letter that came back without headers may have taken the send of this one, and left its own.
            attempts = max(attempts, self._levels.nearest(self._ring.names(number)[1], attempts))
        return _known(lineage_id, due_s, first_s, attempts)

    def returned(self, fingerprint: int, now_ms: int, window_ms: int, skip: int = 0) -> Known | None:
        """The send that a letter without headers comes back from; None where it is a new letter.

        It is outstanding, was due by now, and has the lowest attempt of those. Nothing is taken: the fold does that, when
        the letter's row says `matched`.

        Args:
          window_ms: longest time since the first failure.
          skip: how many letters with this fingerprint the batch at hand has matched before this one.
        """
        now_s, oldest_s = now_ms // 1_000, (now_ms - window_ms) // 1_000
        if fingerprint in self._equal:
            level = self._levels.find(fingerprint, now_s, oldest_s, skip)
            return _known(level.id, level.due_s, level.first_s, level.attempt) if level else None
        number = self._ring.of_fingerprint(fingerprint)
        if not number or skip:
            return None
        due_s, first_s, attempts = self._ring.state(number)
        if not 0 < due_s <= now_s or first_s < oldest_s:
            return None
        return _known(self._ring.names(number)[0], due_s, first_s, attempts)

    def unheard(self, fingerprint: int) -> bool:
        """Whether nothing at all is known of a fingerprint: `returned` is None, whatever else is asked."""
        return fingerprint not in self._equal and not self._ring.of_fingerprint(fingerprint)

    def is_out(self, fingerprint: int, attempt: int, now_ms: int) -> bool:
        """Whether a send of this attempt with this fingerprint was due and has not come back."""
        if fingerprint in self._equal:
            return self._levels.has(fingerprint, attempt, now_ms // 1_000)
        number = self._ring.of_fingerprint(fingerprint)
        due_s, _, attempts = self._ring.state(number) if number else (0, 0, 0)
        return 0 < due_s <= now_ms // 1_000 and attempts == attempt

    def fold(self, packed: bytes) -> None:
        """Take in what one batch decided.

        Raises:
          LineageUnreadable: see `unpack`; nothing of it was taken in.
        """
        equal, admit = self._equal, self._ring.admit
        for lineage_id, fingerprint, due_s, first_s, attempt, flags in unpack(packed):
            # Nearly every letter is new, and needs no closer look.
            new = attempt == 1 and not flags and fingerprint not in equal
            if not new or not admit(lineage_id, fingerprint, due_s, first_s, attempt):
                self._fold_known(lineage_id, fingerprint, due_s, first_s, attempt, flags)

    def _fold_known(
        self, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempt: int, flags: int
    ) -> None:
        number = self._ring.of_lineage(lineage_id)
        if number and attempt != 1 and self._is_only(number, fingerprint):
            # The only send with this fingerprint came back to where it lies: the same as below, in one step.
            _, first_s, attempts = self._ring.state(number)
            sent = min(max(attempt, attempts + 1), ATTEMPT_MAX) if attempt else attempts
            self._ring.set_state(number, due_s if attempt else 0, first_s, sent)
            return
        taken = self._return(number, fingerprint, due_s, attempt, flags)
        if attempt:
            attempt = min(max(attempt, taken + 1), ATTEMPT_MAX)
            self._send(number, lineage_id, fingerprint, due_s, first_s, attempt)

    def _is_only(self, number: int, fingerprint: int) -> bool:
        ring = self._ring
        return number == ring.of_fingerprint(fingerprint) and ring.state(number)[0] > 0 and ring.young(number)

    def _return(self, number: int, fingerprint: int, due_s: int, attempt: int, flags: int) -> int:
        """Take the send that a letter comes back from, if it does; the attempt that this was, else 0."""
        outstanding_s, first_s, attempts = self._ring.state(number) if number else (0, 0, 0)
        taken = 0
        if flags & MATCHED:
            taken = self._take(fingerprint, attempt - 1 if attempt else self._lowest(fingerprint, due_s))
        elif outstanding_s and attempt != 1:
            last = min(attempt - 1, attempts) if attempt else attempts
            taken = self._take(self._ring.names(number)[1], last)
        if number and not attempt:
            # Nothing of it is outstanding; what was taken may have been the send of an equal letter.
            self._ring.set_state(number, 0, first_s, attempts)
        return taken

    def _send(self, number: int, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempt: int) -> None:
        ring = self._ring
        only = self._credit(fingerprint, Level(attempt, 1, due_s, first_s, lineage_id))
        if number:
            # The first failure stays what it was, and attempts never become fewer, whatever a letter says of itself.
            _, first_s, attempts = ring.state(number)
            attempt = max(attempt, attempts)
        if number and ring.young(number) and fingerprint == ring.names(number)[1]:
            ring.set_state(number, due_s, first_s, attempt)
        else:
            if number:
                ring.unlink(number)
            number = ring.add(lineage_id, fingerprint, due_s, first_s, attempt)
        if only:
            ring.link(number, fingerprint)

    def _credit(self, fingerprint: int, credit: Level) -> bool:
        """Count a send where more with this fingerprint are outstanding; whether it is the only one."""
        if fingerprint not in self._equal:
            number = self._only(fingerprint)
            if not number:
                return True
            due_s, first_s, attempts = self._ring.state(number)
            self._levels.add(fingerprint, Level(attempts, 1, due_s, first_s, self._ring.names(number)[0]))
            self._ring.unlink(number)
        self._levels.add(fingerprint, credit)
        return False

    def _take(self, fingerprint: int, attempt: int) -> int:
        if fingerprint in self._equal:
            return self._levels.take(fingerprint, attempt)
        number = self._only(fingerprint)
        if not number:
            return 0
        _, first_s, attempts = self._ring.state(number)
        self._ring.set_state(number, 0, first_s, attempts)
        return attempts

    def _lowest(self, fingerprint: int, due_s: int) -> int:
        level = self._levels.find(fingerprint, due_s, 0)
        return level.attempt if level else 0

    def _only(self, fingerprint: int) -> int:
        """The row of the outstanding send with a fingerprint that has no levels; 0 where there is none."""
        number = self._ring.of_fingerprint(fingerprint)
        return number if number and self._ring.state(number)[0] else 0


def _known(lineage_id: int, due_s: int, first_s: int, attempts: int) -> Known:
    return Known(lineage_id, attempts, first_s * 1_000, due_s * 1_000)
