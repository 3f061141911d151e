"""The table on disk. The only importer of rocksdict, and the only place where one of its iterators lives.

What RocksDB does not tell by itself is asked for here: a scan checks `status()`, since iteration ends silently at a
corrupt block; iterators are dropped before the database is closed, since a live one keeps the lock; a scan starts at
the low watermark, since stepping over the tombstones of delivered entries costs more than delivering them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from retry.entry import END_KEY, FIRST_KEY, due_bound
from retry.errors import TableUnreadable
from retry.table.base import Identity, Row

_FORMAT = 1
_STATE_KEY = b"\0"
_RECLAIM_EVERY = 50_000
_FILES_MAX = 128


class _State(msgspec.Struct, array_like=True, frozen=True):
    """The row beside the rows: whose fold this is, how far it goes, and when it was last known to be current."""

    format: int
    identity: Identity
    next_offset: int
    waiting: int
    folded_at_ms: int


class Memory:
    """One budget for cached blocks and unwritten rows, shared by all tables of a process."""

    def __init__(self, bytes_max: int) -> None:
        self.cache = Cache(bytes_max)
        # Unwritten rows count against the cache, so that the sum is what was asked for.
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(bytes_max // 2, False, self.cache)
        self.bytes_max = bytes_max


class RocksTable:
    """One RocksDB database: entries under their keys, and the state under a key that sorts before all of them."""

    def __init__(self, path: Path, identity: Identity, memory: Memory) -> None:
        self.path, self._identity = path, identity
        self._db = Rdict(str(path), options=_options(memory))
        self._lock = threading.Lock()
        self._low = FIRST_KEY
        self._lowest_put = END_KEY
        self._scanned_to = FIRST_KEY
        self._forgotten = 0
        self._gone: list[bytes] = []
        self._state = self._read_state()

    @classmethod
    def open(cls, path: Path, identity: Identity, memory: Memory, now_ms: int, age_ms_max: int) -> RocksTable:
        """The table as it was left, or an empty one where that cannot be trusted.

        Wiped is what is corrupt, belongs to another changelog, has another format, or was last current longer ago than
        `age_ms_max`: by then compaction may have dropped deletes that this table has not seen, and its entries would
        come back to life.
        """
        try:
            table = cls(path, identity, memory)
        except TableUnreadable:
            pass
        except Exception as error:
            # Not corrupt but open elsewhere in this process: a mistake of ours, and no reason to wipe anything.
            if "LOCK" in str(error) or "lock hold" in str(error):
                raise
        else:
            state = table._state
            if (state.format, state.identity) == (_FORMAT, identity) and now_ms - state.folded_at_ms <= age_ms_max:
                return table
            table.close()
        wipe(path)
        return cls(path, identity, memory)

    def _read_state(self) -> _State:
        stored = self.get(_STATE_KEY)
        if stored is None:
            # Rows without a state are what a wipe leaves behind that was cut short.
            with self._iterator(FIRST_KEY, END_KEY) as rows:
                if rows.valid():
                    raise TableUnreadable(f"{self.path}: rows without a state")
            return _State(_FORMAT, self._identity, 0, 0, 1 << 62)
        try:
            return msgspec.msgpack.decode(stored, type=_State)
        except msgspec.MsgspecError as error:
            raise TableUnreadable(f"{self.path}: {error}") from error

    @property
    def next_offset(self) -> int:
        """See `Table.next_offset`."""
        return self._state.next_offset

    @property
    def waiting(self) -> int:
        """See `Table.waiting`."""
        return self._state.waiting

    def fold(self, rows: Sequence[Row], next_offset: int, now_ms: int) -> None:
        """See `Table.fold`."""
        batch = WriteBatch(raw_mode=True)
        put, delete, get = batch.put, batch.delete, self.get
        with self._lock:
            low, lowest, change = self._low, END_KEY, 0
            # Of several records with one key only the last counts.
            for key, value in dict(rows).items():
                if value is not None:
                    put(key, value)
                    change += 1
                    if key < lowest:
                        lowest = key
                elif key >= low and get(key) is not None:
                    delete(key)
                    change -= 1
                    if key < self._scanned_to:
                        # Handed out by `due`, delivered, and read back before `forget` is told: to be counted once.
                        self._gone.append(key)
                # A delete below the watermark is our own, read back: `forget` has done it already.
            self._write(batch, next_offset, self.waiting + change, now_ms)
            self._low, self._lowest_put = min(low, lowest), min(self._lowest_put, lowest)

    def due(self, now_ms: int, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.due`."""
        end = due_bound(now_ms + 1)
        with self._lock:
            if self._low >= end:
                return []
            self._lowest_put = END_KEY
            self._gone.clear()
            found, complete = self._scan(self._low, end, rows_max, bytes_max)
            self._scanned_to = end if complete else found[-1][0] + b"\0"
            if not found:
                self._low = self._scanned_to
            return found

    def forget(self, keys: Sequence[bytes]) -> None:
        """See `Table.forget`."""
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        with self._lock:
            # What was put below the scan's end while it was being delivered is still there to be found.
            self._low = min(self._scanned_to, self._lowest_put)
            self._forgotten += len(keys)
            if self._forgotten >= _RECLAIM_EVERY:
                batch.delete_range(FIRST_KEY, self._low)
                self._forgotten = 0
            twice = len(set(keys).intersection(self._gone)) if self._gone else 0
            self._write(batch, self.next_offset, self.waiting - len(keys) + twice, self._state.folded_at_ms)

    def page(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.page`."""
        return self._scan(max(after + b"\0", FIRST_KEY), END_KEY, rows_max, 1 << 62)[0]

    def get(self, key: bytes) -> bytes | None:
        """See `Table.get`."""
        try:
            return self._db.get(key)
        except Exception as error:
            raise TableUnreadable(f"{self.path}: {error}") from error

    def close(self) -> None:
        """See `Table.close`."""
        self._db.close()

    def _scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Rows from `start` to before `end`, and whether these are all of them."""
        found: list[tuple[bytes, bytes]] = []
        with self._iterator(start, end) as rows:
            key, value, valid, following = rows.key, rows.value, rows.valid, rows.next
            while (more := valid()) and len(found) < rows_max and bytes_max > 0:
                envelope = value()
                found.append((key(), envelope))
                bytes_max -= len(envelope)
                following()
        return found, not more

    @contextmanager
    def _iterator(self, start: bytes, end: bytes) -> Iterator[RdictIter]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows = self._db.iter(options)
        try:
            rows.seek(start)
            yield rows
            rows.status()
        except Exception as error:
            raise TableUnreadable(f"{self.path}: {error}") from error
        finally:
            del rows

    def _write(self, batch: WriteBatch, next_offset: int, waiting: int, folded_at_ms: int) -> None:
        state = _State(_FORMAT, self._identity, next_offset, waiting, folded_at_ms)
        batch.put(_STATE_KEY, msgspec.msgpack.encode(state))
        self._db.write(batch)
        self._state = state


def wipe(path: Path) -> None:
    """Remove a table; it is only ever a copy of the changelog."""
    shutil.rmtree(path, ignore_errors=True)


def _options(memory: Memory) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_block_size(16 << 10)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memory.buffers)
    options.set_write_buffer_size(max(1 << 20, memory.bytes_max // 4))
    options.set_max_open_files(_FILES_MAX)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    return options
