"""Entries with a name: the greatest of a name counts, whatever the log looked like, and what it superseded waits for its null."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retry.delay_queue import entry_keys
from retry.delay_queue.table import named_entries, watermarks
from retry.delay_queue.table import watermarks as of_names
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.testing.memory_table import MemoryTable
from tests.support.tables import ALL, NOW_MS, cancel, everything, named_key, plain_key, rocks

LANE = entry_keys.lane_of(named_key(0, 0))
FIRST, SECOND, THIRD = named_key(300, 1), named_key(100, 2), named_key(200, 3)
CANCEL = cancel(4)
FAR_MS = 1 << 60


def fold(table: Table, *rows: ChangelogRow) -> None:
    table.apply_records(rows, table.next_offset + len(rows), NOW_MS)


def put_keys(table: Table, *keys: bytes) -> None:
    fold(table, *((key, str(entry_keys.read_source(key)).encode()) for key in keys))


def due(table: Table, now_ms: int = FAR_MS, of: bytes = LANE) -> list[bytes]:
    return [key for key, _ in table.find_due(now_ms, ALL, ALL, of)]


def raw(table: Table) -> dict[bytes, bytes]:
    """Rows as they lie there, less the state and what an operator asked for."""
    if isinstance(table, MemoryTable):
        return dict(table._rows)
    assert isinstance(table, RocksTable)
    return dict(table._db.scan(entry_keys.FIRST_KEY, b"\x0a", ALL, ALL)[0])


def model(live: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], set[bytes], list[bytes]]:
    """Compute what waits, which cancels count, and what is superseded, where just these keys stand in the changelog."""

    def rank(key: bytes) -> tuple[bytes, int, bool, int]:
        of_cancel = key.startswith(entry_keys.CANCEL)
        return entry_keys.name_of(key), entry_keys.read_version(key), of_cancel, entry_keys.due_at_ms(key)

    ordered = sorted(live, key=rank)
    counts = {entry_keys.name_of(key): key for key in ordered}.values()
    cancels = {key for key in counts if key.startswith(entry_keys.CANCEL)}
    waits = {key: live[key] for key in counts if key not in cancels}
    return waits, cancels, sorted(set(live) - set(counts), key=named_entries.build_superseded_key)


def shows(table: Table, live: dict[bytes, bytes]) -> None:
    waits, cancels, superseded = model(live)
    assert everything(table) == waits
    assert (table.waiting, table.list_superseded(ALL)) == (len(waits), superseded)
    assert set(table.expired_cancels(FAR_MS, ALL)) == cancels


@pytest.mark.parametrize("order", permutations([FIRST, SECOND, THIRD]))
def test_the_greatest_version_counts_in_whatever_order_they_are_told(table: Table, order: tuple[bytes, ...]) -> None:
    put_keys(table, *order)
    assert (due(table), table.waiting, table.list_superseded(ALL)) == ([THIRD], 1, [FIRST, SECOND])
    assert table.list_lanes() == table.find_due_lanes(200) == [LANE]
    assert table.get(FIRST) is None, "it does not wait"


def test_of_one_version_the_latest_due_time_counts(table: Table) -> None:
    again = entry_keys.make_key_due_at(FIRST, 301)
    put_keys(table, again, FIRST)
    assert (due(table), table.list_superseded(ALL)) == ([again], [FIRST])


@pytest.mark.parametrize("order", permutations([(FIRST, b"1"), (SECOND, b"2"), CANCEL]))
def test_a_cancel_ends_all_before_it_and_itself(table: Table, order: tuple[ChangelogRow, ...]) -> None:
    fold(table, *order)
    assert (everything(table), table.waiting, table.list_lanes()) == ({}, 0, [])
    assert (table.list_superseded(ALL), table.expired_cancels(NOW_MS, ALL)) == ([FIRST, SECOND], [CANCEL[0]])
    fold(table, *((key, None) for key in table.list_superseded(ALL)))
    assert table.list_superseded(ALL) == []
    fold(table, (CANCEL[0], None))
    assert (raw(table), table.expired_cancels(NOW_MS, ALL)) == ({}, [])


def test_a_cancel_also_ends_what_comes_after_it_while_it_is_remembered(table: Table) -> None:
    """Partitions of a topic are read apart: what is older may come later."""
    fold(table, remembered := cancel(4, until_ms=NOW_MS + 10))
    put_keys(table, FIRST)
    assert (everything(table), table.list_superseded(ALL)) == ({}, [FIRST])
    fold(table, (FIRST, None))
    put_keys(table, SECOND)
    assert (everything(table), table.list_superseded(ALL)) == ({}, [SECOND])
    table.delete_rows([SECOND])
    assert table.expired_cancels(NOW_MS + 9, ALL) == []
    assert table.expired_cancels(NOW_MS + 10, ALL) == [remembered[0]]
    table.delete_rows([remembered[0]])
    assert raw(table) == {}


def test_cancels_are_forgotten_in_the_order_in_which_they_expire_at_most_so_many_at_once(table: Table) -> None:
    cancels = [cancel(1, b"%d" % n, until_ms=NOW_MS + 10 - n) for n in range(5)]
    fold(table, *cancels, cancel(1, b"later", until_ms=FAR_MS))
    assert table.expired_cancels(NOW_MS + 20, 2) == [cancels[4][0], cancels[3][0]]
    table.delete_rows([cancels[4][0], cancels[3][0]])
    assert table.expired_cancels(NOW_MS + 20, ALL) == [cancels[n][0] for n in (2, 1, 0)]
    assert table.expired_cancels(NOW_MS, 0) == []


def test_of_one_version_the_cancel_counts(table: Table) -> None:
    put_keys(table, FIRST)
    fold(table, cancel(1))
    assert (everything(table), table.list_superseded(ALL)) == ({}, [FIRST])


def test_the_greatest_of_a_name_is_found_by_any_of_its_keys(table: Table) -> None:
    put_keys(table, FIRST, SECOND, named_key(5, 1, b"other"))
    assert table.find_greatest([FIRST, SECOND, named_key(9, 9, b"nobody")]) == [SECOND, SECOND, None]
    fold(table, CANCEL)
    assert table.find_greatest([FIRST]) == [CANCEL[0]]


def test_the_row_of_a_name_tells_what_waits(tmp_path: Path) -> None:
    table, row = rocks(tmp_path / "table"), named_entries.build_pointer_key(FIRST)
    put_keys(table, FIRST)
    assert named_entries.waits(table.get(row) or b"") == FIRST
    put_keys(table, THIRD)
    assert named_entries.waits(table.get(row) or b"") == THIRD
    fold(table, CANCEL)
    assert named_entries.waits(table.get(row) or b"") is None
    table.close()


def test_what_comes_after_a_cancel_counts(table: Table) -> None:
    put_keys(table, FIRST)
    fold(table, CANCEL)
    put_keys(table, later := named_key(50, 5))
    assert (due(table), table.waiting, table.list_superseded(ALL)) == ([later], 1, [FIRST, CANCEL[0]])


def test_a_cancel_ends_the_version_that_it_names_and_no_later_one(table: Table) -> None:
    """Read back the tombstone that a fired schedule leaves: it must not end a newer one."""
    put_keys(table, FIRST, THIRD)
    fold(table, cancel(1))
    assert (due(table), table.list_superseded(ALL)) == ([THIRD], [cancel(1)[0], FIRST])


def test_names_do_not_know_each_other(table: Table) -> None:
    others = [named_key(5, 1, b"other"), named_key(6, 1, b"third", n=1)]
    put_keys(table, FIRST, *others)
    fold(table, CANCEL)
    assert (set(everything(table)), table.waiting) == (set(others), 2)


def test_the_superseded_are_told_in_bounded_batches(table: Table) -> None:
    put_keys(table, *(named_key(100, version, b"%d" % name) for version in range(4) for name in range(5)))
    ended = []
    while some := table.list_superseded(4):
        ended += some
        table.delete_rows(some)
    assert len(set(ended)) == len(ended) == 15
    for name in {entry_keys.name_of(key) for key in ended}:
        assert [entry_keys.read_version(key) for key in ended if entry_keys.name_of(key) == name] == [0, 1, 2]
    assert (len(everything(table)), table.waiting) == (5, 5)


@pytest.mark.parametrize("read_back", [True, False], ids=["read back before", "read back after"])
def test_what_was_delivered_counts_once(table: Table, read_back: bool) -> None:
    put_keys(table, FIRST, other := named_key(400, 1, b"other"))
    batch = due(table, 300)
    if read_back:
        fold(table, (FIRST, None))
    table.delete_scanned_rows(batch)
    if not read_back:
        fold(table, (FIRST, None))
    assert (everything(table).keys(), table.waiting, due(table)) == ({other}, 1, [other])
    assert set(raw(table)) == {other, named_entries.build_pointer_key(other)}


@pytest.mark.parametrize("read_back", [True, False], ids=["read back before", "read back after"])
@pytest.mark.parametrize("newer", [[(SECOND, b"2")], [CANCEL], [(SECOND, b"2"), CANCEL]])
def test_what_replaces_an_entry_while_it_is_delivered_stays(table: Table, newer: list[ChangelogRow], read_back: bool) -> None:
    """The null of what was delivered names its own key: it ends nothing that is newer."""
    put_keys(table, FIRST)
    batch = due(table)
    fold(table, *newer)
    if read_back:
        fold(table, (FIRST, None))
    table.delete_scanned_rows(batch)
    if not read_back:
        fold(table, (FIRST, None))
    shows(table, dict(newer))  # type: ignore[arg-type]


def test_the_next_run_is_known_before_the_fold_tells_of_it(table: Table) -> None:
    """Or what replaced it meanwhile could be delivered, and it would come to life when that one has ended."""
    put_keys(table, FIRST)
    again = entry_keys.make_key_due_at(FIRST, 900)
    table.delete_scanned_rows(due(table), [(again, b"again")])
    assert (due(table, 899), due(table), table.waiting) == ([], [again], 1)
    put_keys(table, SECOND)
    assert (due(table), table.list_superseded(ALL)) == ([SECOND], [again])
    table.delete_rows([again])
    table.delete_scanned_rows(due(table))
    fold(table, (again, b"again"), (FIRST, None))
    assert (raw(table), table.waiting) == ({}, 0), "it has ended already"
    fold(table, (again, None), (SECOND, None))
    assert (raw(table), table.waiting) == ({}, 0)
    put_keys(table, again)
    assert due(table) == [again], "the null was its end: what comes later is news"


def test_a_run_that_is_due_already_is_found_at_once(table: Table) -> None:
    put_keys(table, FIRST, named_key(350, 1, b"other"))
    batch, again = due(table), entry_keys.make_key_due_at(FIRST, 301)
    table.delete_scanned_rows(batch, [(again, b"")])
    assert (table.find_due_lanes(301), due(table)) == ([LANE], [again])


def test_a_run_is_not_reclaimed_with_what_was_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "_RECLAIM_EVERY", 1)
    table = rocks(tmp_path / "table")
    put_keys(table, FIRST, named_key(350, 1, b"other"))
    table.delete_scanned_rows(due(table), [(again := entry_keys.make_key_due_at(FIRST, 301), b"")])
    assert (due(table), table.waiting) == ([again], 1)
    table.close()


def test_the_rows_of_what_ended_are_reclaimed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_names, "_RECLAIM_SUPERSEDED_EVERY", 1)
    table, live = rocks(tmp_path / "table"), dict[bytes, bytes]()
    for version in range(6):
        keys = [named_key(100, version, b"%d" % name) for name in range(version + 1)]
        live |= dict.fromkeys(keys, b"")
        fold(table, *((key, b"") for key in keys))
        gone = table.list_superseded(3)
        table.delete_rows(gone)
        live = {key: value for key, value in live.items() if key not in gone}
        shows(table, live)
    table.close()
    table = rocks(tmp_path / "table")
    shows(table, live)
    table.close()


def test_a_table_on_disk_opens_with_the_same_names(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    put_keys(table, plain_key(5), FIRST, SECOND, named_key(7, 1, b"other"))
    before = raw(table)
    table.close()
    table = rocks(tmp_path / "table")
    assert (raw(table), table.waiting, table.list_superseded(ALL)) == (before, 3, [FIRST])
    table.delete_scanned_rows(due(table))
    fold(table, (FIRST, None))
    assert (set(everything(table)), table.waiting, table.list_superseded(ALL)) == ({plain_key(5)}, 1, [])
    table.close()


_RECORDS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)),
    max_size=30,
)  # fmt: skip


def record(name: bytes, version: int, due_ms: int, n: int, what: int) -> ChangelogRow:
    """A record of the changelog: an entry, a cancel, or the null of either."""
    if what == 0:
        return cancel(version, name)
    if what == 1:
        return cancel(version, name)[0], None
    key = named_key(due_ms, version, name, n)
    return key, None if what == 2 else b"%d in %d" % (version, n)


def distinct(rows: list[ChangelogRow]) -> list[ChangelogRow]:
    """Less entries that have the same rank as another: no two letters make such."""
    lanes: dict[tuple[bytes, int, int], bytes] = {}
    return [row for row in rows if lanes.setdefault(_rank(row[0]), row[0]) == row[0]]


def _rank(key: bytes) -> tuple[bytes, int, int]:
    return entry_keys.name_of(key), entry_keys.read_version(key), entry_keys.due_at_ms(key)


def told_in_ways(rows: list[ChangelogRow], tables: list[Table], chance: random.Random) -> None:
    """Whole, in pieces, compacted, and what is left in any order; then all of them have the same rows."""
    live = {key: value for key, value in dict(rows).items() if value is not None}
    whole, pieces, compacted, shuffled = tables
    fold(whole, *rows)
    left = list(rows)
    while left:
        size = chance.randint(1, 4)
        fold(pieces, *left[:size])
        # What is read again changes nothing.
        if chance.random() < 0.3:
            fold(pieces, *[(key, dict(rows[: len(rows) - len(left) + size])[key]) for key, _ in left[:size]])
        left = left[size:]
    last = {key: n for n, (key, _) in enumerate(rows)}
    for key, n in sorted(last.items(), key=lambda each: each[1]):
        if key in live or chance.random() < 0.5:
            fold(compacted, rows[n])
    any_order: list[ChangelogRow] = [*live.items(), *((key, None) for key, _ in rows if key not in live)]
    for row in chance.sample(any_order, len(any_order)):
        fold(shuffled, row)
    for table in tables:
        shows(table, live)
        assert raw(table) == raw(whole)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(_RECORDS, st.randoms(use_true_random=False))
def test_the_same_keys_make_the_same_rows_whatever_the_log_looked_like(
    told: list[tuple[bytes, int, int, int, int]], chance: random.Random
) -> None:
    told_in_ways(distinct([record(*each) for each in told]), [MemoryTable() for _ in range(4)], chance)


@pytest.mark.parametrize("seed", range(12))
def test_the_same_on_disk(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    draw = chance.randint
    told = [record(chance.choice([b"a", b"b"]), draw(0, 3), draw(0, 2), draw(0, 1), draw(0, 3)) for _ in range(40)]
    tables: list[Table] = [rocks(tmp_path / f"{n}") for n in range(4)]
    told_in_ways(distinct(told), tables, chance)
    for table in tables:
        table.close()
