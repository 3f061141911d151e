"""How often each letter of one team was sent lately: the rows of all batches, applied in order by one thread, which also asks.

Each row of a record is one decision of intake about one letter. What it does to the record:

| the row | the lineage is | what happens |
| --- | --- | --- |
| attempt 1, not matched | new | *first send*: one send is outstanding, found by lineage and by fingerprint |
| attempt n, or 0 (parked) | known | *return*: its last send is taken back; then, where it is retried, attempt n is outstanding |
| matched, attempt n or 0 | any | *return of an equal letter*: the send n-1 of this fingerprint is taken back, whoever's it was |

Letters that are equal in topic, key and value share a fingerprint, and nothing tells them apart once their headers are gone.
Where more than one of their sends is outstanding, these are counted by attempt; see `equal_letters`. Three equal letters fail,
are sent, and come back without headers, one after another:

>>> from retry.intake.attempts.lineages import build_fields
>>> recent, fingerprint, window_ms = TeamLineages(), 7, 3_600_000
>>> recent.apply_sends([build_fields(id_, fingerprint, 5_000, 1_000, 1, False) for id_ in (1, 2, 3)], 3, 100)
>>> recent.find_returned(fingerprint, 6_000, window_ms).attempts
1
>>> recent.apply_sends([build_fields(3, fingerprint, 9_000, 1_000, 2, True)], 1, 100)  # one of them is sent for the second time
>>> [recent.find_returned(fingerprint, 10_000, window_ms, skip).attempts for skip in range(3)]
[1, 1, 2]
>>> recent.apply_sends([build_fields(1, fingerprint, 0, 1_000, 0, True)], 1, 100)  # another is parked: it takes the lowest
>>> [recent.find_returned(fingerprint, 10_000, window_ms, skip).attempts for skip in range(2)]
[1, 2]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from retry.intake.attempts.equal_letters import Level, Levels
from retry.intake.attempts.lineages import ATTEMPT_MAX, MATCHED, MOVED, LineageFields
from retry.intake.attempts.ring_buffer import Ring

_ROWS_MIN = 64


class KnownLineage(msgspec.Struct, frozen=True, gc=False):
    """The sends of one lineage, as far as they are known: its number, and how many sends were decided so far.

    Times are rounded down to a second. Its last send is due at `due_ms`; 0 where that came back or the letter was parked.
    """

    id: int
    attempts: int
    first_failed_ms: int
    due_ms: int


class TeamLineages:
    """The last lineages of one team that something was sent for.

    The one that was new longest ago is forgotten first, unless something was sent for it since it came into the older half.
    Memory: about 70 bytes a lineage, and some fifteen more where equal letters abound.
    """

    def __init__(self) -> None:
        self._ring = Ring(_ROWS_MIN)
        self._levels = Levels()
        self._equal = self._levels.by_fingerprint

    def __len__(self) -> int:
        """How many rows there are; copies that a newer row hides count too."""
        return len(self._ring)

    @property
    def level_count(self) -> int:
        return len(self._levels)

    def bytes_used(self) -> int:
        """Return the bytes of memory of rows and indexes; the memory of equal letters is not counted."""
        return self._ring.bytes_used()

    def limit_rows(self, rows_max: int) -> None:
        """Forget the oldest lineages beyond so many rows, and give back memory that is not used any more."""
        self._ring.limit_rows(rows_max)
        if self._ring.rows_max > max(_ROWS_MIN, 2 * len(self._ring)):
            self._resize(max(_ROWS_MIN, len(self._ring)), rows_max)

    def forget_oldest_level(self) -> None:
        """Forget sends of the equal letters of which one was sent longest ago."""
        self._levels.forget_oldest()

    def _resize(self, rows: int, rows_max: int) -> None:
        self._ring = self._ring.resize(rows)
        self._ring.limit_rows(rows_max)

    def sends(self, lineage_id: int) -> KnownLineage | None:
        """Find what is known of the sends of a lineage; None where nothing was sent lately."""
        row = self._ring.find_lineage(lineage_id)
        if not row:
            return None
        due_s, first_s, attempts = self._ring.get_state(row)
        if due_s and self._equal:
            # An equal letter that came back without headers may have taken the send of this one, and left its own.
            attempts = max(attempts, self._levels.nearest(self._ring.read_identity(row)[1], attempts))
        return _make_known(lineage_id, due_s, first_s, attempts)

    def find_returned(self, fingerprint: int, now_ms: int, window_ms: int, skip: int = 0) -> KnownLineage | None:
        """Find the send that a letter without headers comes back from; None where the letter is new.

        It is outstanding, was due by now, and failed first within the window. Of those it has the lowest attempt, but for `skip`
        sends that the batch at hand has matched before. Nothing is taken: the fold does that.
        """
        now_s, oldest_s = now_ms // 1_000, (now_ms - window_ms) // 1_000
        if fingerprint in self._equal:
            level = self._levels.find(fingerprint, now_s, oldest_s, skip)
            return _make_known(level.id, level.due_s, level.first_s, level.attempt) if level else None
        row = self._ring.find_fingerprint(fingerprint)
        if not row or skip:
            return None
        due_s, first_s, attempts = self._ring.get_state(row)
        if not 0 < due_s <= now_s or first_s < oldest_s:
            return None
        return _make_known(self._ring.read_identity(row)[0], due_s, first_s, attempts)

    def list_known(self, fingerprints: Sequence[int]) -> list[int]:
        """List the positions of fingerprints of which anything is known; for all others `find_returned` always returns None."""
        equal = self._equal
        more = [n for n, fingerprint in enumerate(fingerprints) if fingerprint in equal] if equal else []
        return self._ring.find_linked(fingerprints) + more

    def is_out(self, fingerprint: int, attempt: int, now_ms: int) -> bool:
        """Whether a send of this attempt with this fingerprint was due and has not come back."""
        if fingerprint in self._equal:
            return self._levels.has_outstanding_send(fingerprint, attempt, now_ms // 1_000)
        row = self._ring.find_fingerprint(fingerprint)
        due_s, _, attempts = self._ring.get_state(row) if row else (0, 0, 0)
        return 0 < due_s <= now_ms // 1_000 and attempts == attempt

    def apply_sends(self, sends: Iterable[LineageFields], count: int, rows_max: int) -> None:
        """Take in what one batch decided, so many sends; at most `rows_max` rows are left afterwards."""
        rows, wanted = self._ring.rows_max, len(self._ring) + count
        if rows < min(wanted, rows_max):
            # By a quarter at least: what may be kept may become a little more again and again.
            self._resize(max(min(rows_max, max(wanted, 2 * rows)), rows * 5 // 4), rows_max)

        def closely(send: LineageFields) -> None:
            fold = self._move_send if send[-1] == MOVED else self._fold_closely
            fold(*send)

        # Nearly every letter is new, and needs no closer look.
        self._ring.admit(sends, self._equal, closely)
        self._ring.limit_rows(rows_max)

    def _fold_closely(self, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempt: int, flags: int) -> None:
        row = self._ring.find_lineage(lineage_id)
        if row and attempt != 1 and self._is_only(row, fingerprint):
            # The only send with this fingerprint came back to where it lies: the same as below, in one step.
            _, first_s, attempts = self._ring.get_state(row)
            sent = min(max(attempt, attempts + 1), ATTEMPT_MAX) if attempt else attempts
            self._ring.set_state(row, due_s if attempt else 0, first_s, sent)
            return
        taken = self._take_back(row, fingerprint, due_s, attempt, flags)
        if attempt:
            attempt = min(max(attempt, taken + 1), ATTEMPT_MAX)
            self._put_out(row, lineage_id, fingerprint, due_s, first_s, attempt)

    def _move_send(self, lineage_id: int, fingerprint: int, due_s: int, _first_s: int, attempt: int, _flags: int) -> None:
        """A send that waits has another time, or none any more; told more than once, it comes to the same."""
        if fingerprint in self._equal:
            self._levels.lower_due_time(fingerprint, attempt, due_s)
            return
        row = self._only_row(fingerprint)
        if row and self._ring.read_identity(row)[0] == lineage_id:
            _, first_s, attempts = self._ring.get_state(row)
            if attempts == attempt:
                # What will not be sent is not counted.
                self._ring.set_state(row, due_s, first_s, attempt if due_s else attempt - 1)

    def _is_only(self, row: int, fingerprint: int) -> bool:
        ring = self._ring
        return row == ring.find_fingerprint(fingerprint) and ring.get_state(row)[0] > 0 and ring.is_young(row)

    def _take_back(self, row: int, fingerprint: int, due_s: int, attempt: int, flags: int) -> int:
        """Take the send that a letter comes back from, if it does; the attempt that this was, else 0."""
        outstanding_s, first_s, attempts = self._ring.get_state(row) if row else (0, 0, 0)
        taken = 0
        if flags & MATCHED:
            taken = self._take_send(fingerprint, attempt - 1 if attempt else self._lowest_due(fingerprint, due_s))
        elif outstanding_s and attempt != 1:
            last = min(attempt - 1, attempts) if attempt else attempts
            taken = self._take_send(self._ring.read_identity(row)[1], last)
        if row and not attempt:
            # Nothing of it is outstanding; what was taken may have been the send of an equal letter.
            self._ring.set_state(row, 0, first_s, attempts)
        return taken

    def _put_out(self, row: int, lineage_id: int, fingerprint: int, due_s: int, first_s: int, attempt: int) -> None:
        ring = self._ring
        only = self._count_among_equal(fingerprint, Level(attempt, 1, due_s, first_s, lineage_id))
        if row:
            # The first failure stays what it was, and attempts never become fewer, whatever a letter says of itself.
            _, first_s, attempts = ring.get_state(row)
            attempt = max(attempt, attempts)
        if row and ring.is_young(row) and fingerprint == ring.read_identity(row)[1]:
            ring.set_state(row, due_s, first_s, attempt)
        else:
            if row:
                ring.unlink(row)
            row = ring.append_row(lineage_id, fingerprint, due_s, first_s, attempt)
        if only:
            ring.link(row, fingerprint)

    def _count_among_equal(self, fingerprint: int, credit: Level) -> bool:
        if fingerprint not in self._equal:
            row = self._only_row(fingerprint)
            if not row:
                return True
            due_s, first_s, attempts = self._ring.get_state(row)
            self._levels.add_sends(fingerprint, Level(attempts, 1, due_s, first_s, self._ring.read_identity(row)[0]))
            self._ring.unlink(row)
        self._levels.add_sends(fingerprint, credit)
        return False

    def _take_send(self, fingerprint: int, attempt: int) -> int:
        if fingerprint in self._equal:
            return self._levels.take_send(fingerprint, attempt)
        row = self._only_row(fingerprint)
        if not row:
            return 0
        _, first_s, attempts = self._ring.get_state(row)
        self._ring.set_state(row, 0, first_s, attempts)
        return attempts

    def _lowest_due(self, fingerprint: int, due_s: int) -> int:
        level = self._levels.find(fingerprint, due_s, 0)
        return level.attempt if level else 0

    def _only_row(self, fingerprint: int) -> int:
        """The row of the outstanding send with a fingerprint that has no levels; 0 where there is none."""
        row = self._ring.find_fingerprint(fingerprint)
        return row if row and self._ring.get_state(row)[0] else 0


def _make_known(lineage_id: int, due_s: int, first_s: int, attempts: int) -> KnownLineage:
    return KnownLineage(lineage_id, attempts, first_s * 1_000, due_s * 1_000)
