"""One RocksDB database. The only importer of rocksdict, and the only place where one of its iterators lives.

A scan checks `status()`, since iteration ends silently at a corrupt block; iterators are dropped before the database is closed,
since a live one keeps the lock. There is no write-ahead log: the changelog is one, and what was not written is folded again. With
one, a manifest that was cut short made RocksDB replay the log over missing files and say nothing.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from retry.errors import DataDirUnusable, TableUnreadable

log = logging.getLogger(__name__)

_FILES_MAX = 128
# So many rows at most are read by the iterator that says how it ended, alone: to open another one costs as much.
_FEW_ROWS = 16
# Beyond whatever may come behind a prefix.
_LAST = b"\xff" * 300
# A table takes its memory for unwritten rows in pieces of this size. In those of RocksDB's own choice, 1 MB, the first rows of
# thirty tables use up what all of them share, and further writes make one small sorted file after another.
_ARENA_BYTES = 64 << 10
# Sorted files that were not merged yet are merged when there are so many of them, or so many bytes in them: in a table that is
# read, where these are RocksDB's own numbers, and in one that is only being filled.
_MERGED_FROM, _MERGED_FROM_BULK = 4, 128
_MERGED_BYTES, _MERGED_BYTES_BULK = 256 << 20, 1 << 40
# Writers wait for merging only where so many have gathered. With RocksDB's own numbers, 20 and 36, a table that has just been
# filled, or is opened again then, would take nothing in until all of it is merged.
_SLOWED_FROM, _STOPPED_FROM = 256, 384
# Damage within the first block of this file cuts off what follows; in a longer one a hole could lie between changes.
_MANIFEST_BYTES = 16 << 10
# What an operator mends, and no reason to wipe anything.
_OPERATORS = ("No space left", "Permission denied", "Read-only file system", "Too many open files", "Disk quota exceeded")


def new_batch() -> WriteBatch:
    return WriteBatch(raw_mode=True)


class Memory:
    def __init__(self, bytes_max: int) -> None:
        self.cache = Cache(bytes_max)
        # Unwritten rows count against the cache, so that the sum is what was asked for.
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(bytes_max // 2, False, self.cache)
        self.bytes_max = bytes_max


class Database:
    """Rows of bytes in key order; what goes wrong is `TableUnreadable`, or `DataDirUnusable` where the disk is to blame."""

    def __init__(self, path: Path, memory: Memory, beside: Path | None = None) -> None:
        """Open it; with `beside`, a scratch directory, as it is now and to be read only, while another process has it open."""
        self.path = path
        if beside is None:
            with self._errors_translated():
                self._handle = Rdict(str(path), options=_options(memory))
            self._handle.set_write_options(_UNLOGGED)
            return
        options = _options(memory)
        # What the owner deletes meanwhile can only be read by whoever has it open already.
        options.set_max_open_files(-1)
        options.create_if_missing(False)
        with self._errors_translated():
            self._handle = Rdict(str(path), options=options, access_type=AccessType.secondary(str(beside)))

    def get(self, key: bytes) -> bytes | None:
        with self._errors_translated():
            return self._handle.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._errors_translated():
            values: Any = self._handle.get(list[Any](keys))
            return list(values)

    def find_present(self, keys: list[bytes]) -> list[bytes]:
        """Return those of the keys that have rows, ascending; no value is read, however large."""
        present: list[bytes] = []
        ascending = sorted(keys)
        if not ascending:
            return present
        with self._iterator(ascending[0], ascending[-1] + b"\0") as rows:
            key, valid, following = rows.key, rows.valid, rows.next
            at = key() if valid() else None
            for each in ascending:
                # Seek only beyond the last row that was found: deleted rows in between are stepped over once.
                if at is not None and at < each:
                    rows.seek(each)
                    at = key() if valid() else None
                if at is None:
                    break
                if at == each:
                    present.append(each)
                    following()
                    at = key() if valid() else None
        return present

    def list_under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return self.scan(prefix, prefix + _LAST, 1 << 62, 1 << 62)[0]

    def find_first(self, prefix: bytes, start: bytes) -> tuple[bytes, bytes] | None:
        """Find the first row at `start` or beyond; None where there is none, or its key does not begin with `prefix`."""
        rows = self.scan(start, prefix + _LAST, 1, 1)[0]
        return rows[0] if rows else None

    def scan(
        self, start: bytes, end: bytes, rows_max: int, bytes_max: int, stop: bytes | None = None
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return rows from `start` to before `stop`; if these are all, also the next key before `end`, or `end`, else None."""
        stop = end if stop is None else stop
        scanned = self._scan_at_once(start, stop, rows_max, bytes_max) if rows_max > _FEW_ROWS and bytes_max > 0 else []
        if scanned:
            start, bytes_max = scanned[-1][0] + b"\0", bytes_max - sum([len(envelope) for _, envelope in scanned])
        # Goes on where these end: nothing follows, or what follows is read, or found to be corrupt.
        with self._iterator(start, end) as rows:
            key, value, valid, following = rows.key, rows.value, rows.valid, rows.next
            at = key() if valid() else end
            while at < stop and len(scanned) < rows_max and bytes_max > 0:
                envelope = value()
                scanned.append((at, envelope))
                bytes_max -= len(envelope)
                following()
                at = key() if valid() else end
        return scanned, at if at >= stop else None

    def _scan_at_once(self, start: bytes, stop: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Rows from `start` to before `stop`, each in one call of the library. There may be more: it does not say why it ends."""
        options, scanned = ReadOptions(), list[Any]()
        options.set_iterate_upper_bound(stop)
        with self._errors_translated():
            rows = self._handle.items(from_key=start, read_opt=options)
            try:
                for row in islice(rows, rows_max):
                    scanned.append(row)
                    bytes_max -= len(row[1])
                    if bytes_max <= 0:
                        break
            finally:
                # It keeps the lock of the database while it lives.
                del rows
        return scanned

    def scan_keys(self, start: bytes, end: bytes, rows_max: int) -> list[bytes]:
        keys: list[bytes] = []
        with self._iterator(start, end) as rows:
            while rows.valid() and len(keys) < rows_max:
                keys.append(rows.key())
                rows.next()
        return keys

    def write(self, batch: WriteBatch) -> None:
        """Write the changes of a batch, without a write-ahead log."""
        with self._errors_translated():
            self._handle.write(batch, _UNLOGGED)

    def bulk_load(self, *, on: bool) -> None:
        """Put off the merging of sorted files while much is written and little is read; what is left is merged afterwards."""
        files, size = (_MERGED_FROM_BULK, _MERGED_BYTES_BULK) if on else (_MERGED_FROM, _MERGED_BYTES)
        with self._errors_translated():
            self._handle.set_options({"level0_file_num_compaction_trigger": str(files), "max_bytes_for_level_base": str(size)})

    def flush(self) -> None:
        with self._errors_translated():
            self._handle.flush()

    def close(self) -> None:
        try:
            self._handle.close()
        except Exception as error:
            # It is behind the changelog now, and no worse. Told as text: an error that somebody keeps would keep the lock.
            log.warning("%s: not written to the end: %s", self.path, str(error))
        finally:
            # One that could not be closed keeps its lock as long as anybody holds it.
            del self._handle

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if any(reason in str(error) for reason in _OPERATORS):
                raise DataDirUnusable(str(self.path), str(error)) from error
            raise TableUnreadable(f"{self.path}: {error}") from error

    @contextmanager
    def _iterator(self, start: bytes, end: bytes) -> Iterator[RdictIter]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows = self._handle.iter(options)
        try:
            with self._errors_translated():
                rows.seek(start)
                yield rows
                rows.status()
        finally:
            del rows


def destroy_database(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


_UNLOGGED = WriteOptions()
_UNLOGGED.disable_wal = True  # type: ignore[method-assign, assignment]


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
    options.set_arena_block_size(_ARENA_BYTES)
    options.set_max_open_files(_FILES_MAX)
    options.set_level_zero_file_num_compaction_trigger(_MERGED_FROM)
    options.set_level_zero_slowdown_writes_trigger(_SLOWED_FROM)
    options.set_level_zero_stop_writes_trigger(_STOPPED_FROM)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    options.set_max_manifest_file_size(_MANIFEST_BYTES)
    return options
