"""What a table promises, whichever way it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from retry.delay_queue import control_records, entry_keys, envelopes
from retry.delay_queue.control_records import Pause
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delay_queue.table.rocksdb_table import destroy_database
from retry.errors import EntryNewer
from retry.testing.memory_table import MemoryTable
from tests.support.tables import ALL, NOW_MS, everything, lane, ordered_key, plain_key, rocks


def key(due_ms: int, offset: int = 0, topic: str = "orders.DLT") -> bytes:
    return entry_keys.build_key(due_ms, entry_keys.build_key_stem(topic, 0), offset)


def put_rows(table: Table, *due_ms: int, next_offset: int | None = None) -> None:
    rows = [(key(due), b"%d" % due) for due in due_ms]
    table.apply_records(rows, table.next_offset + len(rows) if next_offset is None else next_offset, NOW_MS)


def due(table: Table, now_ms: int, rows_max: int = ALL, bytes_max: int = ALL) -> list[int]:
    return [entry_keys.due_at_ms(found) for found, _ in table.find_due(now_ms, rows_max, bytes_max)]


def deliver(table: Table, now_ms: int, rows_max: int = ALL) -> list[int]:
    found = [found for found, _ in table.find_due(now_ms, rows_max, ALL)]
    table.delete_scanned_rows(found)
    return [entry_keys.due_at_ms(each) for each in found]


def list_due_times(table: Table) -> list[int]:
    return [entry_keys.due_at_ms(found) for _, found, _ in table.scan_entries(b"", ALL)]


def test_a_new_table_is_empty(table: Table) -> None:
    assert (table.next_offset, table.waiting) == (0, 0)
    assert table.find_due(NOW_MS, ALL, ALL) == table.scan_entries(b"", ALL) == []


def test_3_3_rows_come_in_the_order_of_their_due_times(table: Table) -> None:
    put_rows(table, 300, 100, -5, 200, 0)
    assert due(table, 1_000) == [-5, 0, 100, 200, 300]


def test_rows_of_one_due_time_come_in_the_order_of_their_letters(table: Table) -> None:
    letters = [(topic, offset) for topic in ("a.DLT", "b.DLT") for offset in (0, 1, 255, 256, 70_000)]
    table.apply_records([(key(100, offset, topic), b"") for topic, offset in reversed(letters)], 10, NOW_MS)
    assert [entry_keys.read_source(found)[1::2] for found, _ in table.find_due(100, ALL, ALL)] == letters


@pytest.mark.parametrize(
    ("now_ms", "expected"), [(99, []), (100, [100]), (101, [100, 101]), (1 << 62, [100, 101, 102])]
)
def test_3_4_due_is_what_is_due_at_or_before_now(table: Table, now_ms: int, expected: list[int]) -> None:
    put_rows(table, 100, 101, 102)
    assert due(table, now_ms) == expected


def test_the_far_ends_of_time_are_kept_apart(table: Table) -> None:
    put_rows(table, -(1 << 63), entry_keys.DUE_MS_MAX)
    assert due(table, NOW_MS) == [-(1 << 63)]
    assert due(table, entry_keys.DUE_MS_MAX - 1) == [-(1 << 63)]
    assert list_due_times(table) == [-(1 << 63), entry_keys.DUE_MS_MAX]


def test_what_is_due_changes_nothing(table: Table) -> None:
    put_rows(table, 100, 200)
    assert due(table, 500) == due(table, 500) == [100, 200]
    assert table.waiting == 2


def test_rows_max_bounds_a_batch(table: Table) -> None:
    put_rows(table, 1, 2, 3)
    assert [deliver(table, 10, rows_max=2) for _ in range(3)] == [[1, 2], [3], []]


def test_3_11_what_is_due_at_one_moment_goes_whole_though_batches_end_inside_it(table: Table) -> None:
    table.apply_records([(key(100, n), b"") for n in range(25)], 25, NOW_MS)
    assert [len(deliver(table, 100, rows_max=10)) for _ in range(4)] == [10, 10, 5, 0]


def test_bytes_max_bounds_a_batch_once_it_is_reached(table: Table) -> None:
    table.apply_records([(key(n), b"x" * 100) for n in range(5)], 5, NOW_MS)
    assert [len(due(table, 10, bytes_max=limit)) for limit in (1, 100, 101, 200, 201, 1_000)] == [1, 1, 2, 2, 3, 5]


def test_an_envelope_larger_than_bytes_max_still_goes_out_alone(table: Table) -> None:
    table.apply_records([(key(1), b"x" * 5_000), (key(2), b"y")], 2, NOW_MS)
    assert due(table, 10, bytes_max=1_024) == [1]


def test_what_is_forgotten_is_gone_and_the_rest_is_not(table: Table) -> None:
    put_rows(table, 1, 2, 3)
    assert deliver(table, 2) == [1, 2]
    assert list_due_times(table) == due(table, 10) == [3]
    assert table.waiting == 1


def test_forgetting_moves_no_offset(table: Table) -> None:
    put_rows(table, 1, next_offset=41)
    deliver(table, 10)
    assert table.next_offset == 41


def test_3_11_what_is_put_below_the_last_row_swept_is_found(table: Table) -> None:
    put_rows(table, 500, 600)
    assert deliver(table, 1_000) == [500, 600]
    put_rows(table, 400)
    assert deliver(table, 1_000) == [400]


def test_what_is_put_below_an_empty_scan_is_found(table: Table) -> None:
    assert due(table, 1_000) == []
    put_rows(table, 400)
    assert due(table, 1_000) == [400]


@pytest.mark.parametrize("late", [50, 100, 150, 250, 900, 1_000])
def test_3_11_what_is_put_while_a_batch_is_being_delivered_is_found(table: Table, late: int) -> None:
    put_rows(table, 100, 200, 300)
    batch = [found for found, _ in table.find_due(1_000, 2, ALL)]
    table.apply_records([(key(late, 7), b"late")], 9, NOW_MS)
    table.delete_scanned_rows(batch)
    assert due(table, 1_000) == sorted([late, 300])


def test_what_is_put_between_two_looks_is_found_after_the_second_is_forgotten(table: Table) -> None:
    put_rows(table, 100, 200)
    table.find_due(1_000, ALL, ALL)  # Its delivery was aborted: nothing is forgotten.
    put_rows(table, 50)
    batch = [found for found, _ in table.find_due(1_000, 1, ALL)]
    put_rows(table, 40)
    table.delete_scanned_rows(batch)
    assert due(table, 1_000) == [40, 100, 200]


def test_a_clock_that_steps_back_loses_nothing(table: Table) -> None:
    put_rows(table, 100, 900)
    assert deliver(table, 1_000, rows_max=1) == [100]
    assert due(table, 500) == []
    put_rows(table, 400)
    assert due(table, 500) == [400]
    assert due(table, 1_000) == [400, 900]


def test_3_8_a_null_deletes_its_key_and_no_other(table: Table) -> None:
    put_rows(table, 100, 200)
    table.apply_records([(key(100), None)], 3, NOW_MS)
    assert list_due_times(table) == [200]
    assert (table.waiting, table.next_offset) == (1, 3)


def test_a_null_of_a_foreign_key_deletes_nothing(table: Table) -> None:
    put_rows(table, 100)
    table.apply_records([(key(100, 1), None), (key(100, 0, "other.DLT"), None), (key(99), None), (b"\xff", None)], 5, NOW_MS)
    assert list_due_times(table) == [100]
    assert (table.waiting, table.next_offset) == (1, 5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([b"a", None], None), ([b"a", None, b"b"], b"b"), ([None, b"a"], b"a"), ([b"a", b"b"], b"b")],
)
def test_of_one_key_the_last_record_counts(table: Table, values: list[bytes | None], expected: bytes | None) -> None:
    table.apply_records([(key(100), value) for value in values], len(values), NOW_MS)
    assert table.get(key(100)) == expected
    assert table.waiting == len(list_due_times(table)) == (expected is not None)


AGAIN: list[list[tuple[bytes, bytes | None]]] = [
    [(key(100), b"a"), (key(200), b"b")],
    [(key(200), b"b")],
    [(key(200), None), (key(200), b"b")],
]


@pytest.mark.parametrize("again", AGAIN, ids=["all again", "one again", "one deleted and again"])
def test_rows_put_again_are_there_once(table: Table, again: list[tuple[bytes, bytes | None]]) -> None:
    table.apply_records(AGAIN[0], 2, NOW_MS)
    table.apply_records(again, 4, NOW_MS)
    assert [row[1:] for row in table.scan_entries(b"", ALL)] == AGAIN[0]
    assert table.next_offset == 4


def test_what_leaves_and_comes_back_under_its_key_in_one_fold_counts_once(table: Table) -> None:
    """An entry that is held gets another key, and its own again when it is let go; who restores a table may read all at once."""
    put_rows(table, 100, 200)
    table.apply_records([(key(100), None), (key(100), b"again"), (key(200), None)], 5, NOW_MS)
    assert (table.waiting, list_due_times(table)) == (1, [100])
    table.apply_records([(key(100), None), (key(100), b"again"), (key(100), None)], 8, NOW_MS)
    assert (table.waiting, list_due_times(table)) == (0, [])


def test_deletes_read_back_after_they_are_forgotten_count_once(table: Table) -> None:
    put_rows(table, 100, 200)
    batch = [found for found, _ in table.find_due(150, ALL, ALL)]
    table.delete_scanned_rows(batch)
    table.apply_records([(found, None) for found in batch], 4, NOW_MS)
    assert (table.waiting, list_due_times(table)) == (1, [200])


def test_deletes_read_back_before_they_are_forgotten_count_once(table: Table) -> None:
    """The commit is visible before the sweep has had the time to forget: two threads, either order."""
    put_rows(table, 100, 200)
    batch = [found for found, _ in table.find_due(150, ALL, ALL)]
    table.apply_records([(found, None) for found in batch], 4, NOW_MS)
    table.delete_scanned_rows(batch)
    assert (table.waiting, list_due_times(table)) == (1, [200])


def test_an_empty_fold_moves_the_offset(table: Table) -> None:
    table.apply_records([], 17, NOW_MS)
    assert (table.next_offset, table.waiting) == (17, 0)


def test_a_table_is_as_current_as_it_is_told_and_a_new_one_has_nothing_to_miss(table: Table) -> None:
    assert table.current_at_ms > NOW_MS
    table.apply_records([(key(100), b"")], 1, NOW_MS - 5)
    table.delete_scanned_rows([found for found, _ in table.find_due(150, ALL, ALL)])
    assert table.current_at_ms == NOW_MS - 5


def test_pages_go_on_after_a_key(table: Table) -> None:
    put_rows(table, 1, 2, 3, 4, 5)
    first = table.scan_entries(b"", 2)
    second = table.scan_entries(first[-1][0], 2)
    assert [value for *_, value in first + second + table.scan_entries(second[-1][0], 2)] == [b"1", b"2", b"3", b"4", b"5"]
    assert table.scan_entries(key(5), 2) == []


def test_a_page_holds_what_is_not_due_and_begins_below_the_watermark(table: Table) -> None:
    put_rows(table, 100, 1 << 50)
    deliver(table, 1_000)
    put_rows(table, 50)
    assert list_due_times(table) == [50, 1 << 50]


def test_get_answers_with_the_envelope_or_nothing(table: Table) -> None:
    table.apply_records([(key(1), b""), (key(2), b"\0\xff")], 2, NOW_MS)
    assert [table.get(key(n)) for n in (1, 2, 3)] == [b"", b"\0\xff", None]


PAUSE, OTHER_PAUSE = b"\x10pause/all/", b"\x10pause/team/orders"
STANDS, *CHANGED = (control_records.encode(Pause(NOW_MS, why)) for why in ("it stands", "first", "second"))


def test_controls_stand_until_they_are_deleted(table: Table) -> None:
    assert table.controls == {}
    table.apply_records([(PAUSE, STANDS), (OTHER_PAUSE, CHANGED[0]), (key(100), b"v")], 3, NOW_MS)
    before = table.controls
    assert before == {PAUSE: STANDS, OTHER_PAUSE: CHANGED[0]}
    table.apply_records([(OTHER_PAUSE, CHANGED[1]), (PAUSE, None)], 5, NOW_MS)
    assert table.controls == {OTHER_PAUSE: CHANGED[1]}
    # Whoever asked before may still be reading.
    assert before == {PAUSE: STANDS, OTHER_PAUSE: CHANGED[0]}
    table.apply_records([(OTHER_PAUSE, None), (PAUSE, None)], 7, NOW_MS)
    assert table.controls == {}


def test_controls_are_no_entries(table: Table) -> None:
    table.apply_records([(PAUSE, STANDS)], 1, NOW_MS)
    entries = table.scan_entries(b"", ALL)
    assert (table.waiting, table.list_lanes(), table.find_due_lanes(1 << 62), entries, table.next_offset) == (0, [], [], [], 1)


def test_controls_survive_a_table_that_is_opened_again(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    table.apply_records([(PAUSE, STANDS), (OTHER_PAUSE, CHANGED[0]), (OTHER_PAUSE, None)], 3, NOW_MS)
    table.close()
    again = rocks(tmp_path / "table")
    assert (again.controls, again.next_offset) == ({PAUSE: STANDS}, 3)
    again.close()


FOREIGN = [
    b"", b"\0", b"\x01", b"\x03" + bytes(40), b"\x04" + bytes(8), b"\x05" + bytes(60), b"\x06" + bytes(60),
    b"\x07" + bytes(60), b"\x0f", b"\x11", b"\xff" * 80, key(100)[:30],
]  # fmt: skip


@pytest.mark.parametrize(
    "foreign",
    # Keys that begin as those of a later version might are told apart: see below.
    [*(each for each in FOREIGN if each[:1] not in (b"\x0f", b"\x11")), b"\x02" + key(100)[1:32]],
    ids=lambda found: found.hex()[:8] + f" {len(found)}",
)
def test_a_record_of_a_foreign_kind_is_passed_over_and_told_and_all_else_is_taken_in(table: Table, foreign: bytes) -> None:
    put_rows(table, 100)
    rows = [(key(100), None), (key(200), b""), (ordered_key(1, 1), b""), (PAUSE, STANDS), (foreign, b"?"), (key(300), b"")]
    assert [row.key for row in table.apply_records(rows, 9, NOW_MS)] == [foreign]
    assert (len(everything(table)), table.waiting, table.controls, table.next_offset) == (3, 3, {PAUSE: STANDS}, 9)
    assert deliver(table, 300) == [200, 300]


@pytest.mark.parametrize("foreign", [b"", b"?", b'{"at_ms": null}', b"\xff"])
def test_a_control_that_cannot_be_read_leaves_the_one_before_in_force(table: Table, foreign: bytes) -> None:
    table.apply_records([(PAUSE, STANDS)], 1, NOW_MS)
    assert [row.key for row in table.apply_records([(PAUSE, foreign)], 2, NOW_MS)] == [PAUSE]
    assert (table.controls, table.next_offset) == ({PAUSE: STANDS}, 2)


def test_of_a_fold_with_a_record_of_a_newer_version_nothing_is_taken_in(table: Table) -> None:
    put_rows(table, 100)
    gone, put_now = [(key(100), None)], [(key(200), b""), (ordered_key(1, 1), b""), (PAUSE, STANDS)]
    with pytest.raises(EntryNewer):
        table.apply_records([*gone, *put_now, (b"\x0f" + bytes(40), b"?"), (key(300), b"")], 9, NOW_MS)
    assert (list_due_times(table), table.waiting, table.controls, table.next_offset) == ([100], 1, {}, 1)
    # Nor is a count kept of what was not done.
    assert deliver(table, 100) == [100]
    assert table.waiting == 0


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda found: found.hex()[:8] + f" {len(found)}")
def test_a_null_of_a_foreign_kind_is_passed_over(table: Table, foreign: bytes) -> None:
    table.apply_records([(key(100), b"v"), (ordered_key(1, 1), b"o"), (PAUSE, STANDS), (foreign, None)], 4, NOW_MS)
    assert (table.waiting, len(everything(table)), table.controls, table.next_offset) == (2, 2, {PAUSE: STANDS}, 4)


def test_a_foreign_record_that_was_deleted_in_the_same_fold_is_passed_over(table: Table) -> None:
    table.apply_records([(b"\xff", b"?"), (key(100), b"v"), (b"\xff", None)], 3, NOW_MS)
    assert (table.waiting, table.next_offset) == (1, 3)


def test_3_11_a_table_on_disk_opens_as_it_was_closed(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    put_rows(table, 100, 200, 300)
    assert deliver(table, 150) == [100]
    table.close()
    again = rocks(tmp_path / "table")
    assert (again.next_offset, again.waiting, list_due_times(again)) == (3, 2, [200, 300])
    # The watermark is not stored; what was put below the old one must be found all the same.
    put_rows(again, 10)
    assert deliver(again, 1_000) == [10, 200, 300]
    again.close()


def test_a_table_on_disk_that_was_not_closed_opens_with_rows_and_offset_in_step(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    for n in range(10):
        put_rows(table, n)
        if n == 6:
            table._db.flush()
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (tmp_path / "table").iterdir():
        if file.is_file() and file.name != "LOCK":
            (copy / file.name).write_bytes(file.read_bytes())
    found = rocks(copy)
    # What came after the last sorted file is folded again.
    assert found.next_offset == found.waiting == len(list_due_times(found)) == 7
    found.close()
    table.close()


def test_3_10_a_scan_does_not_step_over_what_was_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 rows go out; every scan on the way begins where the one before ended."""
    table = rocks(tmp_path / "table")
    table.apply_records([(key(n), b"") for n in range(200_000)], 200_000, NOW_MS)
    starts: list[bytes] = []
    scan = table._db.scan

    def note_and_scan(start: bytes, *rest: object) -> object:
        starts.append(start)
        return scan(start, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(table._db, "scan", note_and_scan)
    while deliver(table, 300_000, rows_max=10_000):
        pass
    assert table.waiting == 0
    # Neither the look that found nothing nor the next one touched the rows: the watermark had passed them.
    assert table.find_due(300_000, ALL, ALL) == []
    assert starts == [key(0), *(key(n) + b"\0" for n in range(9_999, 199_999, 10_000))]
    # What is behind the watermark was reclaimed with ranges, and not left as 200,000 tombstones to step over.
    assert table._watermarks._lanes[entry_keys.COMMON].forgotten < 50_000
    table.close()


def may_be_folded(value: bytes) -> bool:
    """Whether no newer version has written a value, of which a fold takes in nothing; see the test of that."""
    try:
        envelopes.check_version(value)
    except EntryNewer:
        return False
    return True


_DUE = st.integers(0, 40)
_VALUE = st.binary(max_size=30).filter(may_be_folded)
_LANES = [entry_keys.COMMON, lane(0), lane(1), lane(0, ordered=True), lane(1, ordered=True)]
_ORDERS = (b"a", b"b")
_ROW = st.tuples(st.sampled_from(_LANES), _DUE, st.integers(0, 2), st.sampled_from(_ORDERS), _VALUE | st.none())


def row_key(of: bytes, due_ms: int, offset: int, record_key: bytes) -> bytes:
    if of[0] == entry_keys.PLAIN:
        return entry_keys.build_key(due_ms, entry_keys.build_key_stem("orders.DLT", 0), offset, of)
    # Letters of two record keys are never the same letter.
    return ordered_key(due_ms, offset + 10 * _ORDERS.index(record_key), record_key, _LANES.index(of) - 3)


class Fold(RuleBasedStateMachine):
    """Any order of folds, sweeps and re-openings, beside a dict and a few lines that say what is at a head."""

    # Whether a key that waits may be put once more. Letters are taken in once; after their offsets expired, twice.
    puts_again = False

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[bytes, bytes] = {}
        self.controls: dict[bytes, bytes] = {}
        self.table: Table = self.make()
        self.offset = 0
        self.batch: dict[bytes, list[bytes]] = {}

    def heads(self) -> dict[bytes, bytes]:
        """The entries that wait for no other."""
        first: dict[bytes, bytes] = {}
        for found in self.model:
            if found[0] == entry_keys.ORDERED:
                order = entry_keys.order_of(found)
                first[order] = min(found, first.get(order, found), key=lambda key: (entry_keys.read_source(key)[1:], key))
        return {k: v for k, v in self.model.items() if k[0] == entry_keys.PLAIN or first[entry_keys.order_of(k)] == k}

    def make(self) -> Table:
        return MemoryTable()

    @rule(rows=st.lists(_ROW, max_size=6))
    def fold(self, rows: list[tuple[bytes, int, int, bytes, bytes | None]]) -> None:
        records = [(row_key(*where), value) for *where, value in rows]
        # A key that is being delivered is never put again: its due time is past, and its letter was taken in once.
        sent = {found for keys in self.batch.values() for found in keys}
        records = [(found, value) for found, value in records if value is None or found not in sent]
        if not self.puts_again:
            taken = set(self.model)
            once = {found: (found, value) for found, value in records if value is None or found not in taken}
            records = list(once.values())
        self.offset += len(records)
        self.table.apply_records(records, self.offset, NOW_MS)
        for found, value in records:
            if value is None:
                self.model.pop(found, None)
            else:
                self.model[found] = value

    @rule(which=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def delete(self, which: list[int]) -> None:
        """Nulls of entries that wait: deleted by an operator, or delivered and read back before they are forgotten."""
        waiting = sorted(self.model)
        records = [(waiting[n % len(waiting)], None) for n in which if waiting]
        self.offset += len(records)
        self.table.apply_records(records, self.offset, NOW_MS)
        for found, _ in records:
            self.model.pop(found, None)

    @rule(name=st.sampled_from([PAUSE, OTHER_PAUSE]), value=st.sampled_from([STANDS, *CHANGED, None]))
    def control(self, name: bytes, value: bytes | None) -> None:
        self.offset += 1
        self.table.apply_records([(name, value)], self.offset, NOW_MS)
        self.controls = {k: v for k, v in (self.controls | {name: value}).items() if v is not None}

    @rule(of=st.sampled_from(_LANES), now_ms=_DUE, rows_max=st.integers(1, 5), bytes_max=st.integers(1, 60))
    def look(self, of: bytes, now_ms: int, rows_max: int, bytes_max: int) -> None:
        expected = []
        for found, value in sorted(self.heads().items()):
            if entry_keys.lane_of(found) != of or entry_keys.due_at_ms(found) > now_ms:
                continue
            if len(expected) == rows_max or sum(len(value) for _, value in expected) >= bytes_max:
                break
            expected.append((found, value))
        assert self.table.find_due(now_ms, rows_max, bytes_max, of) == expected
        self.batch[of] = [found for found, _ in expected]
        if not expected:
            assert of not in self.table.find_due_lanes(now_ms)

    @rule(now_ms=_DUE)
    def look_for_lanes(self, now_ms: int) -> None:
        oldest: dict[bytes, bytes] = {}
        for found in sorted(self.heads(), reverse=True):
            oldest[entry_keys.lane_of(found)] = found[entry_keys.LANE_BYTES :]
        named = self.table.find_due_lanes(now_ms)
        due = {of for of, first in oldest.items() if first < entry_keys.build_due_bound(now_ms + 1, b"")}
        assert due <= set(named)
        assert set(oldest) <= set(self.table.list_lanes())
        for of in set(named) - due:  # One look, and it is not named again.
            assert self.table.find_due(now_ms, ALL, ALL, of) == []
            self.batch.pop(of, None)
        assert set(self.table.find_due_lanes(now_ms)) == due

    @rule(of=st.sets(st.sampled_from(_LANES)), back=st.booleans())
    def forget(self, of: set[bytes], back: bool) -> None:
        """Tell the table that what was looked at in these lanes went out; of ordered entries, or what was refused came back."""
        keys = [found for each in sorted(of) for found in self.batch.pop(each, [])]
        again = [(entry_keys.make_key_due_at(found, 41 + self.offset), b"again") for found in keys] if back else []
        again = [row for row in again if row[0][0] == entry_keys.ORDERED]
        self.table.delete_scanned_rows(keys, again)
        for found in keys:
            self.model.pop(found, None)
        self.model |= again

    @invariant()
    def same(self) -> None:
        assert [row[1:] for row in self.table.scan_entries(b"", ALL)] == sorted(self.heads().items())
        assert everything(self.table) == self.model
        assert self.table.controls == self.controls
        assert self.table.next_offset == self.offset
        # A key that is put again may count again: see `Table.waiting`.
        assert self.puts_again or self.table.waiting == len(self.model)

    def teardown(self) -> None:
        self.table.close()


class FoldOnDisk(Fold):
    """A fold on disk, closed and opened again at any time."""

    folder: Path
    made = 0

    def make(self) -> Table:
        type(self).made += 1
        self.path = self.folder / str(self.made)
        return rocks(self.path)

    @rule()
    def reopen(self) -> None:
        self.table.close()
        self.table = rocks(self.path)
        self.batch = {}

    def teardown(self) -> None:
        super().teardown()
        destroy_database(self.path)


@pytest.mark.parametrize("puts_again", [False, True])
def test_any_history_in_memory(puts_again: bool) -> None:
    run(Fold, puts_again, histories=100)


@pytest.mark.parametrize("puts_again", [False, True])
def test_any_history_on_disk(tmp_path: Path, puts_again: bool) -> None:
    FoldOnDisk.folder = tmp_path
    run(FoldOnDisk, puts_again, histories=40)


def run(machine: type[Fold], puts_again: bool, histories: int) -> None:
    machine.puts_again = puts_again
    case = machine.TestCase()
    # Shrinking would open thousands of databases; the steps of the history that failed are printed all the same.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    case.settings = settings(
        max_examples=histories, stateful_step_count=25, deadline=None, phases=phases, database=None,
        derandomize=True, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    case.runTest()


SIZES = st.lists(st.sampled_from([2, 300, 20_000]), max_size=60)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=SIZES, rows_max=st.integers(0, 70), bytes_max=st.integers(0, 90_000))
def test_no_more_is_read_than_was_asked_for(table: Table, sizes: list[int], rows_max: int, bytes_max: int) -> None:
    """The row that reaches the limit of bytes is the last, however many follow that are larger than those before."""
    due_ms = table.next_offset * 1_000
    rows = [(plain_key(due_ms + n, table.next_offset + n), bytes([0x90, 1] * (size // 2))) for n, size in enumerate(sizes)]
    table.apply_records(rows, table.next_offset + len(rows), NOW_MS)
    expected, left = list[ChangelogRow](), bytes_max
    for row in rows[:rows_max]:
        if left <= 0:
            break
        expected.append(row)
        left -= len(row[1])
    assert table.find_due(ALL, rows_max, bytes_max) == expected
    table.apply_records([(key, None) for key, _ in table.find_due(ALL, ALL, ALL)], table.next_offset + len(rows), NOW_MS)
