"""Entries of one record key: the earliest letter waits in its lane, the others behind it, and none is lost or counted twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retry.delay_queue import entry_keys
from retry.delay_queue.table import watermarks
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.movers import TakenKeys
from retry.testing.memory_table import MemoryTable
from tests.support.tables import ALL, NOW_MS, everything, lane, ordered_key, rocks

ORDERED, OTHER = (lane(n, ordered=True) for n in range(2))
FIRST, SECOND, THIRD = ordered_key(300, 1), ordered_key(100, 2), ordered_key(200, 3)


def fold(table: Table, *rows: ChangelogRow) -> None:
    table.apply_records(rows, table.next_offset + len(rows), NOW_MS)


def put_keys(table: Table, *keys: bytes) -> None:
    fold(table, *((key, str(entry_keys.read_source(key)).encode()) for key in keys))


def heads(table: Table) -> list[bytes]:
    return [key for _, key, _ in table.scan_entries(b"", ALL)]


def due(table: Table, now_ms: int = 1 << 60, of: bytes = ORDERED) -> list[bytes]:
    return [key for key, _ in table.find_due(now_ms, ALL, ALL, of)]


def deliver(table: Table, now_ms: int = 1 << 60) -> list[bytes]:
    """One batch of all lanes."""
    keys = [key for of in table.find_due_lanes(now_ms) for key in due(table, now_ms, of)]
    table.delete_scanned_rows(keys)
    return keys


def test_only_the_earliest_letter_of_a_record_key_has_a_row_in_its_lane(table: Table) -> None:
    put_keys(table, FIRST, SECOND, THIRD)
    assert heads(table) == due(table) == [FIRST]
    assert [key for _, key, _ in table.page_behind(b"", ALL)] == [SECOND, THIRD]
    assert (table.waiting, table.find_due_lanes(299), due(table, 299)) == (3, [], [])


def test_record_keys_do_not_wait_for_each_other(table: Table) -> None:
    other = ordered_key(50, 4, b"other")
    put_keys(table, FIRST, SECOND, other)
    assert due(table) == [other, FIRST]


def test_the_next_letter_takes_the_place_of_the_one_that_was_delivered(table: Table) -> None:
    put_keys(table, FIRST, SECOND, THIRD)
    assert [deliver(table, 300) for _ in range(4)] == [[FIRST], [SECOND], [THIRD], []]
    assert (table.waiting, table.list_lanes(), everything(table)) == (0, [], {})


def test_letters_of_one_record_key_may_wait_in_several_lanes(table: Table) -> None:
    """Rules send one to another topic than the next."""
    elsewhere = ordered_key(100, 2, n=1)
    put_keys(table, FIRST, elsewhere, THIRD)
    assert table.list_lanes() == [ORDERED]
    assert [deliver(table) for _ in range(3)] == [[FIRST], [elsewhere], [THIRD]]


def test_an_earlier_letter_that_is_read_later_goes_first(table: Table) -> None:
    """Compaction leaves a letter that was put back where it was put last: after those that wait for it."""
    put_keys(table, THIRD)
    put_keys(table, SECOND)
    put_keys(table, FIRST)
    assert (heads(table), table.waiting) == ([FIRST], 3)
    assert [deliver(table) for _ in range(3)] == [[FIRST], [SECOND], [THIRD]]


@pytest.mark.parametrize("before", [True, False], ids=["read back before", "read back after"])
def test_deletes_that_are_read_back_count_once(table: Table, before: bool) -> None:
    put_keys(table, FIRST, SECOND, THIRD)
    batch = due(table)
    if before:
        fold(table, *((key, None) for key in batch))
    table.delete_scanned_rows(batch)
    if not before:
        fold(table, *((key, None) for key in batch))
    assert (heads(table), table.waiting, len(everything(table))) == ([SECOND], 2, 2)


def test_what_is_put_back_keeps_its_place(table: Table) -> None:
    put_keys(table, FIRST, SECOND)
    (key,) = due(table)
    again = entry_keys.make_key_due_at(key, 5_000)
    table.delete_scanned_rows([key], [(again, b"again")])
    assert (heads(table), table.waiting, table.find_due_lanes(4_999)) == ([again], 2, [])
    fold(table, (again, b"again"), (key, None))
    assert (heads(table), table.waiting) == ([again], 2)
    assert [deliver(table, 5_000) for _ in range(3)] == [[again], [SECOND], []]


@pytest.mark.parametrize("cut", [1, 2])
def test_what_is_put_back_keeps_its_place_when_it_is_read_back_first(table: Table, cut: int) -> None:
    put_keys(table, FIRST, SECOND)
    (key,) = due(table)
    told = [(entry_keys.make_key_due_at(key, 5_000), b"again"), (key, None)]
    fold(table, *told[:cut])
    table.delete_scanned_rows([key], told[:1])
    fold(table, *told[cut:])
    assert (heads(table), table.waiting) == ([told[0][0]], 2)


@pytest.mark.parametrize("way", ["delete_scanned_rows", "delete_rows"])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_what_goes_to_and_fro_before_anything_is_folded_keeps_its_place(table: Table, way: str, times: int) -> None:
    """Put back, rescheduled to where it was, and put back once more: a null takes nothing out that came since."""
    put_keys(table, FIRST, SECOND)
    here, moves = FIRST, list[tuple[bytes, bytes]]()
    for n in range(times):
        there = TakenKeys(table).claim(entry_keys.make_key_due_at(FIRST, 300 if n % 2 else 5_000))
        getattr(table, way)([here], [(there, b"moved")])
        moves.append((there, here))
        here = there
    assert all(table.is_leaving(former) for _, former in moves)
    for key, former in moves:
        for told in ((key, b"moved"), (former, None)):
            fold(table, told)
            assert (heads(table), table.waiting, table.get(here)) == ([here], 2, b"moved")
    assert not any(table.is_leaving(key) for key, _ in moves)
    assert [deliver(table) for _ in range(3)] == [[here], [SECOND], []]


@pytest.mark.parametrize("read_back", [True, False])
def test_of_what_left_before_its_null_was_read_nothing_stays(table: Table, read_back: bool) -> None:
    """Read a null before this worker knew of its own commit, or not at all since compaction removed it: the next one tells."""
    put_keys(table, FIRST, ordered_key(400, 9, b"other"))
    if read_back:
        fold(table, (FIRST, None))
    table.delete_rows([FIRST])
    assert table.is_leaving(FIRST)
    (other,) = deliver(table)
    fold(table, (other, None))
    assert not table.is_leaving(FIRST) and not table.is_leaving(other)


def test_what_was_read_back_before_it_was_known_ahead_may_be_put_again_by_anybody(table: Table) -> None:
    put_keys(table, FIRST)
    later = entry_keys.make_key_due_at(FIRST, 5_000)
    fold(table, (later, b"later"))
    table.delete_scanned_rows([FIRST], [(later, b"later")])
    fold(table, (FIRST, None))
    table.delete_scanned_rows([later])
    fold(table, (later, None), (later, b"later"))
    assert heads(table) == [later]


@pytest.mark.parametrize("way", ["delete_scanned_rows", "delete_rows"])
def test_what_is_put_back_and_sent_before_the_fold_tells_of_it_stays_gone(table: Table, way: str) -> None:
    """The fold tells in portions: the first of these says that it waits, and was read before the second was written."""
    put_keys(table, FIRST, SECOND)
    (key,) = due(table)
    again = entry_keys.make_key_due_at(key, 400)
    getattr(table, way)([key], [(again, b"again")])
    assert deliver(table, 400) == [again]
    fold(table, (again, b"again"), (key, None))
    assert (heads(table), table.waiting) == ([SECOND], 1)
    fold(table, (again, None))
    assert (heads(table), table.waiting) == ([SECOND], 1)
    put_keys(table, again)
    assert (heads(table), table.waiting) == ([again], 2), "the null was its end: what comes later is news"


def test_one_that_waits_behind_another_can_be_dropped(table: Table) -> None:
    put_keys(table, FIRST, SECOND, THIRD)
    fold(table, (SECOND, None))
    assert (set(everything(table)), table.waiting) == ({FIRST, THIRD}, 2)
    assert [deliver(table) for _ in range(3)] == [[FIRST], [THIRD], []]


def test_a_null_of_another_due_time_drops_nothing(table: Table) -> None:
    put_keys(table, FIRST, SECOND)
    fold(table, *((entry_keys.make_key_due_at(key, 7), None) for key in (FIRST, SECOND)))
    assert (set(everything(table)), table.waiting) == ({FIRST, SECOND}, 2)


@pytest.mark.parametrize("moved", [FIRST, SECOND], ids=["the head", "one behind it"])
@pytest.mark.parametrize("at_once", [True, False], ids=["in one fold", "in two"])
def test_an_entry_can_be_moved_to_another_due_time(table: Table, moved: bytes, at_once: bool) -> None:
    put_keys(table, FIRST, SECOND, THIRD)
    there = entry_keys.make_key_due_at(moved, 900)
    told: list[ChangelogRow] = [(there, b"moved"), (moved, None)]
    if at_once:
        fold(table, *told)
    else:
        fold(table, told[0])
        fold(table, told[1])
    expected = [there if key == moved else key for key in (FIRST, SECOND, THIRD)]
    assert (set(everything(table)), table.waiting, table.get(there), table.get(moved)) == (set(expected), 3, b"moved", None)
    assert [deliver(table) for _ in range(3)] == [[key] for key in expected]


def test_records_that_are_read_again_change_nothing(table: Table) -> None:
    told: list[ChangelogRow] = [(FIRST, b"1"), (SECOND, b"2"), (THIRD, b"3"), (SECOND, None), (FIRST, None)]
    for upto in (3, 4, 5):
        for _ in range(2):
            fold(table, *told[:3], *told[3:upto])
    assert (everything(table), heads(table), table.waiting) == ({THIRD: b"3"}, [THIRD], 1)


def test_envelopes_of_all_are_found_by_key(table: Table) -> None:
    fold(table, (FIRST, b"1"), (SECOND, b""))
    assert [table.get(key) for key in (FIRST, SECOND, THIRD)] == [b"1", b"", None]


def test_pages_of_those_behind_go_on_after_a_cursor(table: Table) -> None:
    keys = [ordered_key(1_000 - n, n) for n in range(7)]
    put_keys(table, *keys)
    found, after = [], b""
    while rows := table.page_behind(after, 2):
        found += [key for _, key, _ in rows]
        after = rows[-1][0]
    assert found == keys[1:]


def test_a_successor_that_is_due_earlier_than_others_of_its_lane_is_found(table: Table) -> None:
    """Let a successor take the head's place far below where the scan of the lane had got to."""
    put_keys(table, FIRST, SECOND, ordered_key(350, 9, b"other"))
    batch = due(table)
    table.delete_scanned_rows(batch)
    assert (table.find_due_lanes(100), due(table)) == ([ORDERED], [SECOND])


def test_a_successor_is_not_reclaimed_with_what_was_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "_RECLAIM_EVERY", 1)
    table = rocks(tmp_path / "table")
    put_keys(table, FIRST, SECOND, THIRD)
    assert [deliver(table) for _ in range(4)] == [[FIRST], [SECOND], [THIRD], []]
    assert table.waiting == 0
    table.close()


def test_the_search_for_a_successor_does_not_step_over_those_that_went_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rocks(tmp_path / "table")
    keys = [ordered_key(1_000 - n, n) for n in range(50)]
    put_keys(table, *keys)
    places = [place for place, _, _ in table.page_behind(b"", ALL)]
    starts: list[bytes] = []
    scan = table._db.scan

    def note_and_scan(start: bytes, *rest: object) -> object:
        starts.append(start)
        return scan(start, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(table._db, "scan", note_and_scan)
    assert [deliver(table) for _ in keys] == [[key] for key in keys]
    starts = [start for start in starts if start[:1] == places[0][:1]]
    # Each begins where the one that goes would have waited: right before its successor.
    assert starts[1:] == places
    table.close()


def test_a_table_on_disk_opens_with_the_same_queues(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    put_keys(table, FIRST, SECOND, THIRD)
    before = everything(table)
    table.close()
    table = rocks(tmp_path / "table")
    assert (everything(table), heads(table), table.waiting) == (before, [FIRST], 3)
    assert [deliver(table) for _ in range(3)] == [[FIRST], [SECOND], [THIRD]]
    table.close()


def test_a_fold_that_was_cut_short_counts_exactly_when_it_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues are written entry by entry; the offset only when all are."""
    table = rocks(tmp_path / "table")
    put_keys(table, FIRST)
    told: list[ChangelogRow] = [(SECOND, b"2"), (FIRST, None), (THIRD, b"3")]
    write, left = table._ordered._write, [1, 1]

    def cut(*effect: object) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        write(*effect)  # type: ignore[arg-type]

    monkeypatch.setattr(table._ordered, "_write", cut)
    with pytest.raises(KeyboardInterrupt):
        table.apply_records(told, 4, NOW_MS)
    table.close()
    table = rocks(tmp_path / "table")
    assert (table.next_offset, table.waiting) == (1, 1)
    table.apply_records(told, 4, NOW_MS)
    assert (set(everything(table)), heads(table), table.waiting) == ({SECOND, THIRD}, [SECOND], 2)
    table.close()


_RECORDS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([b"a", b"b"]), st.integers(0, 1), st.booleans()),
    max_size=30,
)  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(_RECORDS, st.randoms(use_true_random=False))
def test_the_same_entries_make_the_same_table_whatever_the_log_looked_like(
    told: list[tuple[int, int, bytes, int, bool]], random: random.Random
) -> None:
    """Folded whole and in pieces, compacted and in another order: queues follow from which entries wait."""
    rows = [(ordered_key(due_ms, offset, key, n), None if gone else b"") for due_ms, offset, key, n, gone in told]
    live = {key: value for key, value in dict(rows).items() if value is not None}
    whole, compacted, shuffled = MemoryTable(), MemoryTable(), MemoryTable()
    for row in rows:
        fold(whole, row)
    kept = {key: n for n, (key, _) in enumerate(rows) if key in live}
    fold(compacted, *(rows[n] for n in sorted(kept.values())))
    fold(shuffled, *random.sample(sorted(live.items()), len(live)))
    for table in (whole, compacted, shuffled):
        assert (everything(table), table.waiting) == (live, len(live))
        assert heads(table) == heads(whole)
        latest_first = sorted(map(letter, live), reverse=True)
        assert {letter(key) for key in heads(table)} == set(dict(latest_first).items())


class Service:
    """A shard whose letters keep their order, its log, and owners that come and go."""

    def __init__(self, path: Path | None) -> None:
        self.log: list[ChangelogRow] = []
        self.delivered: list[bytes] = []
        self.path, self.made = path, 0
        self.table: Table = MemoryTable()
        self.crash(random.Random(0))

    def crash(self, chance: random.Random) -> None:
        """The next owner finds the log, or what compaction left of it, and reads it in pieces."""
        self.table.close()
        self.made += 1
        self.table = MemoryTable() if self.path is None else rocks(self.path / str(self.made))
        last = dict(self.log)
        log = self.log
        if chance.random() < 0.5:
            # The last record of each key, where that one stands; deletes may be gone already.
            kept = {key: n for n, (key, _) in enumerate(log)}
            log = [log[n] for n in sorted(kept.values()) if last[log[n][0]] is not None or chance.random() < 0.5]
        while log:
            size = chance.randint(1, 5)
            fold(self.table, *log[:size])
            log = log[size:]
        self.table.apply_records([], len(self.log), NOW_MS)

    def take_in(self, key: bytes) -> None:
        self.log.append((key, b"v"))
        fold(self.table, self.log[-1])

    def sweep(self, now_ms: int, chance: random.Random) -> None:
        """Heads that are due go out, or back where they came from; the owner may die before it has told its table."""
        keys = [key for of in self.table.find_due_lanes(now_ms) for key in due(self.table, now_ms, of)]
        back = {key for key in keys if chance.random() < 0.3}
        again = [(entry_keys.make_key_due_at(key, now_ms + 1 + chance.randint(0, 9)), b"v") for key in keys if key in back]
        self.delivered += [key for key in keys if key not in back]
        told = [*again, *((key, None) for key in keys)]
        self.log += told
        fate = chance.random()
        if fate < 0.2:
            self.crash(chance)
        elif fate < 0.6:
            self.table.delete_scanned_rows(keys, again)
            fold(self.table, *told)
        else:
            cut = chance.randint(0, len(told))
            fold(self.table, *told[:cut])
            self.table.delete_scanned_rows(keys, again)
            fold(self.table, *told[cut:])

    def waits(self) -> set[bytes]:
        return {key for key, value in dict(self.log).items() if value is not None}


def letter(key: bytes) -> tuple[bytes, int]:
    return entry_keys.order_of(key), entry_keys.read_source(key).offset


def live_through(path: Path | None, seed: int) -> None:
    chance = random.Random(seed)
    service, taken, now_ms = Service(path), [], 0
    for offset in range(25):
        key = ordered_key(now_ms + chance.randint(-5, 20), offset, chance.choice([b"a", b"b", b"c"]), chance.randint(0, 1))
        taken.append(letter(key))
        service.take_in(key)
        if chance.random() < 0.6:
            now_ms += chance.randint(0, 6)
            service.sweep(now_ms, chance)
        assert set(everything(service.table)) == service.waits()
        assert service.table.waiting == len(service.waits())
    while service.waits():
        now_ms += 10
        service.sweep(now_ms, chance)
    delivered = [letter(key) for key in service.delivered]
    assert sorted(delivered) == sorted(taken)
    for order in {order for order, _ in taken}:
        offsets = [offset for of, offset in delivered if of == order]
        assert offsets == sorted(offsets)
    service.table.close()


@pytest.mark.parametrize("seed", range(150))
def test_every_letter_is_delivered_once_and_in_its_order_whoever_dies(seed: int) -> None:
    live_through(None, seed)


@pytest.mark.parametrize("seed", range(15))
def test_the_same_on_disk(tmp_path: Path, seed: int) -> None:
    live_through(tmp_path, seed)
