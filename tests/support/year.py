"""A year of passes every ten minutes, as the ingest leaves them: a file for each, and a list of all.

The first batches and the last are a real stream's. Those between are copies of a file that it wrote, each with another id in it,
listed in its own words; the stream's checkpoint counts them, and it goes on after them.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from tests.support.streamed import Streamed

DAYS, PASSES_A_DAY = 365, 144
# Before the days of the stream.
FIRST_DAY = date(2025, 6, 1)
_REAL, _ID_CHARS = 10, 32


class Year:
    """Letters of a year in `letters.data`, one from each pass."""

    PASSES = DAYS * PASSES_A_DAY

    def __init__(self, letters: Streamed) -> None:
        self.letters, self.folder = letters, letters.data / "letters"
        letters.write(batches=_REAL, teams=("a",))
        self._real = letters.rows()
        self._made = {name: f"pass {n:{_ID_CHARS - 5}}" for n, name in enumerate(self._names())}
        self._write()
        self._list([self.folder / name for name in self._made])
        self._count(letters.data / "_checkpoints" / "letters")
        self.ids = self._real + Counter(self._made.values())

    def listed(self) -> int:
        """How many files the last whole list names."""
        lists = {int(file.name.split(".")[0]): file for file in (self.folder / "_spark_metadata").glob("*.compact")}
        return len(lists[max(lists)].read_text().splitlines()) - 1

    def rows(self) -> Counter[str]:
        """How often each letter is there, by the files that Spark reads: of those that were made here, without reading them."""
        counting = self.letters.counting()
        small = Counter(self._made[name] for name in counting if name in self._made and (self.folder / name).is_file())
        others = [str(self.folder / name) for name in counting if name not in self._made]
        return small + Counter(row["id"] for row in self.letters.spark.read.parquet(*others).select("id").collect())

    def _names(self) -> Iterator[str]:
        for n in range(self.PASSES):
            day = FIRST_DAY + timedelta(days=n // PASSES_A_DAY)
            yield f"day={day}/team=a/part-00000-{uuid.uuid4()}.c000.snappy.parquet"

    def _write(self) -> None:
        """A file for each pass: byte by byte one that the stream wrote, but for the id in it, which is as long."""
        like, old = next(self._find_templates())
        for name, letter in self._made.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(like.replace(old, letter.encode()))

    def _find_templates(self) -> Iterator[tuple[bytes, bytes]]:
        """The files of the stream in which another id can be put by its bytes, and the ids in them.

        Not in every one: where four characters of an id come again in it, compression leaves the second four out.
        """
        tried, other = self.letters.data.parent / "tried.parquet", "x" * _ID_CHARS
        for written in sorted(self.folder.glob("day=*/team=*/*.parquet")):
            like, old = written.read_bytes(), self._read_id(written).encode()
            assert len(old) == _ID_CHARS
            tried.write_bytes(like.replace(old, other.encode()))
            if self._read_id(tried) == other:
                yield like, old

    def _read_id(self, file: Path) -> str:
        [row] = self.letters.spark.read.parquet(str(file)).select("id").collect()
        return str(row["id"])

    def _list(self, made: list[Path]) -> None:
        """Write the list again, as the stream would have by now."""
        folder = self.folder / "_spark_metadata"
        before = folder / f"{_REAL - 1}.compact"
        version, *lines = before.read_text().splitlines()
        alike = json.loads(lines[0])
        for file in made:
            status = file.stat()
            own = {"path": f"file://{file}", "size": status.st_size, "modificationTime": int(status.st_mtime * 1_000)}
            lines.append(json.dumps(alike | own, separators=(",", ":")))
        for old in [*folder.iterdir()]:
            old.unlink()
        (folder / f"{_REAL + self.PASSES - 1}.compact").write_text("\n".join([version, *lines]))

    def _count(self, checkpoint: Path) -> None:
        """The last two batches of the stream become the last two of the year."""
        for kind in ("offsets", "commits"):
            for number in range(_REAL):
                for form in ("{}", ".{}.crc"):
                    file, later = (checkpoint / kind / form.format(n) for n in (number, number + self.PASSES))
                    if number >= _REAL - 2:
                        file.rename(later)
                    else:
                        file.unlink(missing_ok=True)
