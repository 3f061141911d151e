"""Holding: entries that cannot be sent, while all others can, wait in lanes of their own until they can.

They cannot be opened, since their key is not here; or they are to be parked, and their parking topic refuses each of them for
what it is. Nothing is delivered from these lanes; each kind of entry has one. So what is held is not met again at every sweep,
and all else goes past it. Moved is the lane alone: an entry keeps its due time, its envelope, its name, and its place in a queue,
where others of its record key wait behind it; only a named one is due a millisecond later when it is let go. The effects of one
batch, in their order, and what a crash after each costs:

1. find what is due and cannot be sent, or what is held and can be     nothing
2. begin a transaction                                                 nothing
3. put each under its key in the other lane, then a null for its key   nothing: all are undone
4. commit                                                              nothing: all stand, and the fold finds both
5. drop the old rows from the table                                    nothing: the fold finds the nulls

As other moves do, they begin when all is folded that they wrote before, and put nothing under a key that is taken.

What is held is looked at whenever this process has other keys than before, when a shard is taken over, and now and then.
Whether a topic takes by now what it refused is tried in a transaction that is thrown away.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import HELD, NAMED, ORDERED
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery import movers, park_refused
from retry.delivery.admission import RefusedEntry
from retry.delivery.due_batch import DueRow
from retry.delivery.movers import Effect, MoveContext, MovedBatch, Mover
from retry.delivery.sweep import ChangelogPartition
from retry.errors import EntryForeign, SealUnopened
from retry.kafka.interface import SweepProducer
from retry.telemetry.unreadable_records import UNREADABLE

log = logging.getLogger(__name__)

_PAGE = 256
# So that what is told of it is not too old; where much is held, looks are farther apart.
_LOOK_EVERY_MS, _ROWS_A_MS = 60_000, 10
_NAMED_MAX = 5


class Held:
    """Entries that are held, counted by the id of the key that they are sealed under, and by the reason, in a sentence.

    The `refused` ones are held since their topic refuses them.
    """

    def __init__(self) -> None:
        self.by_key, self.why = Counter[str](), Counter[str]()
        self.refused = dict[bytes, RefusedEntry]()

    def __len__(self) -> int:
        return self.by_key.total() + len(self.refused)

    def count_entry(self, error: SealUnopened) -> None:
        self.by_key[error.key_id] += 1
        self.why[str(error)] += 1

    def include(self, others: Held) -> None:
        self.by_key += others.by_key
        self.why += others.why
        self.refused |= others.refused


class Holding(Mover):
    """The held entries of one shard: `held` is what the last look has found, and what came since."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        super().__init__(changelog, table)
        self.held = Held()
        # Of a look that is under way, where it goes on, and what it has found.
        self._cursor, self._found = b"", Held()
        self._generation, self._look_at_ms = -1, 0

    def quarantine_entries(self, rows: Sequence[DueRow], context: MoveContext) -> int:
        """Move those of some entries that cannot be opened out of the way, and return how many; raises TransactionFailed."""
        if not self.is_settled(context.end):
            return 0
        found = Held()
        rows = _select_unopened(rows, context.codec, found)
        if EntryForeign.KEY_ID in found.by_key:
            _count_foreign(self._changelog, rows)
        self._quarantine_rows(context.writer, rows, found, "; ".join(sorted(found.why)))
        return len(rows)

    def park_refused(self, rows: Sequence[DueRow], context: MoveContext) -> bool:
        """Park those of some entries that their topics refuse once more; hold those that cannot be parked.

        Gives False, and does nothing, while not all is folded that was moved before. Raises EntryUnreadable, TransactionFailed.
        """
        if not self.is_settled(context.end):
            return False
        changelog, table = self._changelog, self._table
        verdicts = park_refused.judge_refused(rows, movers.TakenKeys(table), changelog, context)
        if verdicts.moves or verdicts.rows:
            movers.commit(context, changelog, table, verdicts.moves, verdicts.rows)
            put = [(each.packed.key, each.packed.envelope) for each in verdicts.moves]
            put += [(key, envelope) for key, envelope in verdicts.rows if envelope is not None]
            ended = [each.key for each in verdicts.moves] + [key for key, envelope in verdicts.rows if envelope is None]
            table.delete_rows(ended, put)
            self.expect_fold()
        if verdicts.moves:
            some = ((entry_keys.read_source(each.key).letter, each.entry.destination) for each in verdicts.moves[:_NAMED_MAX])
            named = (f"{letter}, which {target} refuses" for letter, target in some)
            log.warning("shard %d: %d letters are parked: %s", changelog.partition, len(verdicts.moves), "; ".join(named))
        if verdicts.held:
            self._hold_refused(verdicts.held, context)
        for key in verdicts.settled:
            context.admission.refused_entries.drop_entry(key)
        return True

    def _hold_refused(self, refused: Sequence[tuple[DueRow, str, str]], context: MoveContext) -> None:
        found, rows = Held(), [row for row, _, _ in refused]
        for (key, _), to, why in refused:
            found.refused[entry_keys.make_held_key(key)] = RefusedEntry(
                entry_keys.read_source(key).letter, to, why, context.now_ms
            )
        named = [f"{each.letter}: {each.why}" for each in found.refused.values()]
        self._quarantine_rows(context.writer, rows, found, "; ".join(named[:_NAMED_MAX]))

    def _quarantine_rows(self, writer: SweepProducer, rows: Sequence[DueRow], found: Held, why: str) -> None:
        self._move_rows(writer, [(entry_keys.make_held_key(key), key, envelope) for key, envelope in rows])
        self.held.include(found)
        log.warning("shard %d: %d more entries are held: %s", self._changelog.partition, len(rows), why)

    def move_batch(self, context: MoveContext) -> MovedBatch:
        """Look at some of what is held, if it is time for that, and let go of what can be sent; see `Mover.move_batch`."""
        codec, now_ms = context.codec, context.now_ms
        generation = codec.generation
        if generation != self._generation:
            self._generation, self._look_at_ms, self._cursor = generation, now_ms, b""
        if now_ms < self._look_at_ms or not self.is_settled(context.end):
            return MovedBatch()
        if not self._cursor:
            self._found = Held()
        rows, cursor = self._read_next(context.rows_max)
        held = {key for key, _ in _select_unopened(rows, codec, self._found)}
        opened = [row for row in rows if row[0] not in held]
        refused = park_refused.find_refused(opened, self._changelog, context) if opened else {}
        for key, (destination, why) in refused.items():
            before = self.held.refused.get(key)
            since_ms = now_ms if before is None else before.since_ms
            self._found.refused[key] = RefusedEntry(entry_keys.read_source(key).letter, destination, why, since_ms)
        free = [row for row in opened if row[0] not in refused]
        self._move_rows(context.writer, [(_make_released_key(*row), *row) for row in free])
        if free:
            log.info("shard %d: %d entries are held no more", self._changelog.partition, len(free))
        self._cursor = cursor
        if not cursor:
            self.held = self._found
            self._look_at_ms = now_ms + _LOOK_EVERY_MS + len(self.held) // _ROWS_A_MS
        return MovedBatch(Effect.HELD, len(free)) if free else MovedBatch()

    def _read_next(self, rows_max: int) -> tuple[list[DueRow], bytes]:
        rows: list[DueRow] = []
        for lane in HELD.values():
            at = max(self._cursor, lane)
            while at.startswith(lane):
                if len(rows) >= rows_max:
                    return rows, at
                page = self._table.scan_entries(at, min(_PAGE, rows_max - len(rows)))
                here = [(key, envelope) for _, key, envelope in page if key.startswith(lane)]
                rows += here
                at = page[-1][0] if page and len(here) == len(page) else entry_keys.build_lane_end(lane)
        return rows, b""

    def _move_rows(self, writer: SweepProducer, rows: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        if not rows:
            return
        taken = movers.TakenKeys(self._table)
        rows = [(taken.claim(new), key, envelope) for new, key, envelope in rows]
        # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
        changes: list[ChangelogRow] = [*chain.from_iterable(((new, envelope), (key, None)) for new, key, envelope in rows)]
        writer.begin()
        writer.write(*self._changelog, [{"key": key, "value": value} for key, value in changes])
        writer.commit()
        self.expect_fold()
        self._table.delete_rows([key for _, key, _ in rows], [(new, envelope) for new, _, envelope in rows])


def _select_unopened(rows: Sequence[DueRow], codec: EnvelopeCodec, held: Held) -> list[DueRow]:
    unopened = []
    for row in rows:
        try:
            codec.decode(*row)
        except SealUnopened as error:
            held.count_entry(error)
            unopened.append(row)
    return unopened


def _count_foreign(changelog: ChangelogPartition, rows: Sequence[DueRow]) -> None:
    """Tell of what no version wrote; of where it lies in the changelog its key is all that is known."""
    for key, envelope in rows:
        try:
            envelopes.decode_routing(envelope)
        except EntryForeign as error:
            UNREADABLE.pass_over(*changelog, None, f"of {entry_keys.read_source(key)}, {error}")


def _make_released_key(key: bytes, envelope: bytes) -> bytes:
    of, topic = envelopes.decode_routing(envelope), entry_keys.read_source(key).topic
    if key[0] == NAMED:
        # A little later: of one version that counts which is due last, and the one that is held must not count without the other.
        key = entry_keys.make_key_due_at(key, entry_keys.due_at_ms(key) + 1)
        return entry_keys.move_into_lane(key, entry_keys.build_named_lane(of.team, topic, of.destination))
    return entry_keys.move_into_lane(key, entry_keys.lane(of.team, topic, of.destination, key[0] == ORDERED))
