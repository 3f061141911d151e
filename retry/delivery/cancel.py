"""Cancelling: what a null on a dead-letter topic cancels is parked, a batch between two sweeps. For `null_value: cancel`.

The null itself is an entry that is to be parked. Intake puts it into a lane from which nothing is delivered, in the shard
where all letters of its record key wait: it is the request. The effects of one batch, in their order, and what a crash after
each costs:

1. read the next entries, and find those that are cancelled            nothing
2. begin a transaction                                                 nothing
3. put each as one that parks, then a null for its old key, and tell
   the record of lineages                                              nothing: all are undone
4. with the last batch, put the requests into the lane that they are
   delivered from, and nulls for their old keys                        nothing: the same
5. commit                                                              nothing: all stand; the next owner of the shard begins
                                                                       anew, and finds parked what was moved
6. drop the old rows from the table, before anything is swept          nothing: the fold finds the same nulls

Sweeps go on in between: what is due before its turn comes is sent. Entries that wait behind another are looked at first, as in
`retry.delivery.reschedule`, and once more in the end: a letter of the same key may come in from a partition with a lower number,
and take the front from one that was there.

Where a letter, or a null, cannot be opened, nobody can tell whether it is cancelled, or what it cancels: nulls wait until it can.

Between its null and its put, in our own transaction, and the fold of that put an entry is in no table. So nothing is read
until all is folded that was moved before, and what is rescheduled meanwhile, to any place, has all of it begin anew.
"""

from __future__ import annotations

import logging

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import DUE_MS_MAX, NAMED, NULLS
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery import movers
from retry.delivery.movers import MoveContext, MovedBatch, Mover
from retry.delivery.redecide import Move, Redecider, Redecision, Taken
from retry.delivery.sweep import ChangelogPartition
from retry.errors import EntryForeign, SealUnopened

log = logging.getLogger(__name__)

_PAGE = 256
# Where something cannot be opened.
_AGAIN_MS = 30_000
# What waits behind another, what waits in front, and again what waits behind.
_PASSES, _IN_FRONT = 3, 1


class Cancelling(Mover):
    """How far the nulls of one shard have been followed."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        super().__init__(changelog, table)
        self.seen = self.moved = 0
        self._nulls: list[tuple[bytes, bytes]] = []
        # By topic and partition of the dead letters, and by record key, the offset below which letters are cancelled.
        self._below: dict[tuple[str, int], dict[bytes, int]] = {}
        self._topics: set[str] = set()
        self._cursor, self._pass = b"", 0
        self._again_at_ms, self._waits_for = 0, ""

    def restart(self) -> None:
        """Begin anew: entries are being moved to any place, so that what was looked at says nothing any more."""
        self._nulls = []
        self.expect_fold()

    def move_batch(self, context: MoveContext) -> MovedBatch:
        now_ms, shard = context.now_ms, self._changelog.partition
        if now_ms < self._again_at_ms:
            return MovedBatch()
        try:
            if not (self._nulls or self._take_nulls(context)) or not self.is_settled(context.end):
                return MovedBatch()
            moves, seen, cursor = self._batch(context)
        except SealUnopened as error:
            self._nulls, self._again_at_ms = [], now_ms + _AGAIN_MS
            if self._waits_for != (why := str(error)):
                self._waits_for = why
                log.warning("shard %d: nulls that cancel wait: of a letter that they may be about, %s", shard, why)
            return MovedBatch()
        self._waits_for = ""
        ended = cursor is None and self._pass == _PASSES - 1
        self._commit(context, moves, self._nulls if ended else [])
        self.seen, self.moved = self.seen + seen, self.moved + len(moves)
        self._pass, self._cursor = self._pass + (cursor is None), cursor or b""
        if ended:
            self._nulls = []
            log.info("shard %d: nulls followed, %d entries looked at, %d letters cancelled", shard, self.seen, self.moved)
        return MovedBatch(entries=len(moves), has_ended=ended)

    def _take_nulls(self, context: MoveContext) -> bool:
        self._nulls = self._table.find_due(DUE_MS_MAX, context.rows_max, context.bytes_max, NULLS)
        self._below, self._cursor, self._pass, self.seen, self.moved = {}, b"", 0, 0, 0
        for key, envelope in self._nulls:
            where, record_key = entry_keys.read_source(key), _record_key(context.redecider, key, envelope)
            if record_key is not None:
                below = self._below.setdefault((where.topic, where.partition), {})
                below[record_key] = max(entry_keys.read_letter_number(key), below.get(record_key, 0))
        self._topics = {topic for topic, _ in self._below}
        return bool(self._nulls)

    def _batch(self, context: MoveContext) -> tuple[list[Redecision], int, bytes | None]:
        """List what is cancelled of the next entries, how many were looked at, and where to go on; None at the end."""
        rows_max, bytes_max = context.rows_max, context.bytes_max
        moves: list[Redecision] = []
        seen, at, taken = 0, self._cursor, movers.TakenKeys(self._table)
        scan = self._table.scan_entries if self._pass == _IN_FRONT else self._table.page_behind
        while page := scan(at, min(_PAGE, rows_max - seen)):
            for cursor, key, envelope in page:
                if bytes_max <= 0 and cursor != at:
                    return moves, seen, at
                at, seen = cursor, seen + 1
                if key[0] == NAMED:
                    # These are no letters, and lie behind all that are.
                    return moves, seen, None
                wanted = entry_keys.read_source(key).topic in self._topics
                if not wanted and self._pass == _IN_FRONT and not entry_keys.is_held(key):
                    # All of a lane are from one topic, but where lie those that cannot be opened.
                    at = entry_keys.build_lane_end(entry_keys.lane_of(cursor))
                    break
                if wanted and (parked := self._cancel_entry(context, key, envelope, taken)) is not None:
                    moves.append(parked)
                    taken.add_key(parked.packed.key)
                    bytes_max -= len(parked.packed.envelope)
            if seen >= rows_max or bytes_max <= 0:
                return moves, seen, at
        return moves, seen, None

    def _cancel_entry(self, context: MoveContext, key: bytes, envelope: bytes, taken: Taken) -> Redecision | None:
        where = entry_keys.read_source(key)
        below = self._below.get((where.topic, where.partition))
        if below is None:
            return None
        record_key = _record_key(context.redecider, key, envelope)
        if record_key is None or entry_keys.read_letter_number(key) >= below.get(record_key, 0):
            return None
        anew = context.redecider.park_entry(key, envelope, context.now_ms, taken=taken)
        return None if anew is None or anew.move is Move.UNCHANGED else anew

    def _commit(self, context: MoveContext, moves: list[Redecision], ended: list[tuple[bytes, bytes]]) -> None:
        if not moves and not ended:
            return
        nulls: list[ChangelogRow] = []
        for key, envelope in ended:
            nulls += [(_to_be_parked(key, envelope), envelope), (key, None)]
        movers.commit(context, self._changelog, self._table, moves, nulls)
        self._table.delete_rows([each.key for each in moves])
        if ended:
            self._table.delete_scanned_rows([key for key, _ in ended])


def _record_key(redecider: Redecider, key: bytes, envelope: bytes) -> bytes | None:
    """The record key of an entry; None without one, or where no version of this service wrote it. Raises SealUnopened."""
    try:
        return redecider.entry_builder.codec.decode(key, envelope).key
    except EntryForeign:
        return None


def _to_be_parked(key: bytes, envelope: bytes) -> bytes:
    try:
        entry = envelopes.decode_routing(envelope)
    except EntryForeign:
        return entry_keys.make_held_key(key)
    return entry_keys.move_into_lane(key, entry_keys.lane(entry.team, entry_keys.read_source(key).topic, entry.destination))
