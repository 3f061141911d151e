"""Rescheduling: waiting entries of one shard, moved under the policy file of today, a batch between two sweeps.

The effects of one batch, in their order, and what a crash after each costs:

1. read the next entries and decide each anew                      nothing
2. begin a transaction                                             nothing
3. put each that moves under its new key, then a null for the old
   one, and the new times into the record of lineages              nothing: all are undone
4. commit                                                          nothing: all stand; the next owner begins anew, and
                                                                   finds that what was moved is where it should be
5. drop the old rows from the table, before anything is swept      nothing: the fold finds the same nulls

The request is deleted in the transaction of the last batch. Entries that wait behind another come first, then those in blocks:
they may come forward, or leave their block, while this goes on, and are then met again; the other way round they would be
missed.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from retry.delay_queue import control_records
from retry.delay_queue.control_records import Reschedule
from retry.delay_queue.table.interface import Table
from retry.delivery import movers
from retry.delivery.movers import Effect, MoveContext, MovedBatch, Mover
from retry.delivery.redecide import Redecision
from retry.delivery.sweep import ChangelogPartition

log = logging.getLogger(__name__)

_PAGE = 64


class RescheduleStep(NamedTuple):
    key: bytes
    asked: Reschedule
    superseded: list[bytes]


class Rescheduling(Mover):
    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        super().__init__(changelog, table)
        self.moved = self.seen = 0
        self._request, self._cursor, self._in_front = b"", b"", False
        self._done: set[bytes] = set()

    def describe_waiting(self, digest: str) -> str:
        """Describe the request that is being done, or why none is, for the health report; empty where nothing is asked for."""
        standing = self._list_requests()
        if not standing:
            return ""
        if (request := self._find_next_step(digest)) is None:
            wanted = next(reversed(standing.values())).policies
            return f"waits for the policy file with sha256 {wanted}; this worker's has {digest}"
        return self._describe_progress() if request.key == self._request else "about to begin"

    def _describe_progress(self) -> str:
        return f"{self.seen} entries looked at, {self.moved} moved"

    def move_batch(self, context: MoveContext) -> MovedBatch:
        request = self._find_next_step(context.redecider.digest)
        if request is None:
            # What was taken in under another policy file meanwhile may lie behind the cursor.
            self._request = b""
            return MovedBatch()
        if request.key != self._request:
            self._request, self._cursor, self._in_front, self.seen, self.moved = request.key, b"", False, 0, 0
        moves, seen, cursor = self._batch(context, request.asked)
        ended = {request.key, *request.superseded} if cursor is None and self._in_front else set()
        if moves or ended:
            movers.commit(context, self._changelog, self._table, moves, [(key, None) for key in sorted(ended)])
            movers.drop_moved(self._table, self._changelog, moves)
        self.seen, self.moved = self.seen + seen, self.moved + len(moves)
        self._in_front, self._cursor = self._in_front or cursor is None, cursor or b""
        self._done |= ended
        if ended:
            log.info("shard %d: rescheduled, %s", self._changelog.partition, self._describe_progress())
        return MovedBatch(Effect.MOVES_ON, len(moves), bool(ended))

    def _find_next_step(self, digest: str) -> RescheduleStep | None:
        """The oldest request that asks for this policy file; older ones that ask for another will never be done."""
        older: list[bytes] = []
        for key, asked in self._list_requests().items():
            if asked.policies == digest:
                return RescheduleStep(key, asked, older)
            older.append(key)
        return None

    def _list_requests(self) -> dict[bytes, Reschedule]:
        # The fold has yet to tell of the end of those that are done.
        return {
            key: asked for key, asked in control_records.read_reschedules(self._table.controls).items() if key not in self._done
        }

    def _batch(self, context: MoveContext, asked: Reschedule) -> tuple[list[Redecision], int, bytes | None]:
        """Decide the next entries anew: return those that move, how many were looked at, and where to go on; None at the end."""
        table, changelog, rows_max, bytes_max = self._table, self._changelog, context.rows_max, context.bytes_max
        moves: list[Redecision] = []
        seen, at, taken = 0, self._cursor, movers.TakenKeys(table)
        read = table.scan_entries if self._in_front else table.page_behind
        while page := read(at, min(_PAGE, rows_max - seen)):
            for cursor, key, envelope in page:
                # Of a block all entries are decided together: there is one cursor for all of them.
                if (bytes_max <= 0 or seen >= rows_max) and cursor != at:
                    return moves, seen, at
                at, seen = cursor, seen + 1
                anew = context.redecider.redecide_entry(key, envelope, asked, taken, waits_in=changelog.partition)
                if anew is not None and movers.is_moving(anew, changelog):
                    moves.append(anew)
                    taken.add_key(anew.packed.key)
                    bytes_max -= len(anew.packed.envelope)
            if bytes_max <= 0 or seen >= rows_max:
                return moves, seen, at
        return moves, seen, None
