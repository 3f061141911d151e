"""How entries of each kind get into RocksDB and out of it: plain ones and their blocks, ordered ones (queues), and named ones.

A writer has a method for each way in which a table learns that an entry is put or deleted:

    apply_rows              the changelog says so
    delete_scanned_entries  `find_due` handed it out, and a transaction of ours deleted it; the fold may have deleted the row
    delete_entries          a transaction of ours deleted it without a scan; the row may be there, or not

They return by how many more entries wait, where they do not write that themselves. All of them run under the lock of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from retry.delay_queue.blocks import count_entries, find_blocks, split_blocks
from retry.delay_queue.entry_keys import BLOCK, CANCEL, END_KEY, LANE_BYTES, NAMED, ORDERED, PLAIN, build_block_lane
from retry.delay_queue.table import named_entries, ordered_entries
from retry.delay_queue.table.changelog_records import UnfoldedChanges
from retry.delay_queue.table.interface import ChangelogRow
from retry.delay_queue.table.rocksdb import Database, WriteBatch, new_batch
from retry.delay_queue.table.watermarks import RememberedCancels, Superseded, Watermarks

Put = tuple[bytes, bytes]
# Writes a batch, told by how many more entries wait.
Write = Callable[[WriteBatch, int], None]


def group_keys_by_kind(keys: Sequence[bytes]) -> defaultdict[int, list[bytes]]:
    kinds: defaultdict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        kinds[key[0]].append(key)
    return kinds


class PlainEntries:
    """One row each, under the entry's own key; or one for all of a block.

    Entries that stay of a block have rows at once; the fold tells of them later. Of a former process there `may_have_early_rows`.
    """

    def __init__(self, db: Database, watermarks: Watermarks, unfolded: UnfoldedChanges, *, may_have_early_rows: bool) -> None:
        self._db, self._watermarks, self._unfolded = db, watermarks, unfolded
        self.may_have_early_rows = may_have_early_rows

    def apply_rows(
        self, rows: Sequence[ChangelogRow], repeated: Collection[bytes], batch: WriteBatch
    ) -> tuple[int, list[ChangelogRow]]:
        """Put and delete what the changelog says; by how many more wait, and the rows that are of another kind.

        What left and was put again has its last record in `rows` alone, and its key in `repeated`: it may have a row already.
        """
        put, low, puts, lowest = batch.put, self._watermarks.low, 0, dict[bytes, bytes]()
        deleted: list[bytes] = []
        others: list[ChangelogRow] = []
        counted: list[bytes] = []
        if self._unfolded or self.may_have_early_rows:
            counted = self._list_early(rows)
            rows = [row for row in rows if row[0][0] not in (PLAIN, BLOCK) or self._unfolded.take_change(*row)]
        if repeated:
            again = {key for key, value in rows if key in repeated and value is not None and key[0] in (PLAIN, BLOCK)}
            counted += self._db.find_present([*again.difference(counted)])
        puts = -sum(map(count_entries, counted))
        for key, value in rows:
            if (kind := key[0]) != PLAIN and kind != BLOCK:
                others.append((key, value))
            elif value is not None:
                put(key, value)
                puts += 1 if kind == PLAIN else count_entries(key)
                lane = key[:LANE_BYTES]
                if key < lowest.get(lane, END_KEY):
                    lowest[lane] = key
            elif key >= low(key[:LANE_BYTES]):
                # One below the watermark is our own, read back: `delete_scanned_entries` has done it already.
                deleted.append(key)
        deleted = self._db.find_present(deleted)
        for key in deleted:
            batch.delete(key)
            self._watermarks.note_deleted(key)
        self._watermarks.note_put(lowest)
        return puts - sum(map(count_entries, deleted)), others

    def _list_early(self, rows: Sequence[ChangelogRow]) -> list[bytes]:
        """List the keys of entries that are put by some records, and that have a row, and count, already."""
        put = [key for key, value in rows if key[0] == PLAIN and value is not None]
        return self._db.find_present(put) if self.may_have_early_rows else [*filter(self._unfolded.is_put, put)]

    def delete_scanned_entries(self, keys: Sequence[bytes], deleted: Collection[bytes], batch: WriteBatch) -> int:
        """Delete what was handed out; what the fold has `deleted` before is no more counted."""
        delete = batch.delete
        for key in keys:
            delete(key)
        return -self._count([key for key in keys if key not in deleted] if deleted else keys)

    def delete_entries(self, keys: Sequence[bytes], batch: WriteBatch) -> int:
        """Delete those that have a row, and put what stays of the blocks of others."""
        there = [key for key in dict.fromkeys(keys) if self._db.get(key) is not None]
        for key in there:
            batch.delete(key)
        return self._split(self.find_blocks(keys), set(keys), batch) - self._count(there)

    def explode(self, block_keys: Sequence[bytes], batch: WriteBatch) -> int:
        found = [(key, value) for key in block_keys if (value := self._db.get(key)) is not None]
        return self._split(found, frozenset(), batch)

    def _split(self, found: Sequence[Put], leaving: Collection[bytes], batch: WriteBatch) -> int:
        """Delete blocks, and put those of their entries that stay; by how many more wait."""
        lowest, early = dict[bytes, bytes](), 0
        for key, envelope in split_blocks(found, leaving):
            if envelope is None:
                batch.delete(key)
            elif self._db.get(key) is None:
                batch.put(key, envelope)
                early += 1
                self._unfolded.note_put(key, envelope)
                lane = key[:LANE_BYTES]
                lowest[lane] = min(lowest.get(lane, END_KEY), key)
        self._watermarks.note_put(lowest)
        return early - sum(count_entries(block) for block, _ in found)

    def find_blocks(self, keys: Sequence[bytes]) -> list[Put]:
        low = self._watermarks.low
        wanted = [key for key in keys if (lane := build_block_lane(key)) and low(lane)[:LANE_BYTES] == lane]
        return find_blocks(self._db, [key for key in wanted if self._db.get(key) is None])

    def _count(self, keys: Sequence[bytes]) -> int:
        if self._unfolded:
            for key in filter(self._unfolded.is_put, keys):
                self._unfolded.note_drop(key)
        return sum(map(count_entries, keys))


class OrderedEntries:
    """Queues by record key, see `ordered_entries`: each change is written at once, since the next one reads it."""

    def __init__(self, db: Database, watermarks: Watermarks, unfolded: UnfoldedChanges) -> None:
        self._db, self._watermarks, self._unfolded = db, watermarks, unfolded

    def apply_rows(self, rows: Sequence[ChangelogRow], write: Write) -> None:
        db = self._db
        for key, value in rows:
            if self._unfolded.take_change(key, value):
                effect = ordered_entries.remove_entry(db, key) if value is None else ordered_entries.put_entry(db, key, value)
                self._write(effect, write)

    def replace(self, keys: Sequence[bytes], replacements: Sequence[Put], write: Write) -> None:
        """Apply this worker's transaction: replacements take their places in the queues, then the entries of `keys` leave."""
        for key, envelope in replacements:
            if envelope not in (self._db.get(key), ordered_entries.find(self._db, key)):
                self._unfolded.note_put(key, envelope)
            self._write(ordered_entries.put_entry(self._db, key, envelope), write)
        for key in keys:
            self._unfolded.note_drop(key)
            self._write(ordered_entries.remove_entry(self._db, key), write)

    def _write(self, effect: ordered_entries.OrderEffect, write: Write) -> None:
        batch = new_batch()
        for key, value in effect.changes.items():
            if value is None:
                batch.delete(key)
                continue
            batch.put(key, value)
            if key[0] == ORDERED:
                self._watermarks.note_put({key[:LANE_BYTES]: key})
        if effect.changes:
            write(batch, effect.waiting)


class NamedEntries:
    """The entries with names, of which the greatest version counts; see `retry.delay_queue.table.named_entries`."""

    def __init__(self, db: Database, watermarks: Watermarks, unfolded: UnfoldedChanges) -> None:
        self._db, self._watermarks, self._unfolded = db, watermarks, unfolded
        self.superseded, self.cancels = Superseded(db), RememberedCancels(db)

    def apply_rows(self, rows: Sequence[ChangelogRow], batch: WriteBatch) -> int:
        low, take_change = self._watermarks.low, self._unfolded.take_change
        # Below its watermark a lane has no row: with nothing superseded, such a null is our own, read back; cancels have no lane.
        news = [
            (key, value) for key, value in rows if take_change(key, value)
            and (value is not None or self.superseded.count or key >= low(key[:LANE_BYTES]) or key.startswith(CANCEL))
        ]  # fmt: skip
        return self._apply_rows(news, batch)

    def delete_scanned_entries(
        self, keys: Sequence[bytes], replacements: Sequence[Put], deleted: Collection[bytes], batch: WriteBatch
    ) -> int:
        """Delete what was handed out, and put what replaces it; `deleted` are those that the fold has deleted before."""
        replaced = {named_entries.build_pointer_key(key) for key, _ in replacements}
        changes: list[ChangelogRow] = [*replacements]
        alone = 0
        for key in keys:
            self._unfolded.note_drop(key)
            pointer = named_entries.build_pointer_key(key)
            if self.superseded.count or pointer in replaced or key in deleted:
                changes.append((key, None))
            else:
                # It counts still, and there is no other of its name.
                batch.delete(key)
                batch.delete(pointer)
                alone += 1
        return self._put_early(changes, batch) - alone

    def delete_entries(self, keys: Sequence[bytes], replacements: Sequence[Put], batch: WriteBatch) -> int:
        for key in keys:
            self._unfolded.note_drop(key)
        return self._put_early([*replacements, *((key, None) for key in keys)], batch)

    def _put_early(self, rows: Sequence[ChangelogRow], batch: WriteBatch) -> int:
        for key, value in rows:
            if value is not None and value not in (self._db.get(key), self._db.get(named_entries.build_superseded_key(key))):
                self._unfolded.note_put(key, value)
        return self._apply_rows(rows, batch)

    def _apply_rows(self, rows: Sequence[ChangelogRow], batch: WriteBatch) -> int:
        waiting, lowest = 0, dict[bytes, bytes]()
        for effect in named_entries.iterate_changes(self._db, named_entries.group_by_name(rows)) if rows else ():
            waiting += effect.waiting
            self.superseded.add_count(effect.superseded)
            for row, value in effect.changes.items():
                if value is None:
                    batch.delete(row)
                    if row[0] == NAMED:
                        # `delete_scanned_entries` is to look at what became of it, if `find_due` handed it out.
                        self._watermarks.note_deleted(row)
                    continue
                batch.put(row, value)
                if row[0] == NAMED:
                    lane = row[:LANE_BYTES]
                    lowest[lane] = min(lowest.get(lane, END_KEY), row)
                elif row[:1] == named_entries.FIRST_SUPERSEDED:
                    self.superseded.note_put(row)
                elif row[:1] == named_entries.FIRST_REMEMBERED:
                    self.cancels.note_row(row)
        self._watermarks.note_put(lowest)
        return waiting
