"""Rows in files, by a hash of their letter: what was written about one letter is read together, a file at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from retry.operations.verify.rows import PACK, Row, unpack_rows

_BUFFER_BYTES = 16 << 20
_ROWS_A_FILE = 40_000
_FILES_MIN, _FILES_MAX = 16, 8_192


class Spill:
    """Rows, of which only the newest few megabytes are in memory.

    Args:
      folder: an empty directory.
      rows: about how many there will be; with it the number of files grows, and not the size of each.

    Attributes:
      rows: how many there are.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder, self._buffered_bytes, self.rows = folder, 0, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._buffers = [bytearray() for _ in range(max(_FILES_MIN, min(_FILES_MAX, rows // _ROWS_A_FILE)))]

    def add_row(self, row: Row, group: int | None = None) -> None:
        """Keep a row with all others of its group, or of its letter where no group is given."""
        kind, topic, partition, offset = row[:4]
        if group is None:
            # The constant spreads neighbouring offsets over all files.
            group = offset * 0x9E3779B97F4A7C15 + partition * 31 + topic * 1_000_003 >> 8
        data = PACK[kind](*row)
        self._buffers[group % len(self._buffers)] += data
        self._buffered_bytes += len(data)
        self.rows += 1
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        for n, buffer in enumerate(self._buffers):
            if buffer:
                with self._file(n).open("ab") as file:
                    file.write(buffer)
                buffer.clear()
        self._buffered_bytes = 0

    def files(self) -> Iterator[Iterator[Row]]:
        """File by file, its rows; each may be gone through once."""
        self._flush()
        for n in range(len(self._buffers)):
            file = self._file(n)
            yield unpack_rows(file.read_bytes() if file.exists() else b"")

    def _file(self, n: int) -> Path:
        return self._folder / f"{n:04d}"
