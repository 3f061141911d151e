"""RocksDB with broken files: a table answers in full, says that it cannot, or begins anew; it never answers in part."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from retry import clock
from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable, destroy_database
from retry.errors import ChangelogReplaced, TableUnreadable

pytestmark = pytest.mark.check

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ROWS = 30_000
ALL = 1 << 30
FLIPPED_BYTES = 4 << 10
IDENTITY = Identity("cluster", "topic", 0)


def open_table(path: Path, identity: Identity = IDENTITY, now_ms: int = NOW_MS) -> RocksTable:
    # A cache of its own for each: blocks that another one has read would hide what is wrong with the file.
    return RocksTable.open(path, identity, Memory(8 << 20), now_ms, DAY_MS)


def rows(count: int = ROWS, seed: int = 1) -> list[tuple[bytes, bytes]]:
    draw = random.Random(seed)
    return [(entry_keys.build_key(n, entry_keys.build_key_stem("orders.DLT", 0), n), draw.randbytes(200)) for n in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with rows in sorted files, closed."""
    path = tmp_path / "table"
    table = open_table(path)
    table.apply_records(rows(), ROWS, NOW_MS)
    table._db._handle.flush()
    table.close()
    return path


def is_empty(table: RocksTable) -> bool:
    entries = [row[1:] for row in table.scan_entries(b"", ALL)]
    found = (table.next_offset, table.waiting, table.find_due(NOW_MS, ALL, ALL), entries)
    table.close()
    return found == (0, 0, [], [])


def largest(path: Path, pattern: str) -> Path:
    return max(path.glob(pattern), key=lambda file: file.stat().st_size)


def overwrite(file: Path, at: int, content: bytes) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(at)
        opened_file.write(content)


def corrupt(path: Path, seed: int) -> None:
    """Flip 4 KB in the middle half of the largest sorted file: among the rows, not in the index at its end."""
    file, draw = largest(path, "*.sst"), random.Random(seed)
    size = file.stat().st_size
    at = draw.randrange(size // 4, size * 3 // 4)
    with file.open("rb") as whole:
        whole.seek(at)
        found = whole.read(FLIPPED_BYTES)
    overwrite(file, at, bytes(byte ^ 0xFF for byte in found))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ask", ["find_due", "scan_entries"])
def test_a_corrupt_block_is_said_and_never_shortens_an_answer(path: Path, ask: str, seed: int) -> None:
    corrupt(path, seed)
    table = open_table(path)
    assert table.next_offset == ROWS, "it opens: RocksDB does not look at rows before they are read"
    with pytest.raises(TableUnreadable, match=r"checksum|[Cc]orruption"):
        table.find_due(NOW_MS, ALL, ALL) if ask == "find_due" else table.scan_entries(b"", ALL)
    table.close()


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_right_up_to_the_corrupt_block(path: Path, seed: int) -> None:
    corrupt(path, seed)
    table, expected, delivered = open_table(path), rows(), 0
    for _ in range(ROWS):
        try:
            batch = table.find_due(NOW_MS, 1_000, ALL)
        except TableUnreadable:
            break
        assert batch == expected[delivered : delivered + 1_000]
        table.delete_scanned_rows([key for key, _ in batch])
        delivered += len(batch)
    else:
        pytest.fail("nobody noticed")
    assert delivered < ROWS
    table.close()


def test_a_row_in_a_corrupt_block_is_not_missing_but_unreadable(path: Path) -> None:
    corrupt(path, seed=1)
    table = open_table(path)
    answers = []
    for key, value in rows():
        try:
            answers.append(table.get(key) == value)
        except TableUnreadable:
            answers.append(None)
    assert set(answers) == {True, None}
    table.close()


def test_after_an_iterator_raised_the_table_closes_and_opens_again(path: Path) -> None:
    corrupt(path, seed=1)
    table = open_table(path)
    for _ in range(3):
        with pytest.raises(TableUnreadable):
            table.find_due(NOW_MS, ALL, ALL)
    table.close()
    again = open_table(path)
    assert again.next_offset == ROWS
    again.close()


def test_a_truncated_sorted_file_is_wiped_or_said(path: Path) -> None:
    file = largest(path, "*.sst")
    with file.open("r+b") as whole:
        whole.truncate(file.stat().st_size // 2)
    assert is_empty(open_table(path))


def test_a_missing_sorted_file_is_wiped(path: Path) -> None:
    largest(path, "*.sst").unlink()
    assert is_empty(open_table(path))


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"MANIFEST-999999\n", b"\0" * 100])
def test_a_corrupt_current_file_is_wiped(path: Path, content: bytes) -> None:
    (path / "CURRENT").write_bytes(content)
    assert is_empty(open_table(path))


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_corrupt_manifest_is_wiped(path: Path, damage: str) -> None:
    manifest = largest(path, "MANIFEST-*")
    if damage == "missing":
        manifest.unlink()
    else:
        content = manifest.read_bytes()
        flipped, short = bytes(byte ^ 0xFF for byte in content), content[: len(content) // 2]
        manifest.write_bytes(flipped if damage == "flipped" else short)
    assert is_empty(open_table(path))


def test_an_open_table_is_written_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a killed worker has little to fold again, and an idle table does not look older than it is."""
    now_s = 1_000.0
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s)
    table = open_table(tmp_path / "table")
    table.apply_records(rows(10), 10, NOW_MS)
    now_s += 59
    table.apply_records(rows(20)[10:], 20, NOW_MS + 59_000)
    assert on_disk(tmp_path) == 10
    now_s += 1
    table.apply_records([], 20, NOW_MS + 60_000)
    assert on_disk(tmp_path) == 20
    table.close()


def on_disk(folder: Path) -> int:
    """How far a table goes whose process is killed now."""
    killed = folder / "killed"
    killed.mkdir()
    for file in (folder / "table").iterdir():
        if file.is_file() and file.name != "LOCK":
            (killed / file.name).write_bytes(file.read_bytes())
    found = open_table(killed, now_ms=NOW_MS + 60_000)
    next_offset = found.next_offset
    assert found.waiting == len(found.scan_entries(b"", ALL)) == next_offset
    found.close()
    destroy_database(killed)
    return next_offset


def test_the_table_of_another_partition_is_wiped(path: Path) -> None:
    assert is_empty(open_table(path, Identity("cluster", "topic", 1)))


@pytest.mark.parametrize("foreign", [Identity("other", "topic", 0), Identity("cluster", "new", 0)])
def test_the_table_of_another_changelog_is_kept_until_that_is_adopted(path: Path, foreign: Identity) -> None:
    for _ in range(2):
        with pytest.raises(ChangelogReplaced, match=r"changelog identity changed.*--adopt-empty-changelog"):
            open_table(path, foreign)
    kept = open_table(path)
    assert kept.waiting == ROWS
    kept.close()
    assert is_empty(RocksTable.open(path, foreign, Memory(8 << 20), NOW_MS, DAY_MS, adopt=True))


def test_a_table_that_is_too_old_is_wiped_and_one_at_the_limit_is_not(path: Path) -> None:
    kept = open_table(path, now_ms=NOW_MS + DAY_MS)
    assert kept.waiting == ROWS
    kept.close()
    assert is_empty(open_table(path, now_ms=NOW_MS + DAY_MS + 1))


def test_a_table_from_too_far_in_the_future_is_wiped(path: Path) -> None:
    """A clock that was ahead when it was written would keep it for longer than deletes are kept."""
    assert is_empty(open_table(path, now_ms=NOW_MS - DAY_MS - 1))


def test_rows_without_a_state_are_wiped(path: Path) -> None:
    raw = Rdict(str(path), options=Options(raw_mode=True))
    raw.delete(b"\0")
    raw.close()
    assert is_empty(open_table(path))


@pytest.mark.parametrize("state", [b"", b"\xc1", b"not a state", b"\x95\x01\x93\xa1a\xa1b\x00"])
def test_an_unreadable_state_is_wiped(path: Path, state: bytes) -> None:
    raw = Rdict(str(path), options=Options(raw_mode=True))
    raw[b"\0"] = state
    raw.close()
    assert is_empty(open_table(path))


def test_a_wiped_table_is_folded_anew(path: Path) -> None:
    (path / "CURRENT").write_bytes(b"nonsense\n")
    table = open_table(path)
    table.apply_records(rows(10), 10, NOW_MS)
    table.close()
    again = open_table(path)
    assert [row[1:] for row in again.scan_entries(b"", ALL)] == rows(10)
    again.close()


def test_a_second_table_on_the_same_files_is_refused_and_nothing_is_wiped(path: Path) -> None:
    first = open_table(path)
    with pytest.raises(Exception, match=r"(?i)lock"):
        open_table(path)
    assert first.waiting == len(first.scan_entries(b"", ALL)) == ROWS
    first.apply_records([(entry_keys.build_key(1, entry_keys.build_key_stem("late.DLT", 0), 0), b"late")], ROWS + 1, NOW_MS)
    first.close()
    again = open_table(path)
    assert again.waiting == ROWS + 1
    again.close()


def test_a_closed_table_can_be_opened_at_once_many_times(path: Path) -> None:
    for _ in range(10):
        table = open_table(path)
        assert len(table.find_due(NOW_MS, 10, ALL)) == 10
        table.close()
